"""IDX, the format of MNIST and its family: big-endian sizes, then one byte a pixel or label."""

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
    # Before anything is unpacked, because a small file can become a huge one.
    images, labels = _announced(images_file, 3)[0], _announced(labels_file, 1)[0]
    if images != labels:
        raise ValueError(f"{images_file} has {images} images, but {labels_file} {labels} labels")
    if images == 0:
        raise ValueError(f"{images_file} has no images")
    return read(images_file, 3)[:, None], read(labels_file, 1).long()


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
    shape = _announced(file, dimensions)
    announced = math.prod(shape)
    with _opened(file) as stream:
        stream.seek(4 + 4 * dimensions)
        # Of a raw file no more can come than it has, whatever it announces.
        most = announced if file.suffix == ".gz" else min(announced, file.stat().st_size)
        content = bytearray(stream.read(most + 1))
    if len(content) != announced:
        found = f"more than {announced}" if len(content) > announced else f"{len(content)}"
        raise ValueError(f"{file} has {found} bytes of data, not the {shape} it announces")
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(shape))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """The content of a raw or compressed file."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as stream:
            yield stream  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is not a whole gzip file: {error}") from None


def _announced(file: Path, dimensions: int) -> tuple[int, ...]:
    """The shape that the header of a file announces, within the limit for compressed files."""
    with _opened(file) as stream:
        shape = _shape(stream.read(4 + 4 * dimensions), file, dimensions)
    if file.suffix == ".gz" and math.prod(shape) > MAX_UNPACKED:
        raise ValueError(
            f"{file} announces {math.prod(shape)} bytes, more than the limit of {MAX_UNPACKED} for "
            "compressed files; unpack it to use it"
        )
    return shape


def _shape(header: bytes, file: Path, dimensions: int) -> tuple[int, ...]:
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"{file} is not an IDX file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    if 0 in shape[1:]:
        raise ValueError(f"{file} announces images of {shape[1]}x{shape[2]} pixels; they must have some")
    return shape
