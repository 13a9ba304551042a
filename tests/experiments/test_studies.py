"""Studies: the runs of the paper's tables, and their small twins."""

from collections import Counter
from pathlib import Path

import pytest

from reorder.config import build
from reorder.experiments.grids import tasks_of
from reorder.experiments.presets import preset
from reorder.experiments.studies import STUDIES

SCANS = ["row", "column", "hilbert", "spiral", "diagonal", "snake"]


@pytest.mark.parametrize("name", STUDIES)
def test_every_run_of_every_study_can_be_built(name, tmp_path):
    tasks = tasks_of(STUDIES[name](), tmp_path)  # builds the models and the orders, too
    assert len({task.name for task in tasks}) == len(tasks)
    for task in tasks[:: len(tasks) // 3]:
        assert build(task.experiment, overrides=[]) == task.experiment  # survives being written and read
    assert STUDIES[name].__doc__.endswith(".")


@pytest.mark.parametrize("kind", ["paper", "release"])
@pytest.mark.parametrize(("study", "end"), [("orders", ""), ("reorder", "-reorder")])
def test_the_main_studies_are_the_main_presets(kind, study, end):
    models, data = ["vit", "transformer_xl", "longformer", "mamba"], ["imagenet", "fmow"]
    names = [f"{kind}/{m}-{d}-{scan}{end}" for m in models for d in data for scan in SCANS]
    runs = [plan.experiment for plan in STUDIES[f"{kind}/{study}"]()]
    assert len(runs) == 48
    assert all(preset(name) in runs for name in names)


@pytest.mark.parametrize(
    ("study", "ends"),
    [
        ("paper/no-flips", [f"{scan}{end}-no-flips" for scan in SCANS for end in ("", "-reorder")]),
        ("paper/300-epochs", ["row", "row-reorder", "row-300-epochs", "row-reorder-300-epochs"]),
        ("paper/random", ["row", "row-reorder", "random", "random-every-batch"]),
    ],
)
def test_the_ablations_are_the_presets_of_that_name(study, ends):
    runs = [plan.experiment for plan in STUDIES[study]() if plan.learned_from is None]
    assert runs == [preset(f"paper/transformer_xl-imagenet-{end}") for end in ends]


def test_the_learned_order_of_the_paper_is_that_of_the_run_from_column_major():
    (plan,) = (plan for plan in STUDIES["paper/random"]() if plan.learned_from is not None)
    assert plan.learned_from == preset("paper/transformer_xl-imagenet-column-reorder")
    task = tasks_of([plan], Path("/runs"))[1]
    assert task.experiment.order.scan == f"/runs/{task.needs}/order.json"
    assert task.experiment.order.policy == "none"


def kinds(study):
    """How many runs there are of each model, grid and policy."""
    runs = [plan.experiment for plan in STUDIES[study]() if plan.learned_from is None]
    return Counter(
        (run.model.name, str(run.model.options), 28 // run.model.patch_size, run.order.policy) for run in runs
    )


def test_the_laptop_twins_have_every_kind_six_scans_and_on_7x7_three_seeds():
    expected = {
        ("vit", "{}"),
        ("transformer_xl", "{'dropout': 0.0}"),
        ("mamba", "{}"),
        ("mamba", "{'scans': 1, 'readout': 'last'}"),
    }
    short = {7: {"segment": 4, "memory": 8}, 14: {"segment": 8, "memory": 16}}
    window = {7: 4, 14: 14}
    for study, policy in (("orders", "none"), ("reorder", "global"), ("noise", "noise")):
        for side, count in ((7, 18), (14, 6)):
            kind = {("transformer_xl", str(short[side] | {"dropout": 0.0}))}
            kind |= expected | {("longformer", str({"window": window[side], "dropout": 0.0}))}
            found = {key: value for key, value in kinds(f"laptop/{study}").items() if key[2] == side}
            assert found == {(*each, side, policy): count for each in kind}


def test_a_study_that_ends_early_has_whole_comparisons():
    runs = [plan.experiment for plan in STUDIES["laptop/reorder"]()]
    first = {(run.order.scan, run.model.patch_size) for run in runs[:18]}
    assert first == {("row", 4)}
    assert Counter(run.train.seed for run in runs[:18]) == {0: 6, 1: 6, 2: 6}


def test_the_twin_of_a_longer_run_is_longer_by_as_much_and_learns_in_the_same_steps():
    runs = [plan.experiment for plan in STUDIES["laptop/300-epochs"]()]
    lengths = {run.train.epochs for run in runs}
    assert max(lengths) == 3 * min(lengths)
    learning = {
        (
            round(run.train.epochs * run.order.warmup_fraction, 6),
            round(run.train.epochs * run.order.policy_fraction, 6),
            round(run.order.learning_rate, 9),
        )
        for run in runs
        if run.order.policy != "none"
    }
    assert len(learning) == 1


@pytest.mark.parametrize("scale", ["paper", "laptop"])
def test_the_control_of_reorder_is_the_same_runs_without_learning(scale):
    learned, control = STUDIES[f"{scale}/reorder"](), STUDIES[f"{scale}/noise"]()
    assert {plan.experiment.order.policy for plan in learned} == {"global"}
    assert [build(plan.experiment, overrides=["order.policy=noise"]) for plan in learned] == [
        plan.experiment for plan in control
    ]


def test_the_control_of_an_ablation_differs_from_the_policy_in_nothing_but_learning():
    runs = [plan.experiment for plan in STUDIES["laptop/no-flips"]()]
    assert {run.data.augment for run in runs} == {"none"}
    learn = [build(run, overrides=["order.policy=noise"]) for run in runs if run.order.policy == "global"]
    assert learn == [run for run in runs if run.order.policy == "noise"]


def test_readouts():
    runs = [plan.experiment for plan in STUDIES["laptop/readout"]()]
    seen = Counter((run.model.options.get("scans", 4), run.model.options.get("readout")) for run in runs)
    readouts = ("middle", "last", "mean")
    assert seen == {(4, None): 18, (1, "first"): 18} | {(n, out): 18 for n in (4, 1) for out in readouts}
    orders = [plan.experiment for plan in STUDIES["laptop/orders"]()]
    assert sum(run in orders for run in runs) == 36  # which need not be run again
