"""Orders as files: JSON with the grid, the order, and where it came from (docs/order.schema.json)."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reorder.orders.disk import replace_file
from reorder.orders.order import validate
from reorder.orders.scans import check_grid
from reorder.orders.schema import shown

FILE_FORMAT = "reorder.order/1"


class OrderFile(NamedTuple):
    order: Tensor
    grid: tuple[int, int]
    provenance: dict[str, Any]


def save_order(
    path: str | Path, order: Tensor, grid: tuple[int, int], provenance: dict[str, Any] | None = None
) -> None:
    """Write an order (N,) of a grid as JSON, with where it came from, whole or not at all.

    >>> reorder.save_order("order.json", reorder.scan("snake", 4, 4), (4, 4), {"found by": "hand"})
    """
    if order.dim() != 1:
        raise ValueError(f"an order file holds one order (N,), not shape {tuple(order.shape)}")
    rows, columns = check_grid(grid)
    validate(order, rows * columns)
    content = {
        "format": FILE_FORMAT,
        "grid": [rows, columns],
        "provenance": provenance or {},
        "order": order.tolist(),
    }
    replace_file(Path(path), json.dumps(content) + "\n")


def load_order(path: str | Path, grid: tuple[int, int] | None = None) -> OrderFile:
    """Read an order file and check it, against the grid it must be for if one is given.

    A file that is written by hand needs no more than its grid and order.

    >>> reorder.save_order("order.json", reorder.scan("column", 2, 2), (2, 2))
    >>> reorder.load_order("order.json", grid=(2, 2)).order
    tensor([0, 2, 1, 3])
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read order file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not an order file: {error}") from None
    if not isinstance(content, dict) or "grid" not in content or "order" not in content:
        raise ValueError(f'{path} is not an order file: it lacks "grid" and "order"')
    if content.get("format", FILE_FORMAT) != FILE_FORMAT:
        raise ValueError(f'{path}: "format" must be "{FILE_FORMAT}", found {shown(content["format"])}')
    rows, columns = _positive_integers(path, content, "grid", length=2)
    numbers = _positive_integers(path, content, "order", length=rows * columns, least=0)
    provenance = content.get("provenance", {})
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
