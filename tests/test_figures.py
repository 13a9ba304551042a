"""Figures: that they show the numbers and paths they are given."""

import numpy as np
import pytest

import reorder
from reorder import figures


def test_curves_hold_every_run():
    stages = {1: "fixed", 2: "random"}
    lines = [{"epoch": e, "stage": stages[e], "validation_top1": e / 10} for e in (1, 2)]
    curves = [figures.curve_of("a", lines), figures.curve_of("b", lines[:1])]
    axes = figures.curve_figure(curves).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[10, 20], [10]]
    assert not axes.patches  # shades are for the stages of a policy
    policy = [{"epoch": 1, "stage": "policy", "validation_top1": 0.1}]
    assert len(figures.curve_figure([figures.curve_of("c", policy)]).axes[0].patches) == 1


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


def test_slot_maps_hold_the_inverse_of_the_order():
    order = reorder.scan("spiral", 3, 3).numpy()
    figure = figures.order_figure(np.arange(9), order, (3, 3))
    shown = figure.axes[3].images[0].get_array()
    assert shown.tolist() == [[0, 1, 2], [7, 8, 3], [6, 5, 4]]


def test_logit_lines_follow_each_patch():
    logits = np.array([[0.0, -1.0], [-0.5, -0.25]])
    lines = figures.policy_figure(logits, np.array([0, 1])).axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == [[0.0, -0.5], [-1.0, -0.25]]


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot draw"):
        figures.save_figure(figures.scan_figure(2, 2), tmp_path / "a.doc")
