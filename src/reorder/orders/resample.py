"""An order of one grid on another: how an order goes with a model to another resolution."""

import torch.nn.functional as F
from torch import Tensor

from reorder.orders.order import invert, validate
from reorder.orders.scans import check_grid

# N patches of the grid, M of the other

DECIMALS = 6  # of an interpolated slot; what is closer is a tie, read in raster order


def resample(order: Tensor, grid: tuple[int, int], to_grid: tuple[int, int]) -> Tensor:
    """An order (N,) of a grid as an order (M,) of another one, by the rank of its interpolated slots.

    The slots are a map (rows, columns), whose corners are laid on those of the other grid, linear in between.

        >>> reorder.resample(reorder.scan("column", 4, 4), grid=(4, 4), to_grid=(2, 3))
        tensor([0, 3, 1, 4, 2, 5])
    """
    (rows, columns), to_grid = check_grid(grid), check_grid(to_grid)
    if order.dim() != 1:
        raise ValueError(f"one order ({rows * columns},) is needed, got shape {tuple(order.shape)}")
    validate(order, rows * columns)
    if (rows, columns) == to_grid:
        return order.clone()
    slots = invert(order).cpu().double().view(1, 1, rows, columns)
    interpolated = F.interpolate(slots, to_grid, mode="bilinear", align_corners=True)
    return interpolated.flatten().round(decimals=DECIMALS).argsort(stable=True).to(order.device)
