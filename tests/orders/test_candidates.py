"""Candidates against small grids written by hand, and what every one of them must satisfy."""

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reorder.orders import candidates as tried
from reorder.orders.candidates import candidates, variations
from reorder.orders.named import random_order
from reorder.orders.order import validate
from reorder.orders.scans import SCANS, scan

GRIDS = st.tuples(st.integers(1, 9), st.integers(1, 9))
# The slot of every patch, written by hand.
BY_HAND = {
    "stride-2": (lambda: tried.stride((2, 5), 2), [[0, 5, 1, 6, 2], [7, 3, 8, 4, 9]]),
    "stride-3": (lambda: tried.stride((2, 4), 3), [[0, 3, 6, 1], [4, 7, 2, 5]]),
    "stride-2x2": (
        lambda: tried.stride_of_cells((3, 4), 2, 2),
        [[0, 4, 1, 5], [8, 10, 9, 11], [2, 6, 3, 7]],
    ),
    "stride-2x3": (
        lambda: tried.stride_of_cells((3, 4), 2, 3),
        [[0, 4, 6, 1], [8, 10, 11, 9], [2, 5, 7, 3]],
    ),
    "stride-1x2": (lambda: tried.stride_of_cells((2, 3), 1, 2), [[0, 4, 1], [2, 5, 3]]),
    "stride-2x1": (lambda: tried.stride_of_cells((3, 2), 2, 1), [[0, 1], [4, 5], [2, 3]]),
    "block-2": (
        lambda: tried.blocks((3, 5), 2),
        [[0, 1, 4, 5, 8], [2, 3, 6, 7, 9], [10, 11, 12, 13, 14]],
    ),
    "column-left-right": (
        lambda: tried.mirrored(scan("column", 2, 3), (2, 3), "-left-right"),
        [[4, 2, 0], [5, 3, 1]],
    ),
    "row-up-down": (
        lambda: tried.mirrored(scan("row", 2, 3), (2, 3), "-up-down"),
        [[3, 4, 5], [0, 1, 2]],
    ),
    "row-both": (lambda: tried.mirrored(scan("row", 2, 3), (2, 3), "-both"), [[5, 4, 3], [2, 1, 0]]),
    "spiral-transposed": (
        lambda: tried.transposed_scan("spiral", (3, 4)),
        [[0, 9, 8, 7], [1, 10, 11, 6], [2, 3, 4, 5]],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_orders_match_grids_written_by_hand(name):
    make, slots = BY_HAND[name]
    order = make().tolist()
    columns = len(slots[0])
    assert [[order.index(r * columns + c) for c in range(columns)] for r in range(len(slots))] == slots


def test_what_is_done_to_an_order_is_what_its_name_says():
    order = torch.tensor([4, 0, 3, 1, 2])
    assert tried.reverse_segment(order, 1, 4).tolist() == [4, 1, 3, 0, 2]
    assert tried.move_run(order, 0, 2, 3).tolist() == [3, 1, 2, 4, 0]
    assert tried.move_run(order, 3, 5, 0).tolist() == [1, 2, 4, 0, 3]
    other = torch.tensor([0, 1, 2, 3, 4])
    assert tried.crossover(order, other, 1, 3).tolist() == [1, 0, 3, 2, 4]
    assert tried.crossover(order, other, 0, 5).tolist() == order.tolist()


@settings(max_examples=40, deadline=None)
@given(grid=GRIDS, count=st.integers(1, 200), seed=st.integers(0, 5))
def test_candidates_are_different_orders_with_row_major_first(grid, count, seed):
    found = candidates(grid, count, seed)
    assert next(iter(found)) == "row"
    for order in found.values():
        validate(order, grid[0] * grid[1])
    assert len({tuple(order.tolist()) for order in found.values()}) == len(found) <= count
    again = candidates(grid, count, seed)
    assert list(again) == list(found)
    assert all(torch.equal(again[name], order) for name, order in found.items())


def test_a_small_grid_has_all_orders_and_a_larger_one_as_many_as_wanted():
    found = candidates((2, 2), 1000)
    assert {tuple(order.tolist()) for order in found.values()} == set(permutations(range(4)))
    assert len(candidates((7, 7), 300)) == 300


def test_few_candidates_are_of_every_kind():
    names = list(candidates((7, 7), 12))
    half = ["random-1", "stride-2x2", "random-2", "block-2", "random-3", "row-reversed"]
    assert names == [*SCANS, *half]


def test_all_mirror_images_transposes_and_reversals_are_there_once():
    """All images of a scan under the eight symmetries of a square, forwards and backwards."""
    side = 5
    cells = torch.arange(side * side).view(side, side)
    turns = [torch.rot90(view, k) for view in (cells, cells.T) for k in range(4)]
    expected = set()
    for name in SCANS:
        for turn in turns:
            order = turn.reshape(-1)[scan(name, side, side)].tolist()
            expected |= {tuple(order), tuple(reversed(order))}
    found = {tuple(order.tolist()) for order in candidates((side, side), 400).values()}
    assert expected <= found


def test_given_orders_and_the_priors_choice_come_right_after_row_major():
    mine = random_order((4, 4), 7)
    found = candidates((4, 4), 5, given={"file-mine": mine, "file-same": scan("snake", 4, 4)}, first="spiral")
    assert list(found) == ["row", "file-mine", "snake", "spiral", "column"]
    assert torch.equal(found["file-mine"], mine)


@settings(max_examples=60, deadline=None)
@given(grid=GRIDS, count=st.integers(1, 30), seed=st.integers(0, 1000))
def test_variations_are_new_orders(grid, count, seed):
    parents = candidates(grid, 4)
    known = {tuple(order.tolist()) for order in candidates(grid, 30).values()}
    made = variations(parents, candidates(grid, 30).values(), count, seed)
    found = [tuple(variation.order.tolist()) for variation in made]
    assert len(found) == len(set(found)) <= count
    assert not known & set(found)
    for variation in made:
        validate(variation.order, grid[0] * grid[1])
    again = variations(parents, candidates(grid, 30).values(), count, seed)
    assert [variation.made for variation in again] == [variation.made for variation in made]
    if grid[0] * grid[1] > 8:
        assert len(found) == count


def test_a_variation_is_made_as_it_says():
    parents = {"a": random_order((3, 3), 1), "b": random_order((3, 3), 2)}
    kinds = set()
    for variation in variations(parents, [], 60):
        words = variation.made.replace(",", "").split()
        if words[0] == "slots":
            start, stop, name, other = int(words[1]), int(words[3]) + 1, words[5], words[-1]
            expected = tried.crossover(parents[name], parents[other], start, stop)
            kinds.add("crossed")
        else:
            name, start, stop = words[0], int(words[2]), int(words[4]) + 1
            expected = (
                tried.reverse_segment(parents[name], start, stop)
                if words[-1] == "reversed"
                else tried.move_run(parents[name], start, stop, int(words[-1]))
            )
            kinds.add(words[5])
        assert torch.equal(variation.order, expected)
    assert kinds == {"crossed", "reversed", "moved"}
