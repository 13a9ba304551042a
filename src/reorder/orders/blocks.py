"""A factored policy: blocks of patches in a learned order, times a learned order of the patches in a block.

A grid is cut into blocks of side x side patches, those at the right and lower border maybe smaller. All
blocks are read in the same order of their cells, so that a grid of 368 x 368 patches in blocks of 8 x 8 has
2,116 + 64 logits instead of 135,424, and every image says something about each of them.
"""

import torch
from torch import Tensor

from reorder.orders.order import invert
from reorder.orders.policy import PlackettLuce, check_orders, entropy, log_prob, ramp
from reorder.orders.scans import check_grid

# N patches, M blocks, C cells of a whole block, K orders


class Blocks(PlackettLuce):
    """Two Plackett-Luce policies: one for the blocks of a grid, one for the cells of every block.

    Its logits (M + C,) are those of the blocks, row by row, and then those of the cells.

    >>> from reorder.orders.blocks import Blocks
    >>> policy = Blocks((4, 4), side=2)
    >>> policy.mode().view(4, 4)
    tensor([[ 0,  1,  4,  5],
            [ 2,  3,  6,  7],
            [ 8,  9, 12, 13],
            [10, 11, 14, 15]])
    """

    layout: Tensor

    def __init__(self, grid: tuple[int, int], side: int, logits: Tensor | None = None):
        layout = layout_of(grid, side)
        if logits is None:
            logits = torch.cat([ramp(torch.arange(count)) for count in layout.shape])
        super().__init__(logits)
        if len(logits) != sum(layout.shape):
            blocks, cells = layout.shape
            raise ValueError(
                f"{blocks} blocks of {cells} cells have {blocks + cells} logits, got {len(logits)}"
            )
        self.register_buffer("layout", layout, persistent=False)

    @property
    def patches(self) -> int:
        return int(self.layout.max()) + 1

    def order_of(self, scores: Tensor) -> Tensor:
        blocks, cells = (super(Blocks, self).order_of(part) for part in self.split(scores))
        patches = self.layout[blocks[..., :, None], cells[..., None, :]]
        return patches[patches >= 0].view(*scores.shape[:-1], -1)

    def split(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """(..., M + C) as those of blocks (..., M) and cells (..., C)."""
        blocks, cells = logits.split(list(self.layout.shape), -1)
        return blocks, cells

    def parts(self, orders: Tensor) -> tuple[Tensor, Tensor]:
        """Of orders (..., N) that it can draw, the orders of blocks (..., M) and of cells (..., C)."""
        slots = invert(orders)[..., self.layout.clamp(min=0)]
        first = slots.masked_fill(self.layout < 0, len(self.layout) * orders.shape[-1]).min(-1).values
        return first.argsort(-1), slots[..., 0, :].argsort(-1)  # the first block is a whole one

    def log_prob(self, orders: Tensor, temperature: float = 1.0, logits: Tensor | None = None) -> Tensor:
        """As of `PlackettLuce`; minus infinity for an order that leaves a block before its end."""
        check_orders(orders, self.patches)
        parts, (blocks, cells) = self.parts(orders), self.split(self.logits if logits is None else logits)
        found = log_prob(blocks, parts[0], temperature) + log_prob(cells, parts[1], temperature)
        slots = [-invert(part).double() for part in parts]
        drawn = (self.order_of(torch.cat(slots, -1)) == orders).all(-1)
        return torch.where(drawn, found, -torch.inf)

    def entropy(self, orders: Tensor, temperature: float = 1.0) -> Tensor:
        parts, (blocks, cells) = self.parts(orders), self.split(self.logits)
        return entropy(blocks, parts[0], temperature) + entropy(cells, parts[1], temperature)

    def by_patch(self) -> Tensor:
        """Values (N,) that fall along the mode, from 0 to -1: what a report draws as logits."""
        return ramp(self.mode())


def layout_of(grid: tuple[int, int], side: int) -> Tensor:
    """The patch (M, C) in each cell of each block, -1 where a block at the border has none."""
    rows, columns = check_grid(grid)
    if side < 1:
        raise ValueError(f"a block has at least 1 patch a side, got {side}")
    down, right = min(side, rows), min(side, columns)
    patch = torch.full((-(-rows // down) * down, -(-columns // right) * right), -1)
    patch[:rows, :columns] = torch.arange(rows * columns).view(rows, columns)
    blocks = patch.view(patch.shape[0] // down, down, -1, right).transpose(1, 2)
    return blocks.reshape(-1, down * right)


def nearest_parts(order: Tensor, layout: Tensor) -> tuple[Tensor, Tensor]:
    """Orders of blocks (M,) and of cells (C,) after an order (N,): by the mean slot of their patches.

    Of an order that a policy of blocks can draw they are its own.
    """
    slots = invert(order).double()[layout.clamp(min=0)]
    inside = layout >= 0
    blocks = (slots * inside).sum(1) / inside.sum(1)
    whole = slots[inside.all(1)]
    cells = (whole - whole.mean(1, keepdim=True)).mean(0)
    return blocks.argsort(stable=True), cells.argsort(stable=True)
