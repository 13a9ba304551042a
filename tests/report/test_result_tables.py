"""The tables of a report, against numpy, scipy and counting by hand."""

import numpy as np
import pytest
from scipy import stats
from written_runs import make_run

from reorder.report import result_tables
from reorder.report.comparisons import BEST, NOISE, ROW, START, compare
from reorder.report.results import collect, expand
from reorder.report.tables import Number, Table, write_table


def test_what_is_compared_in_a_study_of_two_models_by_hand(study):
    table = result_tables.differences_table(compare(collect(expand([study])).results))
    row, column, spiral, noise = "row, fixed", "column, fixed", "spiral, fixed", "row, equal noise"
    learned, again = "learned from row", "order learned from row, fixed"
    third = 10 / 3  # the standard error of three values of which one differs by ten
    assert {
        (model.split()[0], order, kind, other): (points.value, points.error, seeds.value)
        for order, kind, other, model, points, *_, seeds in table.rows
    } == {
        key: (pytest.approx(mean), pytest.approx(error), seeds)
        for key, mean, error, seeds in (
            (("vit", column, ROW, row), (30 + 20) / 2, 5, 2),
            (("vit", spiral, ROW, row), 10, 0, 3),
            (("vit", noise, ROW, row), (0 + 10 + 0) / 3, third, 3),
            (("vit", noise, START, row), (0 + 10 + 0) / 3, third, 3),
            (("vit", again, ROW, row), (30 + 30 + 20) / 3, third, 3),
            (("vit", learned, ROW, row), (20 + 20 + 10) / 3, third, 3),
            (("vit", learned, START, row), (20 + 20 + 10) / 3, third, 3),
            (("vit", learned, NOISE, noise), (20 + 10 + 10) / 3, third, 3),
            (("vit", learned, BEST, spiral), (10 + 10 + 0) / 3, third, 3),  # a learned order is no scan
            (("mamba", learned, ROW, row), (20 + 10) / 2, 5, 2),
            (("mamba", learned, START, row), (20 + 10) / 2, 5, 2),
        )
    }
    p = {(cells[3], *cells[:2]): cells[7] for cells in table.rows}
    # Student's t is 5, of 2 degrees of freedom
    assert p["vit mini", learned, START].value == pytest.approx(1 - 5 / 27**0.5)
    (limits,) = (cells[5:7] for cells in table.rows if cells[:2] == (learned, START) and "vit" in cells[3])
    assert [limit.value for limit in limits] == pytest.approx(
        [50 / 3 + t * third for t in (-4.30265, 4.30265)], rel=1e-5
    )
    assert p["vit mini", spiral, ROW] == ""  # 10 points with every seed: there is nothing to test with


def test_the_centre_table_has_each_start_and_all_of_them(sweep):
    results = collect(expand([sweep])).results
    learned, _ = result_tables.policies(results)
    (start,) = result_tables.centre_table(learned, None).rows  # all starts are this one
    other = [
        p._replace(
            result=p.result._replace(
                order="learned from column", summary=p.result.summary | {"scan": "column"}
            )
        )
        for p in learned
    ]
    *_, whole = result_tables.centre_table(learned + other, None).rows
    assert whole[2] == "all starts"
    part = result_tables.centre_table(learned + other[:1], None)  # of the other start seed 0 alone
    assert [row[2] for row in part.rows] == ["learned from row", "learned from column"]
    assert part.notes == [
        "vit mini, digits 4x4, all starts: of row with seed 0, 1, 2; what does not share those seeds is left "
        "out."
    ]
    by_hand = []
    for policy in learned:
        slots = [policy.result.summary["order"].index(patch) for patch in (5, 6, 9, 10)]
        by_hand.append(np.mean(np.array([5, 6, 9, 10]) - slots))
    assert start[4].value == pytest.approx(np.mean(by_hand)) == whole[4].value
    assert start[4].error == pytest.approx(stats.sem(by_hand))
    taus = [stats.kendalltau(policy.result.summary["order"], range(16)).statistic for policy in learned]
    assert start[7].value == pytest.approx(np.mean(taus))
    feet = [sum(abs(a - b) for a, b in enumerate(policy.result.summary["order"])) for policy in learned]
    assert (start[8].value, start[9].value) == pytest.approx((np.mean(feet), np.mean(feet) / 128))
    assert (start[5].value, start[6].value) == pytest.approx(
        stats.t.interval(0.95, 2, np.mean(by_hand), stats.sem(by_hand))
    )


def test_small_grids_come_first_and_top1_follows_the_names(sweep):
    results = collect(expand([sweep])).results
    fine = [result._replace(data="digits 14x14") for result in results[:1]]
    coarse = [result._replace(data="digits 7x7") for result in results[:1]]
    table = result_tables.orders_table(fine + coarse)
    assert table.headings[:3] == ("order", "model", "top-1 (%)")
    assert [row[4] for row in table.rows] == ["digits 7x7", "digits 14x14"]


def test_scans_that_do_not_share_seeds_are_said_not_hidden(tmp_path):
    for seed in range(3):
        make_run(tmp_path / f"row-{seed}", "row", seed=seed, accuracy=0.5)
        make_run(tmp_path / f"column-{seed}", "column", seed=seed, accuracy=0.9)
    whole = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert (whole.rows[0][-1].value, whole.notes) == (3, [])
    make_run(tmp_path / "spiral-1", "spiral", seed=1, accuracy=0.9)
    part = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert part.rows == whole.rows
    about, lacking = "vit mini, digits 4x4: of", "what does not share those seeds is left out."
    assert part.notes == [f"{about} row, column with seed 0, 1, 2; {lacking}"]
    make_run(tmp_path / "spiral-2", "spiral", seed=2, accuracy=0.9)  # six runs with three seeds or with two
    part = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert (part.rows[0][-1].value, part.rows[0][-2].value) == (2, 3)
    assert part.notes == [f"{about} row, column, spiral with seed 1, 2; {lacking}"]


def test_scans_without_two_seeds_in_common_are_not_tested(tmp_path):
    for scan_name, seed in (("row", 0), ("row", 1), ("column", 1), ("column", 2)):
        make_run(tmp_path / f"{scan_name}-{seed}", scan_name, seed=seed)
    table = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert (table.rows, table.notes) == (
        [],
        ["vit mini, digits 4x4: no test, which takes two scans with two seeds in common."],
    )


def test_a_scan_that_a_prior_chose_is_tested_once(tmp_path):
    for seed in range(2):
        make_run(tmp_path / f"row-{seed}", "row", seed=seed, accuracy=0.5)
        make_run(tmp_path / f"column-{seed}", "column", seed=seed, accuracy=0.9)
    results = collect(expand([tmp_path])).results
    chosen = [
        each._replace(
            order="prior (row), fixed", summary=each.summary | {"scan": "prior", "prior_scan": "row"}
        )
        for each in results
        if each.summary["scan"] == "row"
    ]
    assert result_tables.sensitivity_table(results + chosen) == result_tables.sensitivity_table(results)


def test_the_table_of_gains_has_each_number_under_its_heading(tmp_path):
    """Two starts, two seeds: of 60 images 6 are 10 points, so +10 and +20 from row, 0 and +20 from column."""
    for start, fixed, found in (("row", (30, 30), (36, 42)), ("column", (30, 24), (30, 36))):
        for seed in range(2):
            make_run(tmp_path / f"{start}-{seed}", start, "none", seed, fixed[seed])
            make_run(tmp_path / f"{start}-learned-{seed}", start, "global", seed, found[seed])
    table = result_tables.gains_table(compare(collect(expand([tmp_path])).results))
    row = dict(zip(table.headings, table.rows[0], strict=True))
    assert (row["runs"], row["compared with"]) == ("learned", START)
    assert (row["model"], row["data"]) == ("vit mini", "digits 4x4")
    assert row["difference (points)"] == Number(pytest.approx(12.5), pytest.approx(7.5))
    assert (row["starts"].value, row["seeds"].value) == (2, 2)
    limits = stats.t.interval(0.95, 1, 12.5, 7.5)
    assert (row["95% from"].value, row["to"].value) == pytest.approx(limits)
    assert row["p"].value == pytest.approx(stats.ttest_1samp([5, 20], 0).pvalue)


def test_the_time_of_runs_that_did_not_record_it_is_left_empty(tmp_path):
    old, new = make_run(tmp_path / "old"), make_run(tmp_path / "new", "column")
    new.write_summary(new.summary() | {"wall_seconds": 90.0})
    table = result_tables.runs_table(*collect([old, new]))
    cells = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    assert [cell["training steps (min)"].value for cell in cells] == [1, 1]
    assert [getattr(cell["wall time (min)"], "value", "") for cell in cells] == ["", 1.5]
    assert table.notes == ["The wall time of 1 of 2 runs was not recorded."]


def test_orders_that_a_trained_model_was_tried_in_are_shown(tmp_path):
    run, other = make_run(tmp_path / "a", "spiral", seed=3), make_run(tmp_path / "b")
    tried = Table(
        "sensitivity",
        "",
        ("order", "tau with own", "top-1 (%)", "against own (points)", "p"),
        [
            ("own", Number(1.0), Number(50.0, 1.5), Number(0.0, 0.0), Number(1.0)),
            ("row", Number(0.25), Number(40.0, 1.25), Number(-10.0, 2.0), Number(0.0001)),
        ],
        [],
    )
    write_table(tried, run.path / "evaluations")
    results = collect([run, other]).results
    table = result_tables.other_orders_table(results)
    assert [dict(zip(table.headings, map(str, row), strict=True)) for row in table.rows] == [
        {
            "read in": name,
            "trained in": "spiral, fixed",
            "model": "vit mini",
            "top-1 (%)": top1,
            "against own (points)": change,
            "p": p,
            "tau with own": tau,
            "data": "digits 4x4",
            "seed": "3",
        }
        for name, top1, change, p, tau in (
            ("own", "50.00 ± 1.50", "0.00 ± 0.00", "1.000", "1.00"),
            ("row", "40.00 ± 1.25", "-10.00 ± 2.00", "<0.001", "0.25"),
        )
    ]
    assert table.notes == []
    (run.path / "evaluations" / "sensitivity.csv").write_text("order,top-1 (%)\nrow,many\n")
    table = result_tables.other_orders_table(results)
    assert table.rows == []
    assert "sensitivity.csv: left out: it cannot be used: could not convert string" in table.notes[0]
    longer = tried._replace(
        headings=(*tried.headings, "step"), rows=[(*row, Number(12, digits=0)) for row in tried.rows]
    )
    write_table(longer, run.path / "evaluations")
    run.write_metrics([line | {"step": 4 * line["epoch"]} for line in run.metrics()])
    assert len(result_tables.other_orders_table(collect([run]).results).rows) == 2
    run.write_metrics([line | {"step": 8 * line["epoch"]} for line in run.metrics()])  # it was made longer
    table = result_tables.other_orders_table(collect([run]).results)
    assert table.rows == []
    assert "it is of step 12, and the run has 24" in table.notes[0]
