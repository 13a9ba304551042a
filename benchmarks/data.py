"""Decoding against a plain loop, and the loader's share of a training step, in one process."""

import gzip
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from rich.table import Table
from torch import Tensor

import reorder
from reorder.config import Data
from reorder.data.datasets import Kept, load_dataset
from reorder.data.loader import Loader
from reorder.data.ranks import cores
from reorder.data.transform import Transform


def write_photographs(directory: Path, side: int, count: int) -> list[Path]:
    """JPEGs with smooth blobs and fine noise."""
    files = []
    for number in range(count):
        random = np.random.default_rng(number)
        blobs = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
        pixels = np.asarray(blobs.resize((side, side), Image.Resampling.BICUBIC)).astype(np.int16)
        pixels = pixels + random.integers(-12, 13, (side, side, 1), np.int16)
        files.append(directory / f"{side}-{number}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


def plain(file: Path) -> Tensor:
    """Open, convert, resize, crop."""
    image = Image.open(file).convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image.crop((16, 16, 240, 240)))).permute(2, 0, 1).contiguous()


def rates(files: list[Path], functions: list[Callable[[Path], Tensor]], repeats: int = 3) -> list[float]:
    """Images per second of each function, the best of several alternating runs."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for place, function in enumerate(functions):
            began = time.perf_counter()
            for file in files:
                function(file)
            best[place] = min(best[place], time.perf_counter() - began)
    return [len(files) / seconds for seconds in best]


def write_idx(directory: Path) -> None:
    """A dataset of MNIST's sizes, a sixth as many images."""
    random = np.random.default_rng(0)
    for split, count in (("train", 10_000), ("t10k", 1_000)):
        arrays = random.integers(0, 256, (count, 28, 28), np.uint8), np.arange(count).astype(np.uint8) % 10
        for array, what in zip(arrays, ("images-idx3", "labels-idx1"), strict=True):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (directory / f"{split}-{what}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes(), 1))


def step_and_load(settings: Data, side: int, patch_size: int, steps: int = 20) -> tuple[float, float]:
    """Median seconds of a mini model's training step and of getting its batch of 64."""
    loader = Loader(load_dataset(settings, (side, side)), settings, 64, seed=0)
    model = reorder.create_model("transformer_xl", "mini", side, patch_size, channels=1, classes=10)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = loader.epoch(0)
    next(batches)  # shuffles the epoch
    load, step = [], []
    for _ in range(steps):
        began = time.perf_counter()
        images, labels = next(batches)
        loaded = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        load.append(loaded - began)
        step.append(time.perf_counter() - loaded)
    return float(np.median(step)), float(np.median(load))


def write_folder(root: Path, train: int = 75, validation: int = 25) -> None:
    """Photographs of 256x256 pixels in two classes."""
    for split, count in (("train", train), ("val", validation)):
        for number, name in enumerate(("a", "b")):
            (root / split / name).mkdir(parents=True)
            write_photographs(root / split / name, 256, count // 2 + number * (count % 2))


def epoch_seconds(root: Path, kept: bool, workers: int | None, epochs: int) -> float:
    """Median seconds of reading all images of a folder for training and validation, after a first time."""
    settings = Data(name="image_folder", root=str(root), workers=workers)
    largest, Kept.largest = Kept.largest, Kept.largest if kept else 0
    loader = Loader(load_dataset(settings, (224, 224)), settings, 4, seed=0)
    Kept.largest = largest
    seconds = []
    for epoch in range(epochs + 1):
        began = time.perf_counter()
        for _ in loader.epoch(epoch):
            pass
        for _ in loader.validate():
            pass
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[1:]))


def table(tiny: bool = False) -> Table:
    table = Table("what", "ours", "peer", "ratio", title="Data")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for side, count in ((300, 2),) if tiny else ((500, 24), (1000, 12), (2000, 8)):
            files = write_photographs(directory, side, count)
            ours, peer = rates(files, [Transform((224, 224)), plain])
            differences = [(Transform((224, 224))(file).int() - plain(file).int()).abs() for file in files]
            mean = torch.stack(differences).float().mean()
            most = max(int(difference.max()) for difference in differences)
            what = (
                f"JPEGs of {side}x{side}; peer: a plain loop; differing by {mean:.2f} of 255, at most {most}"
            )
            table.add_row(what, f"{ours:.0f} images/s", f"{peer:.0f} images/s", f"{ours / peer:.1f}x")
        write_idx(directory)
        for settings, side, patch_size in (
            (Data(name="digits", augment="none"), 8, 2),
            (Data(name="idx", root=name), 28, 4),
        ):
            step, load = step_and_load(settings, side, patch_size, steps=2 if tiny else 20)
            what = f"a batch of 64 of {settings.name}; peer: a step of the mini Transformer-XL"
            table.add_row(what, f"{1000 * load:.2f} ms", f"{1000 * step:.2f} ms", f"{load / step:.1%} of it")
        write_folder(directory / "folder", *((4, 2) if tiny else ()))
        epochs = 1 if tiny else 5
        ours = epoch_seconds(directory / "folder", True, None, epochs)
        for workers, what in (
            (min(8, cores()), "workers started in every epoch"),
            (0, "decoded in every epoch"),
        ):
            peer = epoch_seconds(directory / "folder", False, workers, epochs)
            table.add_row(
                f"an epoch of 100 photographs, kept decoded; peer: {what}",
                f"{1000 * ours:.0f} ms",
                f"{1000 * peer:.0f} ms",
                f"{peer / ours:.1f}x",
            )
    return table
