"""The six scans of a grid: fixed orders in which its patches can be read (the paper's appendix).

Every scan starts at the top-left patch and works on any rectangle. `order[slot] = row * columns + column`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # torch is slow to import, and commands that only name scans do without it
    from torch import Tensor

MOST_PATCHES = 2**22  # 2,048 x 2,048; the paper's largest images, of 5,888 pixels, have 368 x 368


def _as_order(patches: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(patches, dtype=np.int64))


def _cells(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every patch, in raster order."""
    return np.divmod(np.arange(rows * columns), columns)


def _sorted_by(*keys: np.ndarray) -> Tensor:
    """The order that sorts patches by the first key, then the second, and so on."""
    return _as_order(np.lexsort(keys[::-1]))


def row(rows: int, columns: int) -> Tensor:
    """Row by row from the top, each from left to right."""
    return _as_order(np.arange(rows * columns))


def column(rows: int, columns: int) -> Tensor:
    """Column by column from the left, each from top to bottom."""
    return _as_order(np.arange(rows * columns).reshape(rows, columns).T.reshape(-1))


def diagonal(rows: int, columns: int) -> Tensor:
    """Anti-diagonals r + c = 0, 1, ..., each by increasing row."""
    r, c = _cells(rows, columns)
    return _sorted_by(r + c, r)


def snake(rows: int, columns: int) -> Tensor:
    """Anti-diagonals as in `diagonal`, by increasing column when r + c is even, else by decreasing column."""
    r, c = _cells(rows, columns)
    s = r + c
    return _sorted_by(s, np.where(s % 2 == 0, c, -c))


def spiral(rows: int, columns: int) -> Tensor:
    """Clockwise around the border from the top left, then around ever smaller rectangles inside."""
    r, c = _cells(rows, columns)
    ring = np.minimum.reduce([r, c, rows - 1 - r, columns - 1 - c])
    down, right = r - ring, c - ring  # the place within the ring, which is height x width
    height, width = rows - 2 * ring, columns - 2 * ring
    along = np.select(
        [down == 0, right == width - 1, down == height - 1],
        [right, width - 1 + down, (width - 1) + (height - 1) + (width - 1 - right)],
        default=2 * (width - 1) + (height - 1) + (height - 1 - down),
    )
    return _sorted_by(ring, along)


def hilbert(rows: int, columns: int) -> Tensor:
    """The Hilbert curve generalised to rectangles.

    A rectangle is walked along its major axis `a` while its minor axis `b` is filled. Long rectangles are
    cut in two along `a`; others become three: up along `b`, across, and down again. All rectangles of one
    generation are cut at once. Cuts fall on even lengths where they can, which keeps successive patches
    adjacent on every grid with even sides.
    """
    a, b = ((columns, 0), (0, rows)) if columns >= rows else ((0, rows), (columns, 0))
    boxes = np.array([[0, 0, *a, *b]])  # x, y, a_x, a_y, b_x, b_y
    while True:
        lines = (_length(boxes[:, 2:4]) == 1) | (_length(boxes[:, 4:6]) == 1)
        if lines.all():
            break
        boxes = _cut(boxes, lines)
    return _walk(boxes, columns)


def _length(vectors: np.ndarray) -> np.ndarray:
    """Lengths (n,) of axis-parallel vectors (n, 2)."""
    return np.abs(vectors.sum(1))


def _half(vectors: np.ndarray) -> np.ndarray:
    """Half of each vector, one longer where that makes its length even and leaves a rest."""
    half = np.sign(vectors) * (np.abs(vectors) // 2)
    grow = (_length(half) % 2 == 1) & (_length(vectors) > 2)
    return half + np.sign(vectors) * grow[:, None]


def _cut(boxes: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Boxes (n, 6) cut into their parts, in the order in which the curve passes them; lines stay whole."""
    origin, a, b = boxes[:, 0:2], boxes[:, 2:4], boxes[:, 4:6]
    long = 2 * _length(a) > 3 * _length(b)
    a_half, b_half = _half(a), _half(b)
    step_a, step_b = np.sign(a), np.sign(b)
    parts = np.zeros((len(boxes), 3, 6), dtype=boxes.dtype)
    parts[:, 0] = np.where(long[:, None], np.hstack([origin, a_half, b]), np.hstack([origin, b_half, a_half]))
    parts[:, 1] = np.where(
        long[:, None],
        np.hstack([origin + a_half, a - a_half, b]),
        np.hstack([origin + b_half, a, b - b_half]),
    )
    parts[:, 2] = np.hstack([origin + (a - step_a) + (b_half - step_b), -b_half, -(a - a_half)])
    parts[lines, 0] = boxes[lines]
    present = np.stack([np.ones(len(boxes), bool), ~lines, ~lines & ~long], axis=1)
    return parts[present]


def _walk(lines: np.ndarray, columns: int) -> Tensor:
    """The patches on lines (n, 6), one cell wide, one line after the other."""
    a, b = lines[:, 2:4], lines[:, 4:6]
    direction = np.where((_length(b) == 1)[:, None], np.sign(a), np.sign(b))
    count = np.maximum(_length(a), _length(b))
    step = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    cells = np.repeat(lines[:, 0:2], count, axis=0) + step[:, None] * np.repeat(direction, count, axis=0)
    return _as_order(cells[:, 1] * columns + cells[:, 0])


def release_diagonal(rows: int, columns: int) -> Tensor:
    """The authors' release's diagonals: c - r from the bottom-left patch on, each by increasing column."""
    r, c = _cells(rows, columns)
    return _sorted_by(c - r, c)


def release_hilbert(rows: int, columns: int) -> Tensor:
    """The authors' release's Hilbert curve: that of a square of a power of two, without what is outside.

    For 14x14 patches it is a curve of 16x16, which leaves the grid and comes back; it begins to the right.
    """
    side = 1 << (max(rows, columns) - 1).bit_length()
    c, r = np.divmod(hilbert(side, side).numpy(), side)  # ours begins downwards
    inside = (r < rows) & (c < columns)
    return _as_order((r * columns + c)[inside])


RELEASED: dict[str, Callable[[int, int], Tensor]] = {
    "release-diagonal": release_diagonal,
    "release-hilbert": release_hilbert,
}  # of the authors' release, where it differs from the paper; its other four scans are the paper's
SCANS: dict[str, Callable[[int, int], Tensor]] = {
    "row": row,
    "column": column,
    "hilbert": hilbert,
    "spiral": spiral,
    "diagonal": diagonal,
    "snake": snake,
}
"""The six scans by name, each a function of (rows, columns) that returns an order (rows * columns,).

    >>> list(reorder.SCANS)
    ['row', 'column', 'hilbert', 'spiral', 'diagonal', 'snake']
    >>> reorder.SCANS["spiral"](2, 3).tolist()
    [0, 1, 2, 5, 4, 3]
"""


def check_grid(grid: tuple[int, int]) -> tuple[int, int]:
    """The grid itself, if it is (rows, columns) and has from 1 to MOST_PATCHES patches."""
    if not isinstance(grid, Sequence) or len(grid) != 2 or not all(isinstance(n, Integral) for n in grid):
        raise ValueError(f"a grid is (rows, columns), two integers, got {grid!r}")
    rows, columns = map(int, grid)
    if rows < 1 or columns < 1:
        raise ValueError(f"a grid needs at least one row and one column, got {rows} x {columns}")
    if rows * columns > MOST_PATCHES:
        raise ValueError(f"a grid has at most {MOST_PATCHES:,} patches, got {rows} x {columns}")
    return rows, columns


def scan(name: str, rows: int, columns: int) -> Tensor:
    """The named scan of a rows x columns grid, an order (rows * columns,): `order[slot] = patch`.

    >>> reorder.scan("column", rows=2, columns=3)
    tensor([0, 3, 1, 4, 2, 5])
    """
    if name not in SCANS:
        raise ValueError(f"unknown scan {name!r}; choose from {', '.join(SCANS)}")
    return SCANS[name](*check_grid((rows, columns)))
