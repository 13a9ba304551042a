"""How policies move, against scipy, brute force and cases worked out by hand."""

import itertools

import numpy as np
import pytest
from scipy import stats

import reorder
from reorder.report import evolution as ev
from reorder.report.policy_figures import chosen_moments, evolution_figure
from reorder.runs.statistics import student_interval


def test_footrule_against_its_definition_and_its_largest_value():
    orders = [np.array(order) for order in itertools.permutations(range(5))]
    reference = np.array([2, 0, 4, 1, 3])
    for order in orders:
        expected = sum(abs(list(order).index(p) - list(reference).index(p)) for p in range(5))
        assert ev.footrule(order, reference) == expected
    for patches in range(1, 6):
        everyone = [np.array(order) for order in itertools.permutations(range(patches))]
        largest = max(ev.footrule(order, np.arange(patches)) for order in everyone)
        assert (
            ev.largest_footrule(patches)
            == largest
            == ev.footrule(np.arange(patches)[::-1], np.arange(patches))
        )


def test_evolution_against_scipy():
    generator = np.random.default_rng(0)
    initial = reorder.scan("spiral", 3, 4).numpy()
    start = np.empty(12)
    start[initial] = np.linspace(0, -1, 12)
    logits = np.stack([start, start + generator.normal(size=12), -start]).astype(np.float32)
    found = ev.evolution(np.arange(3), logits, initial, (3, 4))
    for epoch in range(3):
        assert np.array_equal(found.slot_of[epoch], stats.rankdata(-logits[epoch], method="ordinal") - 1)
        tau = stats.kendalltau(found.slot_of[epoch], np.argsort(initial)).statistic
        assert found.tau[epoch] == pytest.approx(tau)
    assert found.tau[[0, 2]] == pytest.approx([1, -1])
    assert found.footrule_share[[0, 2]] == pytest.approx([0, 1])


def test_central_patches():
    assert ev.central((4, 4)).nonzero()[0].tolist() == [5, 6, 9, 10]
    seven = ev.central((7, 7)).reshape(7, 7)  # radius 1.75: the middle and its eight neighbours
    assert seven.sum() == 9
    assert seven[2:5, 2:5].all()
    assert ev.central((2, 2)).all()
    assert ev.central((1, 6)).nonzero()[0].tolist() == [2, 3]
    assert ev.central((3, 5), 0.1).nonzero()[0].tolist() == [7]
    assert ev.central((3, 5), 100).all()
    assert ev.central((4, 4), 0.5).nonzero()[0].tolist() == [5, 6, 9, 10]  # the nearest are 0.71 away
    for radius in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="--radius must be above 0"):
            ev.central((4, 4), radius)


def test_centre_shift_is_positive_when_the_centre_is_read_earlier():
    row = np.arange(16)
    front = np.array([5, 6, 9, 10, 0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 14, 15])
    # from slots 5, 6, 9, 10 to slots 0, 1, 2, 3: 5 + 5 + 7 + 7 slots earlier
    assert ev.centre_shift(row, front, (4, 4)) == 6
    assert ev.centre_shift(front, row, (4, 4)) == -6
    assert ev.centre_shift(row, front, (4, 4), radius=10) == 0  # all patches together cannot move


def test_students_interval_against_scipy():
    values = [6.8, -2.2, 1.0, 4.0]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert student_interval(values) == pytest.approx(expected)
    assert student_interval([1.0]) is None


def test_tracked_patches():
    initial = np.arange(12)[::-1]
    assert ev.tracked_patches(initial, (3, 4), []) == [6, 11]
    inwards = reorder.scan("spiral", 3, 4).numpy()
    # the first patch is the central one, so the last joins it
    assert ev.tracked_patches(inwards[::-1], (3, 4), []) == [6, 0]
    assert ev.tracked_patches(initial, (3, 4), [(1, 4), (3, 2), (1, 4)]) == [3, 9]
    assert ev.tracked_patches(initial, (3, 4), [(1, 4)]) == [3, 6]
    assert ev.cell_name(9, (3, 4)) == "row 3, column 2"
    assert ev.tracked_patches(initial, (3, 4), [(4, 1), (1, 4)]) == [3, 6]  # there is no fourth row


def test_cells_that_no_grid_has_are_refused_and_those_that_some_lack_are_said():
    for row, column in ((4, 1), (0, 1), (1, 5)):
        with pytest.raises(ValueError, match=f"--track {row},{column} is outside every grid .3x4."):
            ev.check_cells([(1, 1), (row, column)], [(3, 4)])
    assert ev.check_cells([(1, 1), (4, 4)], [(3, 4), (5, 5)]) == [
        "--track 4,4 is outside 3x4 patches and not followed there."
    ]


def test_drawn_moments_are_those_in_which_the_policy_moves():
    logits = np.array([[0], [0], [1], [2], [3], [3], [3]])  # moves before moments 2, 3 and 4
    assert chosen_moments(logits, 10) == [1, 2, 3, 4]
    assert chosen_moments(logits, 2) == [1, 4]
    assert chosen_moments(np.zeros((5, 1)), 3) == [0, 2, 4]


def test_the_figure_shows_the_slots():
    generator = np.random.default_rng(0)
    logits = np.cumsum(generator.normal(size=(5, 12)), axis=0).astype(np.float32)
    epochs = np.array([0, 0.5, 0.66666, 1, 2])
    found = ev.evolution(epochs, logits, np.argsort(-logits[0], kind="stable"), (3, 4))
    figure = evolution_figure(found, [6, 0])
    maps = [axes for axes in figure.axes if axes.images]
    assert np.array_equal(maps[9].images[0].get_array(), found.slot_of[4].reshape(3, 4))
    tracks = next(axes for axes in figure.axes if axes.get_ylabel() == "slot" and axes.lines)
    assert tracks.lines[0].get_ydata().tolist() == found.slot_of[:, 6].tolist()
    assert tracks.lines[0].get_xdata().tolist() == epochs.tolist()
    titles = [axes.get_title() for axes in maps[:10] if axes.get_title()]
    assert titles == ["epoch 0", "epoch 0.5", "epoch 0.67", "epoch 1", "epoch 2"]
