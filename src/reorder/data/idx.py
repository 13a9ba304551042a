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
MAX_UNPACKED = 2**30  # bytes of a compressed file; the largest of the family, EMNIST, has 547 million


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
    packed = file.suffix == ".gz"
    try:
        with gzip.open(file) if packed else open(file, "rb") as stream:
            shape = _shape(stream.read(4 + 4 * dimensions), file, dimensions)
            announced = math.prod(shape)
            if packed and announced > MAX_UNPACKED:
                raise ValueError(
                    f"{file} announces {announced} bytes, more than the limit of {MAX_UNPACKED} for "
                    "compressed files; unpack it to use it"
                )
            # Of a raw file no more can come than it has, whatever it announces.
            most = announced if packed else min(announced, file.stat().st_size)
            content = bytearray(stream.read(most + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is not a whole gzip file: {error}") from None
    if len(content) != announced:
        found = f"more than {announced}" if len(content) > announced else f"{len(content)}"
        raise ValueError(f"{file} has {found} bytes of data, not the {shape} it announces")
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(shape))


def _shape(header: bytes, file: Path, dimensions: int) -> tuple[int, ...]:
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"{file} is not an IDX file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    if 0 in shape[1:]:
        raise ValueError(f"{file} announces images of {shape[1]}x{shape[2]} pixels; they must have some")
    return shape
