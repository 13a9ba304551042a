"""Orders as plain lists of patches, as other programs write them: .npy, .csv and .txt."""

import math
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reorder.orders.order import validate
from reorder.orders.scans import MOST_PATCHES, check_grid

# N patches

LISTS = (".npy", ".csv", ".txt")
MOST_BYTES = 8 * MOST_PATCHES + 1024  # of the longest order: as int64 with a header, or as text


def read_list(path: Path, grid: tuple[int, int] | None = None) -> tuple[Tensor, tuple[int, int]]:
    """The order (N,) in a list of patches, and its grid; without one it must be a square."""
    numbers = _read_array(path) if path.suffix.lower() == ".npy" else _read_text(path)
    side = math.isqrt(len(numbers))
    if grid is None and side * side != len(numbers):
        raise ValueError(f"{path} has {len(numbers)} patches, which is no square; say --grid ROWSxCOLUMNS")
    rows, columns = check_grid((side, side) if grid is None else grid)
    try:
        return validate(torch.from_numpy(numbers), rows * columns), (rows, columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_array(path: Path) -> np.ndarray:
    """The integers (N,) in a file of numpy's."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or 'not an array of numpy'}") from None
    except (ValueError, EOFError):
        raise ValueError(f"cannot read {path}: not an array of numpy") from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "several arrays"
        raise ValueError(f"{path} must hold integers of shape (N,), one patch per slot, found {found}")
    if len(array) > MOST_PATCHES:
        raise ValueError(f"{path} has {len(array)} patches; a grid has at most {MOST_PATCHES:,}")
    return array.astype(np.int64)


def _read_text(path: Path) -> np.ndarray:
    """The integers (N,) in a text, with commas, semicolons, blanks or line ends between them."""
    try:
        with open(path, "rb") as file:
            words = re.split(r"[\s,;]+", file.read(MOST_BYTES).decode().strip(" \t\r\n,;"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read {path}: it is not text") from None
    for word in words:
        if not re.fullmatch(r"-?[0-9]{1,9}", word):
            raise ValueError(f"{path} must hold the numbers of patches, found {word[:40]!r}")
    return np.array([int(word) for word in words])
