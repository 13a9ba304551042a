"""Batches whose content depends only on (seed, epoch, index)."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reorder.data.datasets import Dataset, Split

# n images in a split, B in a batch


class Loader:
    """Normalised images of one size, in shuffled batches for training or in sequence for validation."""

    def __init__(self, dataset: Dataset, size: tuple[int, int], batch_size: int, augment: str, seed: int):
        if batch_size > len(dataset.train.labels):
            raise ValueError(
                f"train.batch_size={batch_size} is more than the {len(dataset.train.labels)} training images"
            )
        self.train = _prepare(dataset, dataset.train, size)
        self.validation = _prepare(dataset, dataset.validation, size)
        self.batch_size, self.augment, self.seed = batch_size, augment, seed

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in an epoch; the images of an incomplete last one wait for another epoch."""
        return len(self.train.labels) // self.batch_size

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Training images (B, C, H, W) and labels (B,), shuffled and flipped anew each epoch."""
        random = np.random.default_rng([self.seed, epoch])
        count = len(self.train.labels)
        shuffled = torch.from_numpy(random.permutation(count))
        flipped = torch.from_numpy(random.random(count) < 0.5)  # by index, not by place in the epoch
        for batch in range(self.steps_per_epoch):
            index = shuffled[batch * self.batch_size : (batch + 1) * self.batch_size]
            images = self.train.images[index]
            if self.augment == "flip":
                images = torch.where(flipped[index, None, None, None], images.flip(-1), images)
            yield images, self.train.labels[index]

    def validate(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Validation images (B, C, H, W) and labels (B,), each once, in their own order."""
        batches = (part.split(self.batch_size) for part in self.validation)
        yield from zip(*batches, strict=True)


def _prepare(dataset: Dataset, split: Split, size: tuple[int, int]) -> Split:
    """A split with its images resized and normalised once, as float32."""
    images = split.images.float() / 255
    if tuple(images.shape[2:]) != size:
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
    mean, deviation = (value[:, None, None] for value in (dataset.mean, dataset.deviation))
    return Split((images - mean) / deviation, split.labels)
