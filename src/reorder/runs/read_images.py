"""Images that are kept with the order that each is read in, small enough to draw and to send."""

from typing import NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

# n images, C channels, H x W pixels, N patches

MOST_SIDE = 112  # pixels: half of what most models read


class ReadImages(NamedTuple):
    """Some images, and the order that each is read in."""

    images: np.ndarray  # (n, H, W), or (n, H, W, 3) of red, green and blue; uint8
    orders: np.ndarray  # (n, N)

    @classmethod
    def of(cls, images: Tensor, orders: Tensor) -> "ReadImages":
        """Of images, uint8 (n, C, H, W), and their orders (n, N); large images are reduced."""
        pictures = [picture_of(image) for image in images]
        for picture in pictures:
            picture.thumbnail((MOST_SIDE, MOST_SIDE))  # which leaves a smaller one as it is
        return cls(np.stack([np.asarray(picture) for picture in pictures]), orders.numpy())


def picture_of(image: Tensor) -> Image.Image:
    """An image, uint8 (C, H, W), grey or of red, green and blue."""
    pixels = image[0] if len(image) == 1 else image[:3].permute(1, 2, 0)
    return Image.fromarray(pixels.numpy())
