"""Tokenizers in images per second: k-means, against scikit-learn's predict, and the VQ-VAE."""

import time
import timeit
from collections.abc import Callable

import numpy as np
import torch
from rich.table import Table
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from reorder.config import Data
from reorder.data.datasets import Memory
from reorder.data.loader import Images
from reorder.data.progress import Display
from reorder.models.patches import patchify
from reorder.prior.kmeans import KMeans
from reorder.prior.vqvae import VQVAE, train

QUIET = Display(quiet=True)


def made_up(count: int, channels: int, side: int, different: int = 2000) -> Images:
    """Smooth blobs with fine noise, in memory; beyond so many different images they come again."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.empty(different, channels, side, side, dtype=torch.uint8)
    for part in pixels.split(250):
        coarse = torch.rand(len(part), channels, 9, 9, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
        noise = torch.rand(len(part), 1, side, side, generator=generator)
        part.copy_(smooth.mul(235).add(noise.mul(20)))
    split = Memory(pixels, torch.zeros(different, dtype=torch.long), (side, side))
    return Images(split, torch.arange(count) % different, Data())


def timed(function: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the shortest of several runs."""
    return min(timeit.repeat(function, number=1, repeat=repeats))


def predict(centres: Tensor, patch_size: int, images: Tensor) -> np.ndarray:
    """scikit-learn's codes, of the same centres."""
    peer = MiniBatchKMeans(len(centres), n_init=1)
    peer.cluster_centers_, peer._n_threads = centres.numpy(), torch.get_num_threads()
    peer.n_features_in_ = centres.shape[1]
    return peer.predict(patchify(images, patch_size).flatten(0, 1).float().numpy())


def kmeans_rows(images: Images, patch_size: int, codes: int | None) -> list[tuple[str, str, str, str]]:
    began = time.perf_counter()
    kmeans = KMeans.fit(images, patch_size, codes, 0, QUIET)
    seconds = time.perf_counter() - began
    batch = next(images.batches(256))
    ours = timed(lambda: kmeans.encode(batch))
    peer = timed(lambda: predict(kmeans.centres, patch_size, batch))
    same = kmeans.encode(batch).flatten().numpy() == predict(kmeans.centres, patch_size, batch)
    fit = f"k-means, fit of {kmeans.codebook_size} codes to {len(images):,} images"
    encode = f"k-means, encode; peer: scikit-learn's predict; {same.mean():.4%} equal"
    rates = [f"{len(batch) / one:.0f} images/s" for one in (ours, peer)]
    return [
        (fit, f"{seconds:.1f} s, {len(images) / seconds:.0f} images/s", "", ""),
        (encode, rates[0], rates[1], f"{peer / ours:.1f}x"),
    ]


def vqvae_rows(images: Images, patch_size: int, steps: int) -> list[tuple[str, str, str, str]]:
    batch = next(images.batches(256))
    torch.manual_seed(0)
    model = VQVAE(batch.shape[1], patch_size, 512, {})
    train(model, batch, 2, 0, QUIET)  # warms up
    training = timed(lambda: train(model, batch, steps, 0, QUIET), repeats=1) / steps
    encoding = timed(lambda: model.encode(batch))
    return [
        ("VQ-VAE, a step of training", f"{1000 * training:.0f} ms", "", ""),
        ("VQ-VAE, encode", f"{len(batch) / encoding:.0f} images/s", "", ""),
    ]


def table(tiny: bool = False) -> Table:
    table = Table("what", "ours", "peer", "ratio", title="Tokenizers")
    for channels, side, patch_size in ((3, 32, 16), (1, 8, 4)) if tiny else ((3, 224, 16), (1, 28, 4)):
        images = made_up(40, channels, side, different=40) if tiny else made_up(10_000, channels, side)
        table.add_row(f"images of {side}x{side}x{channels}, patches of {patch_size}x{patch_size}:")
        rows = kmeans_rows(images, patch_size, 8 if tiny else None)
        for row in rows + vqvae_rows(images, patch_size, steps=2 if tiny else 20):
            table.add_row(*row)
    return table
