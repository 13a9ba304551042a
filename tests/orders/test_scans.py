"""Scans against hand-written grids, an independent Hilbert curve, and what every scan must satisfy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from reorder.models.backbones import SIZES, Mamba, TransformerXL
from reorder.models.patches import Tokens, unpatchify
from reorder.orders.files import save_order
from reorder.orders.fixed import FixedOrder, RandomOrder
from reorder.orders.named import named_order, random_order

# The slot of every patch of a grid, written by hand from the paper's appendix.
BY_HAND = {
    ("row", 3, 4): [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
    ("column", 3, 4): [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]],
    ("diagonal", 3, 4): [[0, 1, 3, 6], [2, 4, 7, 9], [5, 8, 10, 11]],
    ("snake", 3, 4): [[0, 1, 5, 6], [2, 4, 7, 10], [3, 8, 9, 11]],
    ("spiral", 3, 4): [[0, 1, 2, 3], [9, 10, 11, 4], [8, 7, 6, 5]],
    ("spiral", 4, 4): [[0, 1, 2, 3], [11, 12, 13, 4], [10, 15, 14, 5], [9, 8, 7, 6]],
    ("spiral", 5, 3): [[0, 1, 2], [11, 12, 3], [10, 13, 4], [9, 14, 5], [8, 7, 6]],
    ("hilbert", 2, 2): [[0, 3], [1, 2]],
    ("hilbert", 4, 4): [[0, 1, 14, 15], [3, 2, 13, 12], [4, 7, 8, 11], [5, 6, 9, 10]],
}
# The same of the authors' release: diagonals that run down to the right, from the bottom left on, and a curve
# of 4x4 patches of which three rows and columns are left.
RELEASED_BY_HAND = {
    ("release-diagonal", 3, 4): [[3, 6, 9, 11], [1, 4, 7, 10], [0, 2, 5, 8]],
    ("release-hilbert", 4, 4): [[0, 3, 4, 5], [1, 2, 7, 6], [14, 13, 8, 9], [15, 12, 11, 10]],
    ("release-hilbert", 3, 3): [[0, 3, 4], [1, 2, 5], [8, 7, 6]],
    ("release-hilbert", 1, 1): [[0]],
}


@pytest.mark.parametrize(("name", "rows", "columns"), BY_HAND)
def test_scans_match_grids_written_by_hand(name, rows, columns):
    order = reorder.scan(name, rows, columns)
    slots = [[order.tolist().index(r * columns + c) for c in range(columns)] for r in range(rows)]
    assert slots == BY_HAND[name, rows, columns]


@pytest.mark.parametrize(("name", "rows", "columns"), RELEASED_BY_HAND)
def test_the_release_s_own_scans_match_grids_written_by_hand(name, rows, columns):
    order = named_order(name, (rows, columns)).tolist()
    slots = [[order.index(r * columns + c) for c in range(columns)] for r in range(rows)]
    assert slots == RELEASED_BY_HAND[name, rows, columns]


def place_on_curve(slot, side):
    """(row, column) of a slot on the Hilbert curve, quarter by quarter from the smallest."""
    row = column = 0
    size = 1
    while size < side:
        down = 1 & (slot // 2)
        right = 1 & (slot ^ down)
        if right == 0:
            if down == 1:
                row, column = size - 1 - row, size - 1 - column
            row, column = column, row
        row, column = row + size * down, column + size * right
        slot, size = slot // 4, 2 * size
    return row, column


@pytest.mark.parametrize(("rows", "columns", "side"), [(14, 14, 16), (7, 7, 8), (5, 8, 8), (9, 3, 16)])
def test_the_release_s_hilbert_is_a_larger_curve_without_what_is_outside(rows, columns, side):
    cells = [place_on_curve(slot, side) for slot in range(side * side)]
    inside = [r * columns + c for r, c in cells if r < rows and c < columns]
    assert named_order("release-hilbert", (rows, columns)).tolist() == inside


@pytest.mark.parametrize("name", reorder.SCANS)
@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(1, 40))
def test_every_scan_visits_every_patch_once_from_the_top_left(name, rows, columns):
    order = reorder.SCANS[name](rows, columns)
    assert order.dtype == torch.long
    assert order[0] == 0
    assert sorted(order.tolist()) == list(range(rows * columns))


def steps(order, columns):
    """Manhattan length of each step of an order."""
    y, x = order // columns, order % columns
    return (y.diff().abs() + x.diff().abs()).tolist()


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 20), columns=st.integers(1, 20))
def test_hilbert_is_unbroken_on_even_sides(rows, columns):
    assert set(steps(reorder.scan("hilbert", 2 * rows, 2 * columns), 2 * columns)) == {1}


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(2, 30), columns=st.integers(2, 30))
def test_hilbert_never_jumps_further_than_one_diagonal_step(rows, columns):
    lengths = steps(reorder.scan("hilbert", rows, columns), columns)
    assert lengths.count(2) <= 1
    assert max(lengths) <= 2


def hilbert_point(n, index):
    """The textbook conversion of a distance along the Hilbert curve of an n x n square to (x, y)."""
    x = y = 0
    side = 1
    while side < n:
        rx = 1 & (index // 2)
        ry = 1 & (index ^ rx)
        if ry == 0:
            if rx == 1:
                x, y = side - 1 - x, side - 1 - y
            x, y = y, x
        x, y = x + side * rx, y + side * ry
        index //= 4
        side *= 2
    return x, y


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64])
def test_hilbert_is_the_hilbert_curve_on_powers_of_two(n):
    points = [hilbert_point(n, index) for index in range(n * n)]
    assert reorder.scan("hilbert", n, n).tolist() == [y * n + x for x, y in points]


def test_spiral_steps_to_neighbours_and_ends_inside():
    order = reorder.scan("spiral", 14, 14)
    assert set(steps(order, 14)) == {1}
    assert order[-1] // 14 in (6, 7)
    assert order[-1] % 14 in (6, 7)


@pytest.mark.parametrize("name", reorder.SCANS)
def test_a_single_row_or_column_is_read_straight_through(name):
    assert reorder.scan(name, 1, 9).tolist() == list(range(9))
    assert reorder.scan(name, 9, 1).tolist() == list(range(9))


def test_unknown_scans_and_impossible_grids_are_named():
    with pytest.raises(ValueError, match=r"unknown scan 'zigzag'; choose from row, column, hilbert"):
        reorder.scan("zigzag", 4, 4)
    with pytest.raises(ValueError, match="0 x 4"):
        reorder.scan("row", 0, 4)


def calls(grid):
    yield lambda: reorder.OrderLearner(grid=grid, total_steps=10)
    yield lambda: FixedOrder(grid)
    yield lambda: RandomOrder(grid)
    yield lambda: random_order(grid, 0)
    yield lambda: save_order("never.json", torch.arange(4), grid, {})
    yield lambda: unpatchify(torch.rand(1, 4, 4), grid, 2)
    yield lambda: Tokens(grid, 2, 1, 8)
    yield lambda: TransformerXL(SIZES["mini"], grid)
    yield lambda: Mamba(SIZES["mini"], grid)


@pytest.mark.parametrize("grid", [14, "14", (14,), (14, 14, 14), (14.0, 14), None, [3, "3"]])
def test_what_is_not_a_grid_is_one_clear_line_wherever_it_is_given(grid):
    for call in calls(grid) if grid is not None else list(calls(grid))[:-1]:
        with pytest.raises(ValueError, match=r"a grid is \(rows, columns\), two integers, got ") as caught:
            call()
        assert str(caught.value).endswith(repr(grid))


def test_grids_have_a_largest_size():
    assert len(reorder.scan("row", 2048, 2048)) == 2**22
    for rows, columns in ((2048, 2049), (1, 2**22 + 1), (10**5, 10**5)):
        with pytest.raises(ValueError, match=f"at most 4,194,304 patches, got {rows} x {columns}"):
            reorder.scan("row", rows, columns)
    with pytest.raises(ValueError, match="at most 4,194,304 patches, got 3000 x 3000"):
        reorder.create_model("vit", "mini", 6000, 2)
    assert reorder.OrderLearner([np.int64(2), 3], total_steps=1).order().shape == (6,)
