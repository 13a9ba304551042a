"""Candidates: the orders that a search tries, each by a name, and variations of those that did well.

All are pure functions of their arguments; no two candidates of one call are the same order.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reorder.orders.named import random_order
from reorder.orders.scans import SCANS, check_grid, scan

# N patches

Named = tuple[str, Tensor]
MIRRORS = {"": (False, False), "-left-right": (False, True), "-up-down": (True, False), "-both": (True, True)}
MOST_MISSES = 200  # orders drawn in a row that are known already, after which a small grid has no others


def candidates(
    grid: tuple[int, int], count: int, seed: int = 0, given: dict[str, Tensor] | None = None, first: str = ""
) -> dict[str, Tensor]:
    """Up to `count` orders (N,) by name, row-major first: whatever the count, a bit of every kind.

    After row-major come the orders `given`, the scan `first`, which a prior may have chosen, and the other
    scans; then half of them random orders, which suit a short memory best, and in turn with these strided,
    blocked orders, and scans mirrored, transposed and reversed. A given order that is a scan goes by the
    scan's name.
    """
    check_grid(grid)
    scans = {name: scan(name, *grid) for name in ("row", *([first] if first else []), *SCANS)}
    named = [(_scan_of(order, scans) or name, order) for name, order in (given or {}).items()]
    regular = in_turn([strided(grid), blocked(grid), turned(grid)])
    found: dict[str, Tensor] = {}
    known: set[bytes] = set()
    for name, order in chain(
        [("row", scans["row"])], named, scans.items(), in_turn([randoms(grid, seed), regular])
    ):
        if len(found) == count:
            break
        if _content(order) not in known:
            assert name not in found, name
            known.add(_content(order))
            found[name] = order
    return found


def _scan_of(order: Tensor, scans: dict[str, Tensor]) -> str | None:
    """The name of the scan that an order is, if it is one."""
    return next((name for name, other in scans.items() if torch.equal(order, other)), None)


def _content(order: Tensor) -> bytes:
    """What two orders have in common if they are the same."""
    return order.numpy().tobytes()


def in_turn(families: list[Iterator[Named]]) -> Iterator[Named]:
    """One of each family after the other, until all are at their end."""
    left = list(families)
    while left:
        for family in list(left):
            if (named := next(family, None)) is None:
                left.remove(family)
            else:
                yield named


# Families of orders


def strided(grid: tuple[int, int]) -> Iterator[Named]:
    """Every so many patches, then the same from the next patch on: in rows and columns, in raster order."""
    for step in range(2, max(grid)):
        yield f"stride-{step}x{step}", stride_of_cells(grid, step, step)
        yield f"stride-{step}", stride(grid, step)
    for step in range(2, max(grid)):
        yield f"stride-1x{step}", stride_of_cells(grid, 1, step)
        yield f"stride-{step}x1", stride_of_cells(grid, step, 1)


def stride(grid: tuple[int, int], step: int) -> Tensor:
    """Patches 0, step, 2 step, ... in raster order, then 1, 1 + step, ..., and so on."""
    return _sorted_by(torch.arange(grid[0] * grid[1]) % step)


def stride_of_cells(grid: tuple[int, int], down: int, right: int) -> Tensor:
    """Every `down`-th row and `right`-th column from the top-left patch, then from the next."""
    row, column = _cells(grid)
    return _sorted_by((row % down) * right + column % right)


def blocked(grid: tuple[int, int]) -> Iterator[Named]:
    """Blocks of 2 x 2 patches, of 3 x 3, and so on, as long as there is more than one."""
    for side in range(2, max(grid)):
        yield f"block-{side}", blocks(grid, side)


def blocks(grid: tuple[int, int], side: int) -> Tensor:
    """Blocks of side x side patches row by row, each read row by row; those at the border may be smaller."""
    row, column = _cells(grid)
    return _sorted_by((row // side) * grid[1] + column // side)


def randoms(grid: tuple[int, int], seed: int) -> Iterator[Named]:
    """Random orders without end, but for a grid that has few."""
    known: set[bytes] = set()
    misses = number = 0
    while misses < MOST_MISSES:
        order = random_order(grid, int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
        misses = misses + 1 if _content(order) in known else 0
        if not misses:
            known.add(_content(order))
            yield f"random-{len(known)}", order
        number += 1


def turned(grid: tuple[int, int]) -> Iterator[Named]:
    """The mirror images and transposes of all scans, each also from its end to its start."""
    ways = list(product((False, True), MIRRORS, (False, True)))[1:]  # the first is the scan itself
    for transposed, mirror, backwards in ways:
        for name in SCANS:
            order = mirrored(transposed_scan(name, grid) if transposed else scan(name, *grid), grid, mirror)
            title = f"{name}{'-transposed' * transposed}{mirror}{'-reversed' * backwards}"
            yield title, order.flip(0) if backwards else order


def mirrored(order: Tensor, grid: tuple[int, int], mirror: str) -> Tensor:
    """An order (N,) with the image turned left to right, upside down, both or not at all."""
    rows, columns = grid
    upside_down, left_to_right = MIRRORS[mirror]
    row, column = order // columns, order % columns
    row = rows - 1 - row if upside_down else row
    column = columns - 1 - column if left_to_right else column
    return row * columns + column


def transposed_scan(name: str, grid: tuple[int, int]) -> Tensor:
    """A scan with rows and columns exchanged: it walks down where the scan walks to the right."""
    rows, columns = grid
    order = scan(name, columns, rows)
    return order % rows * columns + order // rows


def _cells(grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Row and column of every patch, in raster order."""
    patch = torch.arange(grid[0] * grid[1])
    return patch // grid[1], patch % grid[1]


def _sorted_by(key: Tensor) -> Tensor:
    """Patches by an integer key (N,), those with the same in raster order."""
    return key.argsort(stable=True)


# Variations of orders


class Variation(NamedTuple):
    order: Tensor
    made: str  # of what, and how


def variations(
    parents: dict[str, Tensor], known: Iterable[Tensor], count: int, seed: int = 0
) -> list[Variation]:
    """Up to `count` orders, none of them known, each made from one or two parents by a random change."""
    random = np.random.default_rng(seed)
    seen = {_content(order) for order in known} | {_content(order) for order in parents.values()}
    patches = len(next(iter(parents.values())))
    found: list[Variation] = []
    misses = 0
    while patches > 1 and len(found) < count and misses < MOST_MISSES:
        made = _varied(parents, random)
        misses = misses + 1 if _content(made.order) in seen else 0
        if not misses:
            seen.add(_content(made.order))
            found.append(made)
    return found


def _varied(parents: dict[str, Tensor], random: np.random.Generator) -> Variation:
    """A segment reversed, a patch or a run of patches moved, or two orders crossed, with equal chance."""
    name, *others = random.permutation(list(parents)).tolist()
    order = parents[name]
    start, stop = sorted(random.choice(len(order) + 1, 2, replace=False).tolist())
    kind = random.integers(3 if others else 2)
    if kind == 0:
        return Variation(reverse_segment(order, start, stop), f"{name}, slots {start} to {stop - 1} reversed")
    if kind == 1:
        if random.random() < 0.5:
            stop = start + 1
        to = int(random.integers(len(order) - (stop - start) + 1))
        moved = move_run(order, start, stop, to)
        return Variation(moved, f"{name}, slots {start} to {stop - 1} moved to {to}")
    crossed = crossover(order, parents[others[0]], start, stop)
    return Variation(crossed, f"slots {start} to {stop - 1} of {name}, the rest as in {others[0]}")


def reverse_segment(order: Tensor, start: int, stop: int) -> Tensor:
    """An order (N,) whose slots from `start` up to `stop` are read backwards."""
    return torch.cat([order[:start], order[start:stop].flip(0), order[stop:]])


def move_run(order: Tensor, start: int, stop: int, to: int) -> Tensor:
    """An order (N,) whose slots from `start` up to `stop` are taken out and put in as slot `to` and on."""
    rest = torch.cat([order[:start], order[stop:]])
    return torch.cat([rest[:to], order[start:stop], rest[to:]])


def crossover(order: Tensor, other: Tensor, start: int, stop: int) -> Tensor:
    """Order crossover: slots from `start` up to `stop` of one order, the rest in the sequence of another."""
    kept = order[start:stop]
    rest = other[~torch.isin(other, kept)]
    return torch.cat([rest[:start], kept, rest[start:]])
