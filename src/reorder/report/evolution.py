"""How a policy moved: the slot of every patch through a run, the distance from the start, central patches."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from reorder.orders.distances import footrule, kendall_tau, largest_footrule

# N patches, M moments of a run; row 0 is before training


class Evolution(NamedTuple):
    """The mode of a policy through a run."""

    grid: tuple[int, int]
    epochs: np.ndarray  # (M,): trained so far
    logits: np.ndarray  # (M, N)
    slot_of: np.ndarray  # (M, N)
    tau: np.ndarray  # (M,): Kendall's, from the initial order; 1 is the same order, -1 its reverse
    footrule: np.ndarray  # (M,): Spearman's, from the initial order; 0 is the same order

    @property
    def footrule_share(self) -> np.ndarray:
        """The footrule (M,) as a share of the largest that N patches can have."""
        return self.footrule / max(1, largest_footrule(self.slot_of.shape[1]))


def evolution(
    epochs: np.ndarray, logits: np.ndarray, initial: np.ndarray, grid: tuple[int, int]
) -> Evolution:
    """The evolution of logits (M, N) that started from an initial order (N,)."""
    modes = np.argsort(-logits, axis=1, kind="stable")
    start = torch.from_numpy(initial)
    return Evolution(
        grid,
        epochs,
        logits,
        np.argsort(modes, axis=1),
        np.array([kendall_tau(torch.from_numpy(mode), start) for mode in modes]),
        np.array([footrule(mode, initial) for mode in modes]),
    )


def tracked_patches(
    initial: np.ndarray, grid: tuple[int, int], cells: Sequence[tuple[int, int]]
) -> list[int]:
    """The patches at those of the cells (row, column), counted from 1, that the grid has.

    Fewer than two are filled up with the central one, the first that is read, and the last.
    """
    rows, columns = grid
    central = rows // 2 * columns + columns // 2
    here = [(row, column) for row, column in cells if _inside(row, column, grid)]
    chosen = list(dict.fromkeys((row - 1) * columns + column - 1 for row, column in here))
    filled = dict.fromkeys([*chosen, central, int(initial[0]), int(initial[-1])])
    return list(filled)[: max(2, len(chosen))]


def _inside(row: int, column: int, grid: tuple[int, int]) -> bool:
    return 1 <= row <= grid[0] and 1 <= column <= grid[1]


def check_cells(cells: Sequence[tuple[int, int]], grids: Sequence[tuple[int, int]]) -> list[str]:
    """Notes on the cells that some of the grids do not have; one that none has is refused."""
    notes = []
    for row, column in cells:
        without = [f"{grid[0]}x{grid[1]}" for grid in grids if not _inside(row, column, grid)]
        if len(without) == len(grids):
            raise ValueError(
                f"--track {row},{column} is outside every grid ({', '.join(without)}); rows and columns "
                "are counted from 1"
            )
        if without:
            notes.append(
                f"--track {row},{column} is outside {', '.join(without)} patches and not followed there."
            )
    return notes


def cell_name(patch: int, grid: tuple[int, int]) -> str:
    row, column = divmod(patch, grid[1])
    return f"row {row + 1}, column {column + 1}"


def central(grid: tuple[int, int], radius: float | None = None) -> np.ndarray:
    """Which patches (N,) have their middle within a radius, in patches, of the middle of the grid.

    The paper does not say what its central region is. By default ours is the circle that fits into the middle
    half of the grid's height and width, so the radius is a quarter of the shorter side; it always reaches as
    far as the nearest patch.
    """
    if radius is not None and not radius > 0:
        raise ValueError(f"--radius must be above 0 patches, got {radius}")
    rows, columns = grid
    y, x = np.divmod(np.arange(rows * columns), columns)
    distance = np.hypot(y - (rows - 1) / 2, x - (columns - 1) / 2)
    return distance <= max(min(rows, columns) / 4 if radius is None else radius, distance.min())


def centre_shift(
    initial: np.ndarray, found: np.ndarray, grid: tuple[int, int], radius: float | None = None
) -> float:
    """By how many slots central patches moved from an initial order (N,), on average.

    As in the paper, positive is towards the front: they are read earlier than at the start.
    """
    # From where the run started; the paper's shifts are "relative to their initial raster order".
    earlier = np.argsort(initial) - np.argsort(found)
    return float(earlier[central(grid, radius)].mean())
