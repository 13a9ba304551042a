"""Images that are moved: scaled and put anywhere on a canvas, or turned by any angle.

What an image becomes is a function of its index alone: every epoch and every run see the same.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# n images, C channels, h x w pixels of an image, H x W of the canvas

SMALLEST, LARGEST = 0.75, 1.25  # times an image's own size


def moved(images: Tensor, shape: tuple[int, int], how: str) -> Tensor:
    """Images, uint8 (n, C, h, w), on canvases (n, C, H, W) that are black elsewhere.

    `shift` scales each and puts it anywhere within the canvas; `rotate` fills the canvas with it and turns it
    by any angle.
    """
    own = tuple(images.shape[2:])
    if how == "shift" and any(LARGEST * side > room for side, room in zip(own, shape, strict=True)):
        least = "x".join(str(math.ceil(LARGEST * side)) for side in own)
        raise ValueError(
            f"data.move=shift needs a canvas for images of up to {LARGEST} times their {own[0]}x{own[1]} "
            f"pixels: model.image_size must be at least {least}, got {shape[0]}x{shape[1]}"
        )
    maps = (shifts if how == "shift" else turns)(len(images), own, shape)
    found = []
    for part, to_image in zip(images.split(1024), maps.split(1024), strict=True):
        grid = F.affine_grid(to_image, [len(part), 1, *shape], align_corners=False)
        drawn = F.grid_sample(part.float(), grid, padding_mode="zeros", align_corners=False)
        found.append(drawn.round_().clamp_(0, 255).to(torch.uint8))
    return torch.cat(found)


def shifts(count: int, own: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
    """Maps (n, 2, 3) from places on the canvas to places in the image, both from -1 to 1, x before y."""
    random = np.random.default_rng(2).random((count, 3))
    scale = SMALLEST + (LARGEST - SMALLEST) * random[:, 0]
    found = torch.zeros(count, 2, 3)
    for axis, side, room, where in ((0, own[1], shape[1], random[:, 1]), (1, own[0], shape[0], random[:, 2])):
        size = scale * side
        centre = size / 2 + where * (room - size)  # pixels from the canvas's edge
        found[:, axis, axis] = torch.from_numpy(room / size)
        found[:, axis, 2] = torch.from_numpy((room - 2 * centre) / size)
    return found


def turns(count: int, own: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
    """The same for images that fill the canvas, each turned about its centre."""
    angle = torch.from_numpy(2 * np.pi * np.random.default_rng(3).random(count)).float()
    ratio = shape[1] / shape[0]  # a pixel is as wide as it is high
    rows = [[angle.cos(), -angle.sin() / ratio], [angle.sin() * ratio, angle.cos()]]
    square = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
    return F.pad(square, (0, 1))
