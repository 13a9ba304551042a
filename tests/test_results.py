"""Runs sorted, averaged over seeds and compared, against numpy and brute force."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from reorder import charts, report, result_tables
from reorder import order as orders
from reorder.comparisons import BEST, NOISE, ROW, START, compare, p_value
from reorder.config import Data, Experiment, Model, Order, Train
from reorder.report import MOST_POLICIES, Options, policies_to_show, write_report
from reorder.results import by_order, collect, expand, order_name, top1
from reorder.run_dir import RunDir
from reorder.scans import scan
from reorder.tables import Number, PValue

IMAGES, GRID = 60, (4, 4)


def make_run(path, scan_name="row", policy="none", seed=0, accuracy=0.5, model="vit", epochs=3, **order):
    """The small files of a finished run, as training writes them; as many images right, or at random."""
    experiment = Experiment(
        Model(model, "mini", 8, 2),
        Data("digits"),
        Train(epochs=epochs, seed=seed),
        Order(scan=scan_name, policy=policy, **order),
    )
    run = RunDir(path)
    run.create(experiment)
    generator = torch.Generator().manual_seed(seed + 10 * len(scan_name + policy))
    correct = torch.rand(IMAGES, generator=generator) < accuracy
    if isinstance(accuracy, int):
        correct = torch.arange(IMAGES) < accuracy
    saved = orders.load(scan_name) if scan_name.endswith(".json") else None
    initial = saved.order if saved else scan(scan_name, *GRID)
    start = torch.empty(16)
    start[initial] = torch.linspace(0, -1, 16)
    moved = start + 0.3 * torch.randn(16, generator=generator) * (policy == "global")
    stages = ["warm-up", "policy", "frozen"] if policy in ("global", "noise") else ["fixed"] * 3
    run.write_metrics(
        [
            {
                "epoch": e + 1,
                "stage": stage,
                "temperature": 0.1,
                "kendall_tau_from_start": 1.0,
                "validation_top1": 0.1 * e,
                "validation_loss": 2.0 - e,
            }
            for e, stage in enumerate(stages)
        ]
    )
    logits = [start, start, moved, moved] if policy == "global" else [torch.empty(0)] * 4
    when = zip(range(4), ["before training", *stages], [0.0, *[0.1] * 3], logits, strict=True)
    run.write_policy(list(when), initial)
    run.write_correct(correct)
    value = correct.double().mean().item()
    summary = {"model": model, "size": "mini", "data": "digits", "grid": GRID, "scan": scan_name}
    summary |= {
        "policy": policy,
        "epochs": epochs,
        "seed": seed,
        "top1": value,
        "top1_sem": 0.06,
        "top5": 1.0,
    }
    summary |= {"parameters": 1000, "images_per_second": 100.0, "seconds": 60.0}
    summary |= {"order_file": saved.provenance} if saved else {}
    run.write_summary(summary | {"order": moved.argsort(descending=True, stable=True).tolist()})
    return run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two fixed scans, the noise control and the learned order, with three seeds each."""
    root = tmp_path_factory.mktemp("sweep")
    for seed in range(3):
        make_run(root / "study" / f"row-{seed}", "row", "none", seed, 0.5)
        make_run(root / "study" / f"column-{seed}", "column", "none", seed, 0.9)
        make_run(root / "study" / f"noise-{seed}", "row", "noise", seed, 0.6)
        make_run(root / "study" / f"learned-{seed}", "row", "global", seed, 0.7)
    return root


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two models with unequal seeds; of 60 images, 6 more that are right make 10 points."""
    root = tmp_path_factory.mktemp("study")
    right = {
        ("vit", "row", "none"): (30, 30, 36),
        ("vit", "column", "none"): (48, 42),  # the best, but for a seed that is missing
        ("vit", "spiral", "none"): (36, 36, 42),
        ("vit", "row", "noise"): (30, 36, 36),
        ("vit", "row", "global"): (42, 42, 42),
        ("vit", "learned", "none"): (48, 48, 48),
        ("mamba", "row", "none"): (24, 24, 24),
        ("mamba", "row", "global"): (36, 30),
    }
    for (model, start, policy), counts in right.items():
        for seed, count in enumerate(counts):
            name = str(root / f"vit-row-global-{seed}" / "order.json") if start == "learned" else start
            run = make_run(root / f"{model}-{start}-{policy}-{seed}", name, policy, seed, count, model)
            origin = {"scan": start, "policy": policy, "seed": seed}
            orders.save(run.path / "order.json", torch.tensor(run.summary()["order"]), GRID, origin)
    return root


def correct_of(root, name):
    return np.stack([np.load(root / "study" / f"{name}-{seed}" / "correct.npy") for seed in range(3)])


def test_a_sweeps_directory_is_expanded_to_its_runs(sweep):
    found = expand([sweep, sweep / "study" / "row-0"])
    assert len(found) == 12
    assert [run.path for run in expand([sweep / "study" / "row-0"])] == [sweep / "study" / "row-0"]
    with pytest.raises(ValueError, match="not a run directory, nor are there any in it"):
        expand([sweep / "study" / "row-0" / "nothing"])


def test_means_over_seeds_and_both_errors_by_hand(sweep):
    groups = by_order(collect(expand([sweep])).results)
    assert [name[2] for name in groups] == [
        "row, fixed",
        "column, fixed",
        "row, noise only",
        "learned from row",
    ]
    mean = top1(groups["vit mini", "digits 4x4", "learned from row"])
    correct = correct_of(sweep, "learned").astype(float)
    assert mean.value == pytest.approx(correct.mean())
    assert mean.seed_error == pytest.approx(stats.sem(correct.mean(1)))
    # the bootstrap over images: all seeds are judged on the same resample
    draws = np.random.default_rng(0).integers(0, IMAGES, (4000, IMAGES))
    assert mean.image_error == pytest.approx(correct.mean(0)[draws].mean(1).std(), rel=0.05)
    assert mean.seeds == 3
    assert top1(groups["vit mini", "digits 4x4", "row, fixed"][:1]).seed_error is None


def test_paired_differences_by_brute_force(sweep):
    found = {(c.kind, c.name[2]): c for c in compare(collect(expand([sweep])).results).comparisons}
    assert set(found) == {
        (ROW, "column, fixed"),
        (ROW, "row, noise only"),
        *((kind, "learned from row") for kind in (ROW, START, NOISE, BEST)),
    }
    partners = {ROW: "row", START: "row", NOISE: "noise", BEST: "column"}
    for kind, partner in partners.items():
        comparison = found[kind, "learned from row"]
        shares = correct_of(sweep, "learned").astype(float) - correct_of(sweep, partner)
        assert [pair.paired.difference for pair in comparison.pairs] == pytest.approx(shares.mean(1).tolist())
        assert comparison.mean.seed_error == pytest.approx(shares.mean(1).std(ddof=1) / np.sqrt(3))
        assert comparison.mean.image_error == pytest.approx(shares.mean(0).std() / np.sqrt(IMAGES))
        assert p_value(comparison.mean) == pytest.approx(stats.ttest_1samp(shares.mean(1), 0).pvalue)


def test_what_is_compared_in_a_study_of_two_models_by_hand(study):
    table = result_tables.differences_table(compare(collect(expand([study])).results))
    row, column, spiral, noise = "row, fixed", "column, fixed", "spiral, fixed", "row, noise only"
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
            (("vit", again, ROW, row), (30 + 30 + 20) / 3, third, 3),
            (("vit", learned, ROW, row), (20 + 20 + 10) / 3, third, 3),
            (("vit", learned, START, row), (20 + 20 + 10) / 3, third, 3),
            (("vit", learned, NOISE, noise), (20 + 10 + 10) / 3, third, 3),
            (("vit", learned, BEST, spiral), (10 + 10 + 0) / 3, third, 3),  # a learned order is no scan
            (("mamba", learned, ROW, row), (20 + 10) / 2, 5, 2),
            (("mamba", learned, START, row), (20 + 10) / 2, 5, 2),
            (("mamba", learned, BEST, row), (20 + 10) / 2, 5, 2),
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


def test_an_order_learned_further_is_compared_with_its_start_whatever_the_file(tmp_path):
    """Every seed reads the order that its own seed has learned, from another file."""
    for seed in range(3):
        file, origin = tmp_path / "orders" / f"{seed}.json", {"scan": "row", "policy": "global"}
        orders.save(file, scan("spiral", *GRID), GRID, origin)
        make_run(tmp_path / "runs" / f"fixed-{seed}", str(file), "none", seed, 30)
        if seed:
            make_run(tmp_path / "runs" / f"further-{seed}", str(file), "global", seed, 36)
    found = {c.kind: c for c in compare(collect(expand([tmp_path / "runs"])).results).comparisons}
    assert found[START].against == "order learned from row, fixed"
    assert [pair.a.seed for pair in found[START].pairs] == [1, 2]
    assert found[START].mean.value == pytest.approx(0.1)


def test_every_pair_that_a_study_lacks_is_said(study):
    one_side = "seed 2 only on one side, or on other images"
    assert sorted(compare(collect(expand([study])).results).notes) == [
        f"mamba mini, digits 4x4, against {BEST}: learned from row not compared: {one_side}.",
        f"mamba mini, digits 4x4, against {NOISE}: learned from row not compared: there is no such run.",
        f"mamba mini, digits 4x4, against {START}: learned from row not compared: {one_side}.",
        f"mamba mini, digits 4x4, against {ROW}: learned from row not compared: {one_side}.",
        # better than the one that was taken, and passed over
        f"vit mini, digits 4x4, against {BEST}: column, fixed not compared: {one_side}.",
        f"vit mini, digits 4x4, against {ROW}: column, fixed not compared: {one_side}.",
    ]


def test_unfinished_failed_and_damaged_runs_are_noted_not_fatal(sweep, tmp_path):
    make_run(tmp_path / "good")
    unfinished = make_run(tmp_path / "unfinished", seed=1)
    (unfinished.path / "summary.json").unlink()
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "log.txt").write_text("Traceback\nreorder: no such data\n")
    (make_run(tmp_path / "damaged", seed=2).path / "summary.json").write_text("{")
    (make_run(tmp_path / "blind", seed=3).path / "correct.npy").unlink()
    make_run(tmp_path / "zagain")
    found = collect(expand([tmp_path]))
    assert sorted(result.run.path.name for result in found.results) == ["blind", "good"]
    notes = {note.split(":")[0].rsplit("/", 1)[1]: note for note in found.notes}
    assert "not finished, 3 epochs done" in notes["unfinished"]
    assert "its log ends: reorder: no such data" in notes["failed"]
    assert "damaged" in notes["damaged"]
    assert "correct.npy" in notes["blind"]
    assert "the same run" in notes["zagain"]
    with pytest.raises(ValueError, match="none of the runs is finished"):
        collect(expand([tmp_path / "failed"]))


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
    pairs = {(c.kind, c.pairs[0].a.run.path.name): c.pairs[0].b.run.path.name for c in found.comparisons}
    assert pairs[NOISE, "warm"] == "noise"
    assert (NOISE, "cool") not in pairs
    assert (ROW, "column") not in pairs
    said = "\n".join(found.notes)
    assert "noise differs in order.temperature as well" in said
    assert "row differs in train.epochs as well" in said


def test_keys_that_change_nothing_are_not_compared(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", "column")
    text = (second.path / "config.yaml").read_text()
    (second.path / "config.yaml").write_text(text.replace("threads: 0", "threads: 2"))
    assert second.experiment().train.threads != first.experiment().train.threads
    assert len(compare(collect([first, second]).results).comparisons) == 1


def test_seeds_without_a_partner_are_noted(tmp_path):
    make_run(tmp_path / "row", "row", seed=0)
    make_run(tmp_path / "column-0", "column", seed=0)
    make_run(tmp_path / "column-1", "column", seed=1)
    found = compare(collect(expand([tmp_path])).results)
    assert len(found.comparisons[0].pairs) == 1
    assert p_value(found.comparisons[0].mean) is None
    assert "seed 1 only on one side" in found.notes[0]


def test_names_of_orders():
    summary = {"scan": "some/where/mine.json", "policy": "global"}
    assert order_name(summary) == "learned from mine.json"
    assert order_name({"scan": "row.json", "policy": "none"}) == "row.json, fixed"  # no scan of ours
    assert order_name({"scan": "runs/best-1/order.json", "policy": "none"}) == "best-1, fixed"
    learned = {"scan": "column", "policy": "global", "seed": 3}
    assert (
        order_name({"scan": "runs/best-1/order.json", "policy": "none", "order_file": learned})
        == "order learned from column, fixed"
    )
    assert order_name({"scan": "row", "policy": "random"}) == "random every batch"
    assert (
        order_name({"scan": "prior", "prior_scan": "snake", "policy": "noise"}) == "prior (snake), noise only"
    )


def test_a_report_is_made_from_small_files_alone(sweep, tmp_path, monkeypatch):
    counted = json.loads((Path(__file__).parents[1] / "docs" / "coverage.json").read_text())
    monkeypatch.setattr(report, "coverage", lambda: counted)
    copy = shutil.copytree(sweep, tmp_path / "copy")
    make_run(copy / "study" / "mamba", model="mamba")
    prior = {"grid": GRID, "orders": {}}
    for place, name in enumerate(("row", "column")):
        prior["orders"][name] = {"unigram": {"reduction": 20.0 + place, "reduction_sem": 0.1}, "entropy1": {}}
    (tmp_path / "prior.json").write_text(json.dumps(prior))
    options = Options(track=((1, 2),), priors=(tmp_path / "prior.json",))
    page, made = write_report(expand([copy]), tmp_path / "report", options)
    assert page.read_text().count("<table") >= 5
    names = ["orders", "sensitivity", "differences", "centre", "runs", "pairs"]
    assert [table.name for table in made] == names
    assert len((tmp_path / "report" / "runs.csv").read_text().splitlines()) == 14
    drawn = {path.name for path in (tmp_path / "report" / "figures").iterdir()}
    for name in ("change", "learning", "compressibility", "curves", "coverage", "scans-4x4"):
        assert {f"{name}.png", f"{name}.svg"} <= drawn
    policy = "policy-vit-mini-digits-4x4-learned-from-row-seed-0"
    assert {f"{policy}.png", f"{policy}.svg", f"{policy}.gif"} <= drawn
    small = {"config.yaml", "summary.json", "metrics.jsonl", "correct.npy", "policy.npz"}
    assert {path.name for path in copy.rglob("*") if path.is_file()} == small


def test_too_many_policies_are_not_all_drawn_which_is_said(sweep):
    learned = result_tables.policies(collect(expand([sweep])).results, [])
    notes = []
    assert [policy.result.seed for policy in policies_to_show(learned, notes)] == [0]
    many = [p._replace(result=p.result._replace(order=f"{n}")) for n in range(20) for p in learned]
    other = [p._replace(result=p.result._replace(model="mamba mini")) for p in many]
    shown = policies_to_show(many + other, notes)
    assert len(shown) == MOST_POLICIES
    assert [p.result.model for p in shown[:3]] == ["vit mini", "mamba mini", "vit mini"]
    assert "Of 120 learned runs, the policies of 12 are drawn" in notes[-1]


def test_the_centre_table_has_each_start_and_all_of_them(sweep):
    results = collect(expand([sweep])).results
    learned = result_tables.policies(results, [])
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
    (alone,) = result_tables.centre_table(learned[:1], None).rows
    assert part.rows[-1][2:5] == ("all starts", Number(1, digits=0), alone[4])
    assert part.notes == [
        "vit mini, digits 4x4: all 2 starts have 1 of the seeds in common; others are left out."
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


def test_a_radius_that_misses_a_grid_leaves_it_out_and_says_so(sweep):
    learned = result_tables.policies(collect(expand([sweep])).results, [])
    with pytest.raises(ValueError, match=r"no patch of a 4x4 grid lies within 0.5"):
        result_tables.centre_table(learned, 0.5)
    odd = [
        p._replace(
            result=p.result._replace(
                data="digits 3x3", summary=p.result.summary | {"grid": (3, 3), "order": list(range(9))}
            ),
            initial=np.arange(9),
        )
        for p in learned
    ]
    table = result_tables.centre_table(learned + odd, 0.5)
    assert [row[1] for row in table.rows] == ["digits 3x3"]
    assert table.notes == ["no patch of a 4x4 grid lies within 0.5 of its middle; widen --radius."]


def test_small_grids_come_first_and_top1_follows_the_names(sweep):
    results = collect(expand([sweep])).results
    fine = [result._replace(data="digits 14x14") for result in results[:1]]
    coarse = [result._replace(data="digits 7x7") for result in results[:1]]
    table = result_tables.orders_table(fine + coarse)
    assert table.headings[:3] == ("order", "model", "top-1 (%)")
    assert [row[4] for row in table.rows] == ["digits 7x7", "digits 14x14"]


def test_a_tiny_p_value_is_not_shown_as_zero():
    assert [str(PValue(p)) for p in (0.0004, 0.0006, 0.25)] == ["<0.001", "0.001", "0.250"]


def test_curves_of_many_panels_are_cut_and_those_of_one_are_told_by_colour_and_style(sweep):
    results = collect(expand([sweep])).results
    axes = charts.training_figure(results).axes
    assert len(axes) == 1
    looks = {(line.get_color(), line.get_linestyle()) for line in axes[0].lines}
    assert len(looks) == len(axes[0].lines) == 4
    many = [r._replace(data=f"digits {n}x{n}") for n in range(20) for r in results[:2]]
    assert len(charts.training_figure(many).axes) == charts.MOST_PANELS


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
    comparisons = compare(results).comparisons
    bars = charts.change_figure(comparisons).axes[0].containers
    expected = 100 * (correct_of(sweep, "column").mean() - correct_of(sweep, "row").mean())
    assert [container.patches[0].get_height() for container in bars if container.get_label() == "column"] == (
        pytest.approx([expected])
    )
    axes = charts.learning_figure(results).axes[0]
    heights = {c.get_label(): c.lines[0].get_ydata()[0] for c in axes.containers}
    assert heights["learned from it (REOrder)"] == pytest.approx(100 * correct_of(sweep, "learned").mean())
    assert heights["equal noise, nothing learned"] == pytest.approx(100 * correct_of(sweep, "noise").mean())
    curves = charts.training_figure(results).axes[0]
    assert curves.lines[0].get_ydata().tolist() == pytest.approx([0, 10, 20])


@pytest.mark.parametrize("content", ["{", "[]", '{"orders": {}}', '{"grid": [4, 4], "orders": [1]}'])
def test_a_file_that_is_no_prior_is_refused(tmp_path, content):
    (tmp_path / "prior.json").write_text(content)
    with pytest.raises(ValueError, match="is not the result of a prior"):
        charts.read_prior(tmp_path / "prior.json")


def test_scans_that_do_not_share_seeds_are_said_not_hidden(tmp_path):
    for seed in range(3):
        make_run(tmp_path / f"row-{seed}", "row", seed=seed, accuracy=0.5)
        make_run(tmp_path / f"column-{seed}", "column", seed=seed, accuracy=0.9)
    whole = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert (whole.rows[0][-1].value, whole.notes) == (3, [])
    make_run(tmp_path / "spiral-1", "spiral", seed=1, accuracy=0.9)
    part = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert part.rows == []
    assert part.notes == ["vit mini, digits 4x4: no test, which takes two seeds that all 3 scans have."]
    make_run(tmp_path / "spiral-2", "spiral", seed=2, accuracy=0.9)
    part = result_tables.sensitivity_table(collect(expand([tmp_path])).results)
    assert (part.rows[0][-1].value, part.rows[0][-2].value) == (2, 3)
    assert part.notes == [
        "vit mini, digits 4x4: all 3 scans have 2 of the seeds in common; others are left out."
    ]


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


def test_settings_of_a_policy_are_said_of_every_start(tmp_path):
    for start, heat in (("row", 0.2), ("row", 0.5), ("column", 0.2)):
        make_run(tmp_path / f"{start}-{heat}", start, "global", temperature=heat)
    assert [result.order for result in collect(expand([tmp_path])).results] == [
        "learned from column, order.temperature=0.2",
        "learned from row, order.temperature=0.2",
        "learned from row, order.temperature=0.5",
    ]


def test_files_of_one_name_with_other_orders_are_told_apart(tmp_path):
    for number, patches in enumerate((torch.arange(16), torch.arange(16), torch.arange(16).flip(0))):
        file = tmp_path / str(number) / "mine.json"
        orders.save(file, patches, GRID, {})
        make_run(tmp_path / "runs" / str(number), str(file))
    found = collect(expand([tmp_path / "runs"]))
    assert len(found.results) == 2
    assert len({result.order for result in found.results}) == 2
    assert found.notes == [f"{tmp_path}/runs/1: left out, for {tmp_path}/runs/0 is the same run."]


def test_two_orders_learned_from_one_scan_are_not_called_the_same_run(tmp_path):
    for number, patches in enumerate((torch.arange(16), torch.arange(16).flip(0))):
        file = tmp_path / str(number) / "order.json"
        orders.save(file, patches, GRID, {"scan": "column", "policy": "global", "seed": 0})
        make_run(tmp_path / "runs" / str(number), str(file))
    found = collect(expand([tmp_path / "runs"]))
    assert found.notes == [
        f"{tmp_path}/runs/1: left out, for {tmp_path}/runs/0 reads another order of the same name."
    ]


def test_bars_of_orders_that_are_no_scans_look_different(tmp_path):
    make_run(tmp_path / "row")
    for number in range(3):
        orders.save(tmp_path / f"{number}.json", torch.randperm(16), GRID, {})
        make_run(tmp_path / f"run-{number}", str(tmp_path / f"{number}.json"))
    bars = charts.change_figure(compare(collect(expand([tmp_path])).results).comparisons).axes[0].patches
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
    priors = {path: charts.read_prior(path) for path in sorted(tmp_path.iterdir())}
    four, eight, nine = priors
    drawn = charts.compressibility_figure(results + fine, [priors[four], priors[eight]]).axes
    assert [axes.get_title() for axes in drawn] == ["digits 4x4", "digits 8x8"]
    assert charts.prior_notes(results + fine, {four: priors[four], eight: priors[eight]}) == []
    assert charts.prior_notes(results + fine, {eight: priors[eight], nine: priors[nine]}) == [
        f"{nine}: no fixed order of its data and 9x9 patches to draw it against.",
        "digits 4x4: no --prior of it was given.",
    ]
    assert charts.prior_notes(results, {}) == []
