"""What inputs are made from: small finished runs, and small datasets in the formats that are read.

runs/learned, runs/other   a learned order, two seeds; the first has evaluations as well
runs/fixed                 a fixed order
runs/prior                 an order that a prior chose
prior, cache               what `reorder prior` wrote and kept
pictures                   train/ and val/ of two classes, PNG
idx                        the four files of the MNIST family
"""

import importlib
import io
import struct
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from fuzz.case import command
from reorder.config import Data, build
from reorder.data.datasets import load_dataset
from reorder.experiments.presets import preset

SMALL = [
    "model.name=vit",
    "model.patch_size=4",
    "data.train_images=64",
    "data.validation_images=16",
    "train.epochs=2",
    "train.batch_size=32",
    "train.warmup_epochs=0.5",
    "train.compare=false",
]
TRAIN = ["train", "digits", *SMALL, "--no-report", "--quiet"]
PIXELS = 16  # a side of the pictures


def make(folder: Path) -> None:
    """Write all of the above, by the program itself where it can."""
    folder.mkdir()
    with redirect_stdout(io.StringIO()):
        _make_runs(folder, folder / "runs")
    write_pictures(folder / "pictures")
    write_idx(folder / "idx")
    (folder / "modules.txt").write_text("\n".join(sys.modules))


def _make_runs(folder: Path, runs: Path) -> None:
    command(*TRAIN, "--out", runs / "learned")
    command(*TRAIN, "train.seed=1", "--out", runs / "other")
    command(*TRAIN, "order.policy=none", "--out", runs / "fixed")
    command("evaluate", runs / "learned", "--sensitivity")
    command("prior", "digits", *SMALL, "--out", folder / "prior", "--cache", folder / "cache")
    command(*TRAIN, "order.scan=prior", "order.policy=none", "--out", runs / "prior")
    command("report", runs, "--out", folder / "report")


def warm_up(folder: Path) -> None:
    """Import here what the work above had to import, so that no process has to import it again."""
    for name in (folder / "modules.txt").read_text().split():
        with suppress(Exception):
            importlib.import_module(name)
    Image.init()
    build(preset("digits"))
    load_dataset(Data(train_images=64), (8, 8))
    Figure().subplots(2, 2)


def write_pictures(root: Path) -> None:
    draw = np.random.default_rng(0)
    for split, count in (("train", 3), ("val", 2)):
        for number, name in enumerate(("dark", "light")):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                pixels = draw.integers(120 * number, 120 * number + 136, (PIXELS, PIXELS, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{index}.png")


def idx_bytes(array: np.ndarray) -> bytes:
    """An array of bytes as an IDX file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(root: Path) -> None:
    root.mkdir()
    draw = np.random.default_rng(0)
    for split, count in (("train", 12), ("t10k", 6)):
        pixels = draw.integers(0, 256, (count, 5, 5), dtype=np.uint8)
        (root / f"{split}-images-idx3-ubyte").write_bytes(idx_bytes(pixels))
        (root / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes((np.arange(count) % 3).astype(np.uint8)))
