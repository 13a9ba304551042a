"""Which orders are better, and whether scans differ, against nested regressions and sums by hand."""

import math

import numpy as np
import pytest
from scipy import stats
from written_runs import GRID, IMAGES, correct_of, make_run

from reorder.orders.files import save_order
from reorder.orders.scans import scan
from reorder.report.comparisons import BEST, NOISE, ROW, START, Sensitivity, compare, mean_difference
from reorder.report.results import collect, expand
from reorder.runs.statistics import blocked_f_test, p_value


def unexplained(values, design):
    """The sum of squares that a linear regression on a design leaves."""
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return ((values - fitted) ** 2).sum()


def test_the_f_test_is_that_of_nested_regressions():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(4, 3)) + 3 * generator.normal(size=(1, 3)) + [[0.0], [0.5], [1], [2]]
    scans, seeds = np.divmod(np.arange(12), 3)
    by_seed, by_scan = np.eye(3)[seeds], np.eye(4)[scans]
    small, large = (unexplained(values.ravel(), d) for d in (by_seed, np.hstack([by_seed, by_scan])))
    error, p_value = blocked_f_test(values)
    ratio = ((small - large) / 3) / (large / 6)  # 12 values, 3 blocks, 3 further scans: 6 are left
    assert p_value == pytest.approx(stats.f.sf(ratio, 3, 6))
    assert error == pytest.approx(math.sqrt(2 / 3 * large / 6))


def test_two_scans_are_a_paired_t_test():
    values = np.array([[0.5, 0.62, 0.7], [0.53, 0.61, 0.78]])
    error, p_value = blocked_f_test(values)
    assert p_value == pytest.approx(stats.ttest_rel(*values).pvalue)
    assert error == pytest.approx(stats.sem(values[0] - values[1]))


def test_a_model_that_is_indifferent_to_the_order():
    same = np.tile([0.1, 0.7, 0.3], (6, 1))
    assert blocked_f_test(same) == (pytest.approx(0, abs=1e-9), 1.0)
    assert blocked_f_test(same + np.linspace(0, 0.1, 6)[:, None])[1] < 1e-12  # or always off by the same


def test_chance_alone_gives_every_p_value_equally_often():
    generator = np.random.default_rng(1)
    found = [blocked_f_test(generator.normal(size=(6, 3)))[1] for _ in range(2000)]
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_the_deviation_between_scans_is_what_the_error_leaves():
    # Two means 0.2 apart have a variance of 0.02, of which half the squared error of a difference is chance.
    means = {"row": 0.5, "column": 0.7}
    assert Sensitivity("m", "d", means, 3, 0.1, 0.5).between == pytest.approx(math.sqrt(0.02 - 0.005))
    assert Sensitivity("m", "d", means, 3, 0.5, 0.5).between == 0


def comparisons(results):
    """The pairs of each comparison, by what is compared with and by order."""
    names = ["against", "order"]
    return dict(iter(compare(results).pairs.groupby(names, sort=False)))


def test_paired_differences_by_brute_force(sweep):
    found = comparisons(collect(expand([sweep])).results)
    assert set(found) == {
        (ROW, "column, fixed"),
        *((against, "row, equal noise") for against in (ROW, START)),
        *((against, "learned from row") for against in (ROW, START, NOISE, BEST)),
    }
    partners = {ROW: "row", START: "row", NOISE: "noise", BEST: "column"}
    for against, partner in partners.items():
        pairs = found[against, "learned from row"]
        shares = correct_of(sweep, "learned").astype(float) - correct_of(sweep, partner)
        assert pairs.share.map(np.mean).tolist() == pytest.approx(shares.mean(1).tolist())
        mean = mean_difference([*pairs.share])
        assert mean.seed_error == pytest.approx(shares.mean(1).std(ddof=1) / np.sqrt(3))
        assert mean.image_error == pytest.approx(shares.mean(0).std() / np.sqrt(IMAGES))
        assert p_value(mean) == pytest.approx(stats.ttest_1samp(shares.mean(1), 0).pvalue)


def test_an_order_learned_further_is_compared_with_its_start_whatever_the_file(tmp_path):
    """Every seed reads the order that its own seed has learned, from another file."""
    for seed in range(3):
        file, origin = tmp_path / "orders" / f"{seed}.json", {"scan": "row", "policy": "global"}
        save_order(file, scan("spiral", *GRID), GRID, origin)
        make_run(tmp_path / "runs" / f"fixed-{seed}", str(file), "none", seed, 30)
        if seed:
            make_run(tmp_path / "runs" / f"further-{seed}", str(file), "global", seed, 36)
    found = {a: pairs for (a, _), pairs in comparisons(collect(expand([tmp_path / "runs"])).results).items()}
    assert set(found[START].other) == {"order learned from row, fixed"}
    assert found[START].seed.tolist() == [1, 2]
    assert mean_difference([*found[START].share]).value == pytest.approx(0.1)


def test_every_pair_that_a_study_lacks_is_said(study):
    one_side = "seed 2 only on one side, or on other images"
    assert sorted(compare(collect(expand([study])).results).notes) == [
        f"mamba mini, digits 4x4, against {START}: learned from row not compared: {one_side}.",
        f"mamba mini, digits 4x4, against {ROW}: learned from row not compared: {one_side}.",
        f"vit mini, digits 4x4, against {ROW}: column, fixed not compared: {one_side}.",
    ]


def test_runs_that_differ_in_more_than_the_order_are_told_apart_and_not_compared(tmp_path):
    make_run(tmp_path / "row", "row", epochs=5)
    make_run(tmp_path / "column", "column", epochs=3)
    make_run(tmp_path / "cool", "row", "global", epochs=5, temperature=0.1)
    make_run(tmp_path / "warm", "row", "global", epochs=5, temperature=0.5)
    make_run(tmp_path / "noise", "row", "noise", epochs=5, temperature=0.5)
    results = collect(expand([tmp_path])).results
    names = {result.run.path.name: (result.data, result.order) for result in results}
    assert names["column"][0] == "digits 4x4, train.epochs=3"
    assert names["cool"][1] == "learned from row, order.temperature=0.1"
    found = compare(results)
    pairs = {(pair.against, pair.a.run.path.name): pair.b.run.path.name for pair in found.pairs.itertuples()}
    assert pairs[NOISE, "warm"] == "noise"
    assert (NOISE, "cool") not in pairs
    assert (ROW, "column") not in pairs
    (note,) = found.notes
    assert "train.epochs=3, against row-major: column, fixed not compared: there is no such run" in note


def test_keys_that_change_nothing_are_not_compared(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", "column")
    text = (second.path / "config.yaml").read_text()
    (second.path / "config.yaml").write_text(text.replace("threads: 0", "threads: 2"))
    assert second.experiment().train.threads != first.experiment().train.threads
    assert len(compare(collect([first, second]).results).pairs) == 1


def test_seeds_without_a_partner_are_noted(tmp_path):
    make_run(tmp_path / "row", "row", seed=0)
    make_run(tmp_path / "column-0", "column", seed=0)
    make_run(tmp_path / "column-1", "column", seed=1)
    found = compare(collect(expand([tmp_path])).results)
    assert len(found.pairs) == 1
    assert p_value(mean_difference([*found.pairs.share])) is None
    assert "seed 1 only on one side" in found.notes[0]
