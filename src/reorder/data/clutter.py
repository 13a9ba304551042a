"""Clutter: a digit among pieces of other digits, a problem on which one can see an order matter.

A canvas of cells, of 4x4 pixels unless told otherwise. One of scikit-learn's digits, enlarged to 3x3 cells,
stands at one place or anywhere; every other cell is a piece of another digit, drawn without regard to the
class. A model that remembers few slots has to read the digit last: row-major, it ends in the bottom rows,
where at the usual place there is nothing to see, so that it cannot be better than chance.
"""

import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# n digits, C = 1 channel, H x W pixels

SIDE = 3  # cells of a digit
PLACE = (1, 1)  # row and column of its first cell, unless it is anywhere
TRAIN, VALIDATION = 8000, 2000  # images


class Clutter:
    """Images made when they are read, each a function of its index alone."""

    def __init__(
        self,
        digits: Tensor,
        labels: Tensor,
        count: int,
        shape: tuple[int, int],
        anywhere: bool,
        cell: int = 4,
    ):
        """From digits, uint8 (n, 1, 8, 8), and their labels (n,), with cells of so many pixels a side."""
        rows, columns = (side // cell for side in shape)
        if any(side % cell for side in shape) or min(rows, columns) < SIDE + max(PLACE):
            least = cell * (SIDE + max(PLACE))
            raise ValueError(
                f"clutter is made of cells of {cell}x{cell} pixels: the sides of model.image_size must be "
                f"multiples of {cell} from {least} up, got {shape[0]}x{shape[1]}"
            )
        self.shape, self.grid, self.anywhere = shape, (rows, columns), anywhere
        self.cells = in_cells(digits, cell)  # (n, SIDE * SIDE, cell, cell)
        self.chosen = torch.from_numpy(np.random.default_rng(0).integers(len(labels), size=count))
        self.labels = labels[self.chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> Tensor:
        """One image, uint8 (1, H, W)."""
        (rows, columns), random = self.grid, np.random.default_rng([1, index])
        pieces, cell = self.cells.flatten(0, 1), self.cells.shape[-1]
        canvas = pieces[torch.from_numpy(random.integers(len(pieces), size=rows * columns))]
        canvas = canvas.view(rows, columns, cell, cell)
        top, left = self.place(random)
        digit = self.cells[self.chosen[index]].view(SIDE, SIDE, cell, cell)
        canvas[top : top + SIDE, left : left + SIDE] = digit
        return canvas.transpose(1, 2).reshape(1, *self.shape)

    def place(self, random: np.random.Generator) -> tuple[int, int]:
        """Row and column of the digit's first cell."""
        if not self.anywhere:
            return PLACE
        return int(random.integers(self.grid[0] - SIDE + 1)), int(random.integers(self.grid[1] - SIDE + 1))

    def name(self, index: int) -> str:
        return f"image {index}"

    def fingerprint(self) -> str:
        facts = (self.grid, self.anywhere, len(self))
        return hashlib.sha256(repr(facts).encode() + self.cells.numpy().tobytes()).hexdigest()


def in_cells(digits: Tensor, cell: int) -> Tensor:
    """Digits, uint8 (n, 1, 8, 8), enlarged and cut into cells (n, SIDE * SIDE, cell, cell)."""
    side = SIDE * cell
    large = F.interpolate(digits.float(), (side, side), mode="bilinear", antialias=True)
    cells = large.round().clamp(0, 255).to(torch.uint8).view(-1, SIDE, cell, SIDE, cell)
    return cells.transpose(2, 3).reshape(-1, SIDE * SIDE, cell, cell)
