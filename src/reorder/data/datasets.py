"""Labelled images by the name of their dataset."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Split(NamedTuple):
    images: Tensor  # (n, C, H, W), uint8
    labels: Tensor  # (n,), long


class Dataset(NamedTuple):
    train: Split
    validation: Split
    classes: list[str]
    mean: Tensor  # (C,), of pixels in 0..1
    deviation: Tensor  # (C,)

    @property
    def channels(self) -> int:
        return self.train.images.shape[1]


def digits(root: str | None = None) -> Dataset:
    """scikit-learn's 1,797 digits of 8x8 pixels; every fifth image is for validation."""
    from sklearn.datasets import load_digits  # here, for it takes long to import

    bunch = load_digits()
    images = torch.from_numpy((bunch.images / 16 * 255).round().astype(np.uint8))[:, None]
    labels = torch.from_numpy(bunch.target).long()
    held_out = torch.arange(len(labels)) % 5 == 0
    train = Split(images[~held_out], labels[~held_out])
    pixels = train.images.double() / 255
    return Dataset(
        train=train,
        validation=Split(images[held_out], labels[held_out]),
        classes=[str(name) for name in bunch.target_names],
        mean=pixels.mean((0, 2, 3)).float(),
        deviation=pixels.std((0, 2, 3)).float(),
    )


DATASETS: dict[str, Callable[[str | None], Dataset]] = {"digits": digits}


def load_dataset(name: str, root: str | None = None) -> Dataset:
    if name not in DATASETS:
        raise ValueError(f"unknown dataset {name!r}; choose from {', '.join(DATASETS)}")
    return DATASETS[name](root)
