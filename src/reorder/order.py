"""Orders: what they are, how tokens are read in one, and how they are shared as files.

An order is a LongTensor (N,), or (B, N) with one per image: `order[slot] = patch`, the raster index of the
patch read in that slot. `slot_of` is its inverse: `slot_of[patch] = slot`.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reorder.files import replace_file
from reorder.scans import check_grid

# B images, N patches, D width

FILE_FORMAT = "reorder.order/1"


def read_in_order(tokens: Tensor, order: Tensor | None) -> Tensor:
    """Tokens (B, N, D) in raster order, read in an order (N,), one per image (B, N), or None for raster."""
    if order is None:
        return tokens
    if order.dtype != torch.long:
        raise ValueError(f"an order holds integers (torch.long), not {order.dtype}")
    order = order.to(tokens.device)
    if order.shape[-1] != tokens.shape[1] or order.dim() > 2:
        raise ValueError(f"an order of shape {tuple(order.shape)} cannot read {tokens.shape[1]} patches")
    if order.dim() == 1:
        return tokens.index_select(1, order)
    if order.shape[0] != tokens.shape[0]:
        raise ValueError(
            f"{order.shape[0]} orders cannot read {tokens.shape[0]} images: give one or one each"
        )
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))


def invert(order: Tensor) -> Tensor:
    """The slot of every patch: slot_of (..., N) of an order (..., N), and the other way round."""
    slots = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, slots)


def validate(order: Tensor, patches: int) -> Tensor:
    """The order itself, if it is (N,) or (B, N) and each row names every one of `patches` patches once."""
    if order.dtype != torch.long:
        raise ValueError(f"an order holds integers (torch.long), not {order.dtype}")
    if order.dim() not in (1, 2) or order.shape[-1] != patches:
        raise ValueError(f"an order of shape {tuple(order.shape)} does not fit {patches} patches")
    expected = torch.arange(patches, device=order.device)
    for row in order.reshape(-1, patches):
        if torch.equal(row.sort().values, expected):
            continue
        outside = row[(row < 0) | (row >= patches)]
        if len(outside):
            raise ValueError(f"not an order: patch {int(outside[0])} is outside 0..{patches - 1}")
        first_slot = torch.full((patches,), patches, device=row.device)
        first_slot.scatter_reduce_(0, row, torch.arange(patches, device=row.device), "amin")
        again = (first_slot[row] != torch.arange(patches, device=row.device)).nonzero()[0]
        repeated, missing = int(row[again]), int((first_slot == patches).nonzero()[0])
        raise ValueError(f"not an order: patch {repeated} is repeated and patch {missing} is missing")
    return order


def kendall_tau(order: Tensor, other: Tensor) -> float:
    """Kendall's tau between two orders (N,): 1 if equal, -1 if one is the other reversed."""
    if len(order) < 2:
        return 1.0
    from scipy.stats import kendalltau  # here, for it takes as long to import as all the rest

    return float(kendalltau(invert(order).cpu().numpy(), invert(other).cpu().numpy()).statistic)


class OrderFile(NamedTuple):
    order: Tensor
    grid: tuple[int, int]
    provenance: dict[str, Any]


def save(path: str | Path, order: Tensor, grid: tuple[int, int], provenance: dict[str, Any]) -> None:
    """Write an order (N,) of a grid as JSON, with where it came from, whole or not at all."""
    if order.dim() != 1:
        raise ValueError(f"an order file holds one order (N,), not shape {tuple(order.shape)}")
    rows, columns = check_grid(grid)
    validate(order, rows * columns)
    content = {
        "format": FILE_FORMAT,
        "grid": [rows, columns],
        "provenance": provenance,
        "order": order.tolist(),
    }
    replace_file(Path(path), json.dumps(content) + "\n")


def load(path: str | Path, grid: tuple[int, int] | None = None) -> OrderFile:
    """Read an order file and check it, against the grid it must be for if one is given."""
    path = Path(path)
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read order file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not an order file: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FILE_FORMAT:
        raise ValueError(f'{path} is not an order file: it lacks "format": "{FILE_FORMAT}"')
    rows, columns = _positive_integers(path, content, "grid", length=2)
    numbers = _positive_integers(path, content, "order", length=rows * columns, least=0)
    provenance = content.get("provenance")
    if not isinstance(provenance, dict):
        raise ValueError(f'{path}: "provenance" must be an object')
    if grid is not None and (rows, columns) != check_grid(grid):
        raise ValueError(f"{path} is for a {rows}x{columns} grid, but a {grid[0]}x{grid[1]} grid is read")
    try:
        order = validate(torch.tensor(numbers, dtype=torch.long), rows * columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return OrderFile(order, (rows, columns), provenance)


def _positive_integers(path: Path, content: dict, key: str, length: int, least: int = 1) -> list[int]:
    """A list of `length` integers, none below `least`, from a file's content."""
    values = content.get(key)
    if not isinstance(values, list) or len(values) != length:
        found = f"{len(values)}" if isinstance(values, list) else repr(values)
        raise ValueError(f'{path}: "{key}" must be a list of {length} integers, found {found}')
    for value in values:
        if type(value) is not int or not least <= value < 2**31:
            raise ValueError(f'{path}: "{key}" must hold integers from {least} up, found {value!r}')
    return values
