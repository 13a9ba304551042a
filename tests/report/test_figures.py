"""Figures: that they show the numbers and paths they are given."""

from itertools import pairwise

import numpy as np
import pytest

import reorder
from reorder.report import figures


def test_a_curve_is_the_top1_after_each_epoch():
    axes = figures.curve_figure("row, fixed", np.array([0.2, 0.4]), []).axes[0]
    assert axes.lines[0].get_xdata().tolist() == [1, 2]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([20, 40])
    assert not axes.patches  # shades are for the stages of a policy
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_stages_are_shaded_where_they_are_in_training():
    keys = {"train.epochs": 3, "order.warmup_fraction": 0.15, "order.policy_fraction": 0.3}
    spans = figures.stage_spans(keys)
    assert [span.stage for span in spans] == ["warm-up", "policy", "frozen"]
    assert [limit for span in spans for limit in span[1:]] == pytest.approx([0, 0.45, 0.45, 1.35, 1.35, 3])
    shades = figures.curve_figure("a", np.ones(3), spans).axes[0].patches
    assert [patch.get_x() for patch in shades] == pytest.approx([0, 0.45, 1.35])
    whole = figures.stage_spans(keys | {"order.warmup_fraction": 0.0, "order.policy_fraction": 1.0})
    assert whole == [("policy", 0, 3)]
    assert figures.stage_spans({"train.epochs": 3}) == []


def test_paths_are_drawn_from_slot_to_slot():
    figure = figures.scan_figure(3, 4)
    axes = figure.axes[1]
    assert axes.get_title() == "column"
    line = axes.lines[0]
    assert list(line.get_xdata()) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert list(line.get_ydata()) == [0, 1, 2] * 4
    start, stop = (np.asarray(dots.get_offsets())[0].tolist() for dots in axes.collections)
    assert (start, stop) == ([0, 0], [3, 2])
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first row is at the top


def test_of_a_long_path_that_jumps_about_the_last_slots_are_drawn():
    order = np.random.default_rng(0).permutation(144)
    initial, found = figures.order_figure(np.arange(144), order, (12, 12)).axes[:2]
    assert len(initial.lines[0].get_xdata()) == 144  # a scan can be followed
    assert not found.lines
    drawn = [segment.tolist() for segment in found.collections[0].get_segments()]
    patches = [[patch % 12, patch // 12] for patch in order[-17:].tolist()]
    assert drawn == [list(step) for step in pairwise(patches)]
    assert np.all(np.diff(found.collections[0].get_alpha()) > 0)  # the newest is darkest
    assert found.get_title() == "learned order, its last 16 of 144 slots"


def test_slot_maps_hold_the_inverse_of_the_order():
    order = reorder.scan("spiral", 3, 3).numpy()
    figure = figures.order_figure(np.arange(9), order, (3, 3))
    shown = figure.axes[3].images[0].get_array()
    assert shown.tolist() == [[0, 1, 2], [7, 8, 3], [6, 5, 4]]


def test_logit_lines_follow_each_patch():
    logits = np.array([[0.0, -1.0], [-0.5, -0.25]])
    lines = figures.policy_figure(np.array([0, 0.5]), logits, np.array([0, 1])).axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [[0.0, -0.5], [-1.0, -0.25]]
    assert [list(line.get_xdata()) for line in lines] == [[0.0, 0.5]] * 2


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot draw"):
        figures.save_figure(figures.scan_figure(2, 2), tmp_path / "a.doc")
