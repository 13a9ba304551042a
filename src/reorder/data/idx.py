"""IDX, the format of MNIST and its family: big-endian sizes, then one byte a pixel or label."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reorder.config import FASHION_MNIST

TRAIN = ("train",)
VALIDATION = ("t10k", "test")  # MNIST's word and EMNIST's


def find(root: str | None) -> Path:
    """The directory to read: `data.root`, or Debian's Fashion-MNIST where that is installed."""
    if root is None:
        if not FASHION_MNIST.is_dir():
            raise ValueError("data.name=idx needs data.root=, the directory of the IDX files")
        return FASHION_MNIST
    if not Path(root).is_dir():
        raise ValueError(f"data.root={root} is not a directory")
    return Path(root)


def read_split(directory: Path, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Images (n, 1, h, w) and labels (n,) of the files whose names begin or end as MNIST's do."""
    images_file = _file(directory, names, "images", 3)
    labels_file = _file(directory, names, "labels", 1)
    images, labels = read(images_file, 3), read(labels_file, 1).long()
    if len(images) != len(labels):
        raise ValueError(f"{images_file} has {len(images)} images, but {labels_file} {len(labels)} labels")
    if len(images) == 0:
        raise ValueError(f"{images_file} has no images")
    return images[:, None], labels


def _file(directory: Path, names: tuple[str, ...], what: str, dimensions: int) -> Path:
    """The one file such as train-images-idx3-ubyte, train-images.idx3-ubyte or either with .gz."""
    pattern = f"{what}[-.]idx{dimensions}-ubyte"
    found = {
        path.with_suffix("") if path.suffix == ".gz" else path: path
        for name in names
        for end in (".gz", "")  # the raw file, if both are there
        for path in sorted(directory.rglob(f"*{name}-{pattern}{end}"))
    }
    if not found:
        wanted = " or ".join(f"{name}-{what}-idx{dimensions}-ubyte[.gz]" for name in names)
        raise ValueError(f"{directory} has no {wanted}")
    if len(found) > 1:
        files = ", ".join(str(path.relative_to(directory)) for path in found.values())
        raise ValueError(f"{directory} has more than one dataset: {files}; set data.root to one of them")
    return next(iter(found.values()))


def read(file: Path, dimensions: int) -> Tensor:
    """The uint8 tensor in an IDX file of so many dimensions."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is not a whole gzip file: {error}") from None
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"{file} is not an IDX file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise ValueError(f"{file} has {len(content) - header} bytes of data, not the {shape} it announces")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy())
