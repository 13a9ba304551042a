"""From any image to what a model reads: the pixels of its size, its channels, normalised."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from reorder.data.transform import Transform

# b images, C channels, H x W pixels of the model's images

GREY = (0.299, 0.587, 0.114)  # of red, green and blue, as Pillow mixes them


class Inputs(NamedTuple):
    """How an image becomes what a model reads."""

    transform: Transform
    mean: tuple[float, ...]  # (C,), of pixels in 0..1
    deviation: tuple[float, ...]  # (C,)

    def read(self, image: Any) -> Tensor:
        """A file, an image of Pillow's, or uint8 pixels (tensor (C, h, w), array (h, w, C)), as (3, H, W)."""
        return self.transform(image if isinstance(image, Image.Image | Path) else _opened(image))

    def prepare(self, images: Tensor) -> Tensor:
        """Images (b, 3, H, W), uint8, as the model reads them: (b, C, H, W), grey if it has one channel."""
        if len(self.mean) == 1:
            mixed = (images * torch.tensor(GREY)[:, None, None]).sum(1, keepdim=True)
            images = mixed.round().clamp(0, 255).to(torch.uint8)
        return normalised(images, torch.tensor(self.mean), torch.tensor(self.deviation))


def normalised(images: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Images (b, C, H, W), uint8, less the mean (C,) and by the deviation (C,) of pixels in 0..1."""
    scale, shift = 1 / (255 * deviation), -mean / deviation
    return images.float().mul_(scale[:, None, None]).add_(shift[:, None, None])


def pixels_of(images: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """The pixels (b, C, H, W), uint8, of normalised images."""
    shown = images * deviation[:, None, None] + mean[:, None, None]
    return (255 * shown).round().clamp(0, 255).to(torch.uint8)


def _opened(image: Any) -> Path | Image.Image:
    """What a transform takes: a path as such, pixels as an image of Pillow's."""
    if isinstance(image, str):
        return Path(image)
    pixels = image
    if isinstance(image, Tensor):
        pixels = (image.movedim(0, -1) if image.dim() == 3 else image).cpu().numpy()
    if isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8:
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[..., 0]
        if pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3):
            return Image.fromarray(np.ascontiguousarray(pixels))
    found = f"{pixels.dtype} of shape {tuple(image.shape)}" if isinstance(pixels, np.ndarray) else type(image)
    raise ValueError(
        f"an image is a file, an image of Pillow's, or uint8 pixels with 1 or 3 channels, got {found}"
    )
