"""What the figures of a report show, read back from their axes."""

import json

import pytest
import torch
from written_runs import GRID, correct_of, make_run

from reorder.orders.files import save_order
from reorder.report import charts, prior_figures
from reorder.report.comparisons import compare
from reorder.report.results import collect, expand


def test_a_single_point_makes_no_panel_and_legends_stay_inside(sweep):
    results = collect(expand([sweep])).results
    assert charts.learning_figure([r for r in results if r.summary["policy"] == "global"]) is None
    figure = charts.learning_figure(results)
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_bars_and_points_are_at_their_values(sweep):
    results = collect(expand([sweep])).results
    bars = charts.change_figure(compare(results).pairs).axes[0].containers
    expected = 100 * (correct_of(sweep, "column").mean() - correct_of(sweep, "row").mean())
    assert [container.patches[0].get_height() for container in bars if container.get_label() == "column"] == (
        pytest.approx([expected])
    )
    axes = charts.learning_figure(results).axes[0]
    heights = {c.get_label(): c.lines[0].get_ydata()[0] for c in axes.containers}
    assert heights["learned"] == pytest.approx(100 * correct_of(sweep, "learned").mean())
    assert heights["equal noise"] == pytest.approx(100 * correct_of(sweep, "noise").mean())


@pytest.mark.parametrize("content", ["{", "[]", '{"orders": {}}', '{"grid": [4, 4], "orders": [1]}'])
def test_a_file_that_is_no_prior_is_refused(tmp_path, content):
    (tmp_path / "prior.json").write_text(content)
    with pytest.raises(ValueError, match=r"prior\.json is damaged: .*; give what `reorder prior` wrote"):
        prior_figures.read_prior(tmp_path / "prior.json")


def test_bars_of_orders_that_are_no_scans_look_different(tmp_path):
    make_run(tmp_path / "row")
    for number in range(3):
        save_order(tmp_path / f"{number}.json", torch.randperm(16), GRID, {})
        make_run(tmp_path / f"run-{number}", str(tmp_path / f"{number}.json"))
    bars = charts.change_figure(compare(collect(expand([tmp_path])).results).pairs).axes[0].patches
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in bars}) == len(bars) == 3


def test_every_grid_has_its_own_prior_or_it_is_said(sweep, tmp_path):
    results = collect(expand([sweep])).results
    fine = [
        each._replace(data="digits 8x8", summary=each.summary | {"grid": (8, 8)})
        for each in results
        if each.summary["policy"] == "none"
    ]
    for side in (4, 8, 9):
        found = {name: {"unigram": {"reduction": side, "reduction_sem": 0.1}} for name in ("row", "column")}
        (tmp_path / f"{side}.json").write_text(json.dumps({"grid": [side, side], "orders": found}))
    priors = {path: prior_figures.read_prior(path) for path in sorted(tmp_path.iterdir())}
    four, eight, nine = priors
    drawn = prior_figures.compressibility_figure(results + fine, [priors[four], priors[eight]]).axes
    assert [axes.get_title() for axes in drawn] == ["digits 4x4", "digits 8x8"]
    assert prior_figures.prior_notes(results + fine, {four: priors[four], eight: priors[eight]}) == []
    assert prior_figures.prior_notes(results + fine, {eight: priors[eight], nine: priors[nine]}) == [
        f"{nine}: no fixed order of its data and 9x9 patches to draw it against.",
        "digits 4x4: no --prior of it was given.",
    ]
    assert prior_figures.prior_notes(results, {}) == []


def test_a_prior_of_other_images_is_not_drawn(sweep, tmp_path):
    """All of MNIST's family is read by data.name=idx: the directory tells them apart."""
    (run, *_) = collect(expand([sweep])).results
    row = {"row": {"unigram": {"reduction": 1.0, "reduction_sem": 0.1}}}
    for measured, fits in (
        ({"name": "idx", "root": None}, True),  # Debian's Fashion-MNIST
        ({"name": "idx", "root": "/elsewhere/fashion-mnist"}, True),
        ({"name": "idx", "root": "/elsewhere/mnist"}, False),
        ({"name": "digits", "root": None}, False),
    ):
        (tmp_path / "prior.json").write_text(json.dumps({"grid": [4, 4], "orders": row, "data": measured}))
        fashion = run._replace(keys=run.keys | {"data.root": "fashion-mnist"})
        assert prior_figures.read_prior(tmp_path / "prior.json").fits(fashion) == fits


def test_what_stands_side_by_side_is_of_the_same_seeds(tmp_path):
    for seed, right in enumerate((30, 54)):
        make_run(tmp_path / f"row-{seed}", seed=seed, accuracy=right)
        make_run(tmp_path / f"column-{seed}", "column", seed=seed, accuracy=right)
    make_run(tmp_path / "learned", policy="global", accuracy=36)
    results = collect(expand([tmp_path])).results
    axes = charts.learning_figure(results).axes[0]
    heights = {c.get_label(): c.lines[0].get_ydata().tolist() for c in axes.containers}
    assert heights == {"fixed": pytest.approx([50, 50]), "learned": pytest.approx([60])}
    alone = charts.top1_table([r for r in results if (r.order, r.seed) != ("column, fixed", 0)])
    assert alone.top1.tolist() == pytest.approx([70, 90, 60])  # they share no seed


def test_compressible_scans_are_compared_by_the_same_seeds_whatever_else_was_run(tmp_path):
    for seed, right in enumerate((30, 54)):
        make_run(tmp_path / f"row-{seed}", seed=seed, accuracy=right)
    make_run(tmp_path / "column", "column", accuracy=36)
    make_run(tmp_path / "learned", policy="global", seed=1, accuracy=36)
    prior = prior_figures.Prior((4, 4), {"row": {"unigram": (20.0, 0.5)}, "column": {"unigram": (25.0, 0.1)}})
    results = collect(expand([tmp_path])).results
    (points,) = prior_figures.compressibility_figure(results, [prior]).axes[0].containers
    assert points.lines[0].get_ydata().tolist() == pytest.approx([50, 60])


def test_points_are_at_a_scans_compressibility_and_accuracy(sweep):
    results = collect(expand([sweep])).results
    prior = prior_figures.Prior((4, 4), {"row": {"unigram": (20.0, 0.5)}, "column": {"unigram": (25.0, 0.1)}})
    (points,) = prior_figures.compressibility_figure(results, [prior]).axes[0].containers
    across, up = points.lines[0].get_xdata(), points.lines[0].get_ydata()
    assert list(across) == [20, 25]
    assert list(up) == pytest.approx([100 * correct_of(sweep, name).mean() for name in ("row", "column")])
