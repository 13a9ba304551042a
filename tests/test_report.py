"""Figures and tables: that they show the numbers and paths they are given."""

import numpy as np
import pytest

import reorder
from reorder import figures
from reorder.report import Row, cells_of, markdown_table, name_of, rows_of
from reorder.run_dir import RunDir

SUMMARY = {
    "model": "vit",
    "size": "mini",
    "scan": "row",
    "policy": "none",
    "top1": 0.91234,
    "top1_sem": 0.0148,
    "top5": 1.0,
    "images_per_second": 1234.5,
}


def test_table_cells_are_percentages_with_their_standard_error():
    cells = cells_of(Row(name_of(SUMMARY), SUMMARY))
    assert cells == ("row, fixed", "vit mini", "91.23 ± 1.48", "100.00", "1234")
    learned = SUMMARY | {"policy": "global", "scan": "some/where/mine.json"}
    assert name_of(learned) == "learned from mine"
    assert name_of(SUMMARY | {"policy": "random"}) == "random every batch"
    table = markdown_table([Row("row, fixed", SUMMARY)])
    assert table.splitlines()[2].startswith("| row, fixed | vit mini | 91.23 ± 1.48 |")


def test_runs_that_read_alike_are_told_apart(monkeypatch, tmp_path):
    runs = {"a": ("vit", 0), "b": ("vit", 1), "c": ("mamba", 0), "d": ("mamba", 0)}
    summaries = {name: SUMMARY | {"model": model, "seed": seed} for name, (model, seed) in runs.items()}
    monkeypatch.setattr(RunDir, "experiment", lambda self: None)
    monkeypatch.setattr(RunDir, "summary", lambda self: summaries[self.path.name])
    names = [row.name for row in rows_of([RunDir(name) for name in runs])]
    assert names == [
        "row, fixed vit seed 0",
        "row, fixed vit seed 1",
        "row, fixed mamba seed 0 c",
        "row, fixed mamba seed 0 d",
    ]


def test_curves_hold_every_run():
    stages = {1: "fixed", 2: "random"}
    lines = [{"epoch": e, "stage": stages[e], "validation_top1": e / 10} for e in (1, 2)]
    axes = figures.curve_figure([("a", lines), ("b", lines[:1])]).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[10, 20], [10]]
    assert not axes.patches  # shades are for the stages of a policy
    policy = [{"epoch": 1, "stage": "policy", "validation_top1": 0.1}]
    assert len(figures.curve_figure([("c", policy)]).axes[0].patches) == 1


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
