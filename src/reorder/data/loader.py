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

    def __init__(
        self,
        dataset: Dataset,
        size: tuple[int, int],
        batch_size: int,
        augment: str,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        if batch_size > len(dataset.train.labels):
            raise ValueError(
                f"train.batch_size={batch_size} is more than the {len(dataset.train.labels)} training images"
            )
        self.train = _prepare(dataset, dataset.train, size)
        self.validation = _prepare(dataset, dataset.validation, size)
        self.batch_size, self.augment, self.seed = batch_size, augment, seed
        self.rank, self.world_size = rank, world_size

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in an epoch; the images of an incomplete last one wait for another epoch."""
        return len(self.train.labels) // self.batch_size

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Training images (B, C, H, W) and labels (B,), shuffled and flipped anew each epoch."""
        random = np.random.default_rng([self.seed, epoch])
        count = len(self.train.labels)
        shuffled = torch.from_numpy(random.permutation(count))
        flipped = torch.from_numpy(random.random(count) < 0.5)  # by index, not by place in the epoch
        for batch in range(first_step, self.steps_per_epoch):
            index = shuffled[batch * self.batch_size : (batch + 1) * self.batch_size]
            index = index[self.rank :: self.world_size]
            images = self.train.images[index]
            if self.augment == "flip":
                images = torch.where(flipped[index, None, None, None], images.flip(-1), images)
            yield images, self.train.labels[index]

    def validate(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Indices (B,), images (B, C, H, W) and labels (B,) of this rank's share of the validation images."""
        share = torch.arange(self.rank, len(self.validation.labels), self.world_size)
        for index in share.split(self.batch_size):
            yield index, self.validation.images[index], self.validation.labels[index]


def _prepare(dataset: Dataset, split: Split, size: tuple[int, int]) -> Split:
    """A split with its images resized and normalised once, as float32."""
    images = split.images.float() / 255
    if tuple(images.shape[2:]) != size:
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
    mean, deviation = (value[:, None, None] for value in (dataset.mean, dataset.deviation))
    return Split((images - mean) / deviation, split.labels)
