"""One image file to pixels of the model's size: the paper's resize and centre crop, in bounded memory."""

from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

RESIZE = 256 / 224  # the paper resizes to 256x256 and keeps the centre, 224x224
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's pixels in 0..1
DEVIATION = (0.229, 0.224, 0.225)

MAX_PIXELS = 178_956_970  # what Pillow refuses by default
MAX_PIXELS_FMOW = 1_000_000_000  # its largest images are beyond that, but are JPEGs that can be reduced
MAX_DECODED = 64_000_000  # pixels of a JPEG to hold at once, unless even an eighth of its sides is more

TRANSFORM_VERSION = 1  # raised whenever the same file would get other pixels

Box = tuple[float, float, float, float]  # left, upper, right, lower, in pixels


class Transform(NamedTuple):
    """What is done to every image: to height and width `shape`, refusing images above `max_pixels`."""

    shape: tuple[int, int]
    max_pixels: int = MAX_PIXELS
    max_whole: int = MAX_PIXELS  # of an image that cannot be reduced while it is decoded

    def __call__(self, file: Path | BinaryIO, box: Box | None = None) -> Tensor:
        """The centre of an image, or of its box, as uint8 (3, H, W)."""
        with _open(file) as image:
            self._refuse_bomb(image)
            width, height = image.size
            left, upper, right, lower = box = _clip(box, image.size) if box else (0, 0, width, height)
            resized = [round(side * RESIZE) for side in self.shape]
            _reduce(image, (right - left) / resized[1], (lower - upper) / resized[0])
            across, down = image.size[0] / width, image.size[1] / height  # below 1 if reduced
            part = _centre(self.shape, resized, (left * across, upper * down, right * across, lower * down))
            colour = image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
            pixels = colour.resize(self.shape[::-1], Image.Resampling.BILINEAR, part)
        return torch.from_numpy(np.array(pixels)).permute(2, 0, 1).contiguous()

    def _refuse_bomb(self, image: Image.Image) -> None:
        # A progressive JPEG is held whole, as coefficients, before it can be reduced; other formats always.
        reducible = image.format == "JPEG" and "progressive" not in image.info
        limit = self.max_pixels if reducible else min(self.max_pixels, self.max_whole)
        width, height = image.size
        if width * height > limit:
            raise ValueError(f"{width}x{height} pixels are more than the limit of {limit}")


def _open(file: Path | BinaryIO) -> Image.Image:
    """Open without Pillow's own limit, which knows neither the dataset nor that a JPEG can be reduced."""
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        return Image.open(file)
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _clip(box: Box, size: tuple[int, int]) -> Box:
    left, upper = max(box[0], 0.0), max(box[1], 0.0)
    right, lower = min(box[2], size[0]), min(box[3], size[1])
    if right - left < 1 or lower - upper < 1:
        raise ValueError(f"the box {tuple(box)} is not within the image of {size[0]}x{size[1]} pixels")
    return left, upper, right, lower


def _reduce(image: Image.Image, across: float, down: float) -> None:
    """Have a JPEG decoded at 1/2, 1/4 or 1/8 of its sides if it is that many times larger than needed."""
    width, height = image.size
    factors = [factor for factor in (8, 4, 2, 1) if min(across, down) >= factor]
    factor = factors[0] if factors else 1
    while factor < 8 and width * height / factor**2 > MAX_DECODED:
        factor *= 2  # only for a small box of a huge image, which then gets coarser than it could be
    if factor > 1:
        image.draft(image.mode, (max(1, width // factor), max(1, height // factor)))


def _centre(shape: tuple[int, int], resized: list[int], box: Box) -> Box:
    """The part of a box that is left by resizing the box and cutting `shape` out of its centre."""
    left, upper, right, lower = box
    across, down = (right - left) / resized[1], (lower - upper) / resized[0]
    left += (resized[1] - shape[1]) // 2 * across
    upper += (resized[0] - shape[0]) // 2 * down
    return left, upper, left + shape[1] * across, upper + shape[0] * down
