"""From a name to an order: a scan, a random one, or a file; the one place that knows."""

from pathlib import Path

import torch
from torch import Tensor

from reorder.orders.files import load_order
from reorder.orders.notes import note
from reorder.orders.order import validate
from reorder.orders.resample import resample
from reorder.orders.scans import RELEASED, SCANS, check_grid, scan

# N patches


def named_order(name: str | Path | Tensor, grid: tuple[int, int], seed: int = 0) -> Tensor:
    """The order (N,) of a grid that a scan, `random` (by the seed) or an order file names, or itself."""
    rows, columns = check_grid(grid)
    if isinstance(name, Path) or (isinstance(name, str) and name.endswith(".json")):
        return load_order(name, (rows, columns)).order
    if isinstance(name, str):
        if name == "random":
            return random_order(grid, seed)
        if name in RELEASED:
            return RELEASED[name](rows, columns)
        if name not in SCANS:
            choices = ", ".join([*SCANS, "random"])
            raise ValueError(f"unknown scan {name!r}; choose from {choices}, or an order file (*.json)")
        return scan(name, rows, columns)
    order = torch.as_tensor(name)
    if order.dim() != 1:
        raise ValueError(f"one order ({rows * columns},) is needed, got shape {tuple(order.shape)}")
    return validate(order, rows * columns)


def starting_order(scan_or_file: str, grid: tuple[int, int], seed: int = 0) -> Tensor:
    """The order (N,) that `order.scan` means; a file of another grid is resampled, with a note."""
    if not scan_or_file.endswith(".json"):
        return named_order(scan_or_file, grid, seed)
    found, grid = load_order(scan_or_file), check_grid(grid)
    if found.grid != grid:
        sizes = "{}x{} grid; it is resampled to {}x{}".format(*found.grid, *grid)
        note(f"{scan_or_file} is for a {sizes}")
    return resample(found.order, found.grid, grid)


def random_order(grid: tuple[int, int], seed: int) -> Tensor:
    """One uniformly random order (N,), a function of the seed."""
    rows, columns = check_grid(grid)
    return torch.randperm(rows * columns, generator=torch.Generator().manual_seed(seed))
