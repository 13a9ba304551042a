"""The images that a page shows with the orders they have of their own, and how pictures are embedded."""

import base64
import io
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from reorder.report.results import Result

# n images, N patches

OWN_BYTES = 700_000  # of the images and orders of all runs


class OwnImages(NamedTuple):
    """Some images of a run, and the order that each is read in."""

    uris: list[str]
    orders: np.ndarray  # (n, N)

    def first(self, count: int) -> "OwnImages":
        return OwnImages(self.uris[:count], self.orders[:count])

    @property
    def order_bytes(self) -> int:
        """What the orders take in a page."""
        return len(packed(self.orders))


NO_IMAGES = OwnImages([], np.empty((0, 0), np.int64))


def own_images(results: Sequence[Result]) -> tuple[dict[Path, OwnImages], list[str]]:
    """What runs have kept of the orders of their images, by their directories, and notes on damaged files."""
    found: dict[Path, OwnImages] = {}
    notes = []
    uris: dict[tuple[tuple[int, ...], bytes], str] = {}  # runs on the same data share their images
    for result in results:
        try:
            kept = result.run.own_orders()
            if kept is not None and kept.orders.shape[1] != math.prod(result.grid):
                path, patches = result.run.path / "own_orders.npz", kept.orders.shape[1]
                raise ValueError(f"{path} is of {patches} patches, but the run reads {result.grid}")
        except ValueError as error:
            notes.append(f"{result.run.path}: without the orders of its images: {error}.")
            continue
        if kept is not None:
            keys = [(image.shape, image.tobytes()) for image in kept.images]
            for key, image in zip(keys, kept.images, strict=True):
                if key not in uris:
                    uris[key] = png_uri(png_of(image))
            found[result.run.path] = OwnImages([uris[key] for key in keys], kept.orders)
    return found, notes


def most_images(own: Collection[OwnImages]) -> int:
    """How many images of every run fit into a page; an image that runs share is in it once."""

    def size(count: int) -> int:
        parts = [each.first(count) for each in own]
        shared = {uri for part in parts for uri in part.uris}
        return sum(map(len, shared)) + sum(part.order_bytes for part in parts)

    longest = max((len(each.uris) for each in own), default=0)
    return max(count for count in range(longest + 1) if size(count) <= OWN_BYTES)


def packed(orders: np.ndarray) -> str:
    """Orders (n, N) as base64 of one byte for every slot, or of two where there are more than 256 patches."""
    return base64_of(orders.astype("u1" if orders.shape[1] <= 256 else "<u2").tobytes())


def png_of(pixels: np.ndarray) -> bytes:
    """Pixels, uint8 (H, W) or (H, W, 3), as a PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def png_uri(content: bytes) -> str:
    return f"data:image/png;base64,{base64_of(content)}"


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()
