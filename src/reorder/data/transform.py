"""One image file to pixels of the model's size: the paper's resize and centre crop, in bounded memory."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION
from torch import Tensor

# No others: for some, such as EPS, Pillow starts another program, whatever the file is called.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
REDUCIBLE = ("JPEG", "MPO")  # MPO: a JPEG with more JPEGs behind it, as some cameras write

RESIZE = 256 / 224  # the paper resizes to 256x256 and keeps the centre, 224x224
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's pixels in 0..1
DEVIATION = (0.229, 0.224, 0.225)

MAX_PIXELS = 178_956_970  # what Pillow refuses by default
MAX_PIXELS_FMOW = 1_000_000_000  # its largest images are beyond that, but are JPEGs that can be reduced
MAX_DECODED = 64_000_000  # pixels to hold at once, unless even an eighth of a JPEG's sides is more
MAX_SIDE = 65_535  # no JPEG has a longer one; resizing a long and thin image would take unbounded memory

BACKGROUND = 255  # white: what is seen through transparent pixels

UPRIGHT = {  # EXIF's orientation -> what turns the stored image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

TRANSFORM_VERSION = 2  # raised whenever the same file would get other pixels

Box = tuple[float, float, float, float]  # left, upper, right, lower, in pixels


class Transform(NamedTuple):
    """What is done to every image: to height and width `shape`, refusing images above `max_pixels`."""

    shape: tuple[int, int]
    max_pixels: int = MAX_PIXELS
    max_whole: int = MAX_DECODED  # of an image that cannot be reduced while it is decoded
    crop: bool = True  # the paper's resize and centre crop; else the whole image is resized

    def __call__(self, file: Path | BinaryIO | Image.Image, box: Box | None = None) -> Tensor:
        """The centre of an image, or of its box in the upright image, as uint8 (3, H, W)."""
        with _opened(file) as image:
            self._refuse_bomb(image)
            if image.format not in REDUCIBLE:
                image.load()  # Pillow turns a TIFF upright by itself, and finds all of a PNG's EXIF
            turn = UPRIGHT.get(_orientation(image))
            width, height = _upright_size(image, turn)
            left, upper, right, lower = box = _clip(box, (width, height)) if box else (0, 0, width, height)
            resized = [round(side * RESIZE) if self.crop else side for side in self.shape]
            _reduce(image, (right - left) / resized[1], (lower - upper) / resized[0])
            upright = image if turn is None else image.transpose(turn)
            across, down = upright.size[0] / width, upright.size[1] / height  # below 1 if reduced
            part = _centre(self.shape, resized, (left * across, upper * down, right * across, lower * down))
            pixels = _colours(upright, self.shape[::-1], part)
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()

    def _refuse_bomb(self, image: Image.Image) -> None:
        # A progressive JPEG is held whole, as coefficients, before it can be reduced; other formats always.
        reducible = image.format in REDUCIBLE and "progressive" not in image.info
        limit = self.max_pixels if reducible else min(self.max_pixels, self.max_whole)
        width, height = image.size
        if width * height > limit:
            raise ValueError(f"{width}x{height} pixels are more than the limit of {limit} (data.max_pixels)")
        if max(width, height) > MAX_SIDE:
            raise ValueError(f"{width}x{height} pixels: a side is longer than the limit of {MAX_SIDE}")


@contextmanager
def _opened(file: Path | BinaryIO | Image.Image) -> Iterator[Image.Image]:
    """An image of a known format, without Pillow's own limit: it does not know that JPEGs can be reduced."""
    if isinstance(file, Image.Image):
        yield file
        return
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(file, formats=FORMATS) as image:
            yield image
    except UnidentifiedImageError:
        raise ValueError(f"not an image of the formats {', '.join(FORMATS)} that can be read") from None
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _orientation(image: Image.Image) -> int:
    """What EXIF says about how the camera was held; 1, upright, if it says nothing that can be read."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF makes Pillow raise almost anything
        return 1


def _upright_size(image: Image.Image, turn: Image.Transpose | None) -> tuple[int, int]:
    """(width, height) once the image is turned."""
    kept = (None, UPRIGHT[2], UPRIGHT[3], UPRIGHT[4])
    return image.size if turn in kept else (image.size[1], image.size[0])


def _colours(image: Image.Image, size: tuple[int, int], part: Box) -> np.ndarray:
    """A part of an image, resized to (width, height), as uint8 (height, width, 3) of red, green and blue."""

    def resize(image: Image.Image) -> np.ndarray:
        return np.array(image.resize(size, Image.Resampling.BILINEAR, part))

    if image.mode == "F" or image.mode.startswith("I"):
        return _from_deep(image, resize(image.convert("F")))
    if image.has_transparency_data:
        # Resized with colours multiplied by opacity, so that transparent pixels add no colour.
        opaque = image if image.mode == "RGBA" else image.convert("RGBA")
        colours = resize(opaque.convert("RGBa")).astype(np.uint16)
        return (colours[..., :3] + BACKGROUND - colours[..., 3:]).clip(0, 255).astype(np.uint8)
    return resize(image if image.mode == "RGB" else image.convert("RGB"))  # which would copy it


def _from_deep(image: Image.Image, grey: np.ndarray) -> np.ndarray:
    """Grey pixels (height, width) of more than 8 bits, scaled by what the image's mode can hold to 0..255."""
    tags = getattr(image, "tag_v2", {})  # of a TIFF
    if "transparency" in image.info:
        raise ValueError("grey of 16 bits with a transparent value cannot be read; save it with 8 bits")
    if image.mode == "F":
        low, high = np.array(image.getextrema())
        holes = "" if np.isfinite(grey).all() else ", and some are not numbers"
        if holes or not (low >= 0 and high <= 1):
            raise ValueError(
                f"its floats are from {low:g} to {high:g}{holes}; only 0 to 1 have a known brightness"
            )
        most = 1
    elif image.mode == "I" and image.format == "TIFF":
        raise ValueError("signed integers, or of 32 bits, have no known brightness; save it with 16 bits")
    else:
        most = 2 ** tags.get(BITSPERSAMPLE, (16,))[0] - 1
    if tags.get(PHOTOMETRIC_INTERPRETATION) == 0:  # the least value is white
        grey = most - grey
    return np.repeat((grey * (255 / most)).round().clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)


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
