"""A dataset's images as grids of codes, kept on disk so that a second look is free."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reorder.config import Experiment
from reorder.display import Display


class Codes(NamedTuple):
    codes: np.ndarray  # (images, N), raster order, memory-mapped, the smallest unsigned type that fits
    codebook_size: int
    grid: tuple[int, int]
    facts: dict[str, Any]  # of the tokenizer and the images, as JSON can hold them


def encode_dataset(
    experiment: Experiment,
    tokenizer: str = "kmeans",
    *,
    codebook_size: int | None = None,
    weights: str | None = None,
    images: int | None = None,
    cache: Path,
    display: Display,
    seed: int = 0,
) -> Codes:
    """The codes of the training images (or of so many, chosen by the seed), from the cache if they are there."""
    raise NotImplementedError
