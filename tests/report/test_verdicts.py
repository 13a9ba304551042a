"""What a report says first, against counts by hand: of 60 images, 6 more that are right are 10 points."""

import json
import re

import numpy as np
import pytest
import torch
from written_runs import GRID, make_run

from reorder.orders.files import save_order
from reorder.report import charts
from reorder.report.comparisons import BEST, compare
from reorder.report.results import collect, expand
from reorder.report.verdicts import groups_of, main_group
from reorder.report.write import write_report
from reorder.runs.verdict import Difference


def write(root, arms, model="vit", **order):
    """Runs by scan and policy, with so many of the 60 images right for each seed."""
    for (scan_name, policy), counts in arms.items():
        for seed, count in enumerate(counts):
            if count is not None:
                make_run(
                    root / f"{model}-{scan_name}-{policy}-{seed}",
                    scan_name,
                    policy,
                    seed,
                    count,
                    model,
                    **order,
                )


def groups(root):
    return grouped(collect(expand([root])).results)


def grouped(results):
    return groups_of(results, compare(results).pairs)


def test_the_learned_order_is_compared_with_row_major_on_the_same_seeds(tmp_path):
    # +12, +12 and +18 images; the fourth seed has no row-major
    write(tmp_path, {("row", "none"): (24, 24, 24), ("row", "global"): (36, 36, 42, 60)})
    (group,) = groups(tmp_path)
    shares = [[100 * (i < own) - 100 * (i < 24) for i in range(60)] for own in (36, 36, 42)]
    over_seeds = np.std([20, 20, 30], ddof=1) / np.sqrt(3)
    over_images = np.std(np.mean(shares, axis=0)) / np.sqrt(60)
    assert group.verdict.difference == (
        pytest.approx(70 / 3),
        pytest.approx(max(over_seeds, over_images)),
        3,
        60,
        pytest.approx(max(4.303 * over_seeds, 2 * over_images), rel=1e-3),
    )
    assert group.sentences == [
        "The learned order is 23.3 ± 5.1 points better than row-major (3 seeds, 60 images)."
    ]
    assert group.verdict.against == "row-major"
    assert group.row_top1 == pytest.approx(40)


def test_controls_are_said_beside_it(tmp_path):
    arms = {("row", "none"): (24, 24), ("row", "noise"): (18, 18), ("row", "global"): (48, 48)}
    write(tmp_path, arms | {("column", "none"): (30, 30), ("spiral", "none"): (6, 6)})
    (group,) = groups(tmp_path)
    assert re.sub(r" ± \d\.\d", "", group.verdict.text) == (
        "The learned order is 40.0 points better than row-major (2 seeds, 60 images). "
        "It is 50.0 points better than equal noise, which learns nothing. "
        "It is 30.0 points better than column, the best of 2 other scans, chosen after the fact."
    )
    assert {name: found.points for name, found in group.arms.items()} == {
        "column": pytest.approx(10),
        "spiral": pytest.approx(-30),
        "equal noise": pytest.approx(-10),
        "learned": pytest.approx(40),
    }


def test_below_two_errors_they_cannot_be_told_apart(tmp_path):
    """One seed, 8 of 60 images: 13.3 points, and an error of the images of sqrt(p (1 - p) / 60) = 4.4."""
    write(tmp_path / "clear", {("row", "none"): (24,), ("row", "global"): (16,)})
    (clear,) = groups(tmp_path / "clear")
    assert clear.sentences == [
        "The learned order is 13.3 ± 4.4 points worse than row-major (1 seed, 60 images)."
    ]
    write(tmp_path / "close", {("row", "none"): (24,), ("row", "global"): (27,)})  # 5.0 and 2.8
    (close,) = groups(tmp_path / "close")
    assert close.sentences == [
        "The learned order cannot be told apart from row-major: +5.0 ± 2.8 points (1 seed, 60 images)."
    ]
    write(tmp_path / "same", {("row", "none"): (24,), ("row", "global"): (24,)})
    (same,) = groups(tmp_path / "same")
    assert "cannot be told apart from row-major: +0.0 ± 0.0 points" in same.sentences[0]


def test_algorithm_1_is_an_arm_of_its_own_and_the_verdict_is_on_the_other(tmp_path):
    write(tmp_path, {("row", "none"): (24, 24), ("row", "global"): (36, 36)}, estimator="scaled")
    write(tmp_path / "paper", {("row", "global"): (30, 30)}, estimator="paper")
    results = collect(expand([tmp_path])).results
    assert {r.order for r in results if r.learns} == {"learned from row", "Algorithm 1 from row"}
    (group,) = grouped(results)
    assert list(group.arms) == ["Algorithm 1", "learned"]
    assert group.verdict.difference.points == pytest.approx(20)
    assert group.sentences[1].startswith("It is 10.0 ± ")
    assert group.sentences[1].endswith("points better than Algorithm 1.")
    (alone,) = grouped([r for r in results if r.kind != "learned"])
    assert alone.sentences[0].startswith("The order of Algorithm 1 is 10.0 ± ")


def test_estimators_other_than_the_papers_are_told_apart_by_name(tmp_path):
    for name in ("scaled", "exact", "paper"):
        make_run(tmp_path / name, "row", "global", estimator=name)
    make_run(tmp_path / "column", "column", "global", estimator="scaled")
    found = {r.run.path.name: r.order for r in collect(expand([tmp_path])).results}
    assert found == {
        "scaled": "learned from row",
        "column": "learned from column",
        "exact": "learned from row, order.estimator=exact",
        "paper": "Algorithm 1 from row",
    }


def test_several_starts_are_averaged_and_said_and_noise_is_from_the_same_starts(tmp_path):
    learned = {("row", "global"): (36, 36), ("column", "global"): (24, 24), ("spiral", "global"): (60, None)}
    write(tmp_path, {("row", "none"): (24, 24), ("row", "noise"): (30, 30), **learned})
    (group,) = groups(tmp_path)
    assert group.sentences[0].startswith(
        "The learned order (mean of 2 starts) is 10.0 ± "
    )  # two seeds of both
    assert group.sentences[1].startswith("It is 10.0 ± ")  # 36 against 30 images, from row alone
    assert group.arms["learned"].seeds == 2


def test_noise_of_another_temperature_is_no_control(tmp_path):
    write(tmp_path, {("row", "none"): (24,), ("row", "global"): (36,)}, temperature=0.2)
    write(tmp_path / "hot", {("row", "noise"): (12,)}, temperature=0.9)
    (group,) = groups(tmp_path)
    assert len(group.sentences) == 1
    write(tmp_path / "same", {("row", "noise"): (12,)}, temperature=0.2)
    (group,) = groups(tmp_path)
    assert "40.0 ± " in group.sentences[1]


def test_without_learning_the_best_fixed_order_is_said_to_be_chosen_after_the_fact(tmp_path):
    save_order(tmp_path / "mine.json", torch.randperm(16), GRID, {})
    arms = {("row", "none"): (24, 24), ("column", "none"): (36, 36), ("spiral", "none"): (42, None)}
    write(tmp_path / "runs", arms)  # spiral has one seed in common, column two
    (group,) = groups(tmp_path / "runs")
    said, chosen = group.sentences
    assert said.startswith("The best of 2 other fixed orders, column, is 20.0 ± ")
    assert "chosen after the fact" in chosen
    for seed in range(2):
        make_run(tmp_path / "runs" / f"mine-{seed}", str(tmp_path / "mine.json"), "none", seed, 48)
    (group,) = groups(tmp_path / "runs")
    assert group.sentences[0].startswith("The best of 3 other fixed orders, mine.json, is 40.0 ± ")


def test_an_order_that_a_search_found_is_not_said_to_be_chosen_after_the_fact(tmp_path):
    save_order(tmp_path / "order.json", torch.randperm(16), GRID, {"candidate": "a", "search": "search-1"})
    write(tmp_path / "runs", {("row", "none"): (24, 24), ("column", "none"): (48, 48)})
    for seed in range(2):
        make_run(tmp_path / "runs" / f"found-{seed}", str(tmp_path / "order.json"), "none", seed, 36)
    (group,) = groups(tmp_path / "runs")
    (said,) = group.sentences
    assert said.startswith("The order found by search-1 is 20.0 ± ")
    assert list(group.arms) == ["column", "order found by search-1"]


def test_with_nothing_to_compare_there_is_a_text_and_no_file(tmp_path):
    write(tmp_path / "runs", {("row", "none"): (24,), ("column", "none"): (36,)})
    report = write_report(expand([tmp_path / "runs"]), tmp_path / "report")
    assert json.loads((tmp_path / "report" / "verdict.json").read_text())["difference"] == pytest.approx(20)
    assert report.verdicts[0] in report.page.read_text()
    for runs in (["vit-row-none-0"], ["vit-column-none-0"]):
        paths = [tmp_path / "runs" / name for name in runs]
        report = write_report(expand(paths), tmp_path / "report")
        assert report.verdicts[0].startswith("No verdict, which takes")
        assert not (tmp_path / "report" / "verdict.json").exists()


def test_runs_with_other_images_or_none_are_not_compared(tmp_path):
    write(tmp_path, {("row", "none"): (24, 24), ("row", "global"): (36, 36)})
    (tmp_path / "vit-row-global-1" / "correct.npy").unlink()
    assert groups(tmp_path)[0].arms["learned"].seeds == 1
    np.save(tmp_path / "vit-row-global-0" / "correct.npy", np.ones(59, bool))
    (group,) = groups(tmp_path)
    assert group.verdict is None


def test_the_main_group_has_most_runs_of_those_with_a_verdict(tmp_path):
    write(tmp_path, {("row", "none"): (24, 24), ("row", "global"): (36, 36)}, "mamba")
    write(tmp_path, {("row", "none"): (24,), ("row", "global"): (30,)}, "vit")
    write(tmp_path, {("column", "none"): (24,) * 6}, "longformer")  # most runs, nothing to compare
    found = groups(tmp_path)
    assert [group.model for group in found] == ["vit mini", "longformer mini", "mamba mini"]
    assert main_group(found).model == "mamba mini"
    assert main_group(found).verdict.text.startswith("mamba mini on digits 4x4: The learned order is 20.0 ±")
    write(tmp_path / "more", {("column", "none"): (24, 24)}, "vit")
    assert main_group(groups(tmp_path)).model == "vit mini"  # as many runs, and first


def test_the_figure_has_every_arm_with_its_error(tmp_path):
    arms = {("row", "none"): (24, 24), ("row", "noise"): (18, 24), ("row", "global"): (48, 42)}
    write(tmp_path, arms | {("column", "none"): (30, 30), ("row", "random"): (12, 12)})
    (group,) = groups(tmp_path)
    (axes,) = charts.arms_figure([group]).axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[0] == "row-major (40.0%)"
    assert labels[2:] == ["equal noise", "learned", "random every batch"]
    drawn = {bar.get_label(): bar for bar in axes.containers}
    for name in ("equal noise", "learned", "random every batch"):
        assert drawn[name].lines[0].get_xdata() == pytest.approx([group.arms[name].points])
        (low, _), (high, _) = drawn[name].lines[2][0].get_segments()[0]
        assert high - low == pytest.approx(2 * group.arms[name].sem)
    assert drawn[BEST].lines[0].get_xdata() == pytest.approx([10])
    assert charts.arms_figure([group._replace(arms={})]) is None
    several = charts.arms_figure([group, group._replace(model="mamba mini")])
    assert [text.get_text() for text in several.axes[0].get_yticklabels()] == [
        "vit mini\ndigits 4x4",
        "mamba mini\ndigits 4x4",
    ]
    assert len(several.axes[0].containers) == 2 * 4
    assert several.legends


def test_arms_have_different_looks():
    names = [
        BEST,
        "random",
        "mine.json",
        "equal noise",
        "Algorithm 1",
        "learned",
        "random every batch",
    ]
    arms = dict.fromkeys(names[1:], Difference(1.0, 0.5, 3, 60, 2.0))
    looks = {charts._arm_look(name, names) for name in [*arms, BEST, "row-major"]}
    assert len(looks) == 8
