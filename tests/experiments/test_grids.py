"""Grids of runs, named by content; bad input is refused before anything starts."""

import json
import re
import sys
from pathlib import Path

import pytest
from tiny_sweeps import TINY, tasks

from reorder.cli import app, main
from reorder.config import Experiment, build
from reorder.experiments.arguments import full_key, plans_of, split_values
from reorder.experiments.grids import last_line, name_of, tasks_of, why_unusable, with_threads
from reorder.experiments.presets import preset
from reorder.runs.directory import RunDir

pytestmark = pytest.mark.slow  # it trains, or starts processes


def test_a_grid_is_every_combination(tmp_path):
    plans, name = plans_of(["digits", "model.name=vit,mamba", "scan=row,column", "seed=0,1,2"])
    assert name == "digits-sweep"
    found = [(p.experiment.model.name, p.experiment.order.scan, p.experiment.train.seed) for p in plans]
    assert found == [(m, s, n) for m in ("vit", "mamba") for s in ("row", "column") for n in (0, 1, 2)]
    runs = tasks_of(plans, tmp_path)
    assert len(runs) == 12
    assert not any(run.experiment.train.compare for run in runs)  # the grid is the comparison


def test_a_file_and_a_study_take_values_too(tmp_path):
    (tmp_path / "mine.yaml").write_text("model: {size: mini, image_size: 8, patch_size: 4}\n")
    plans, name = plans_of([str(tmp_path / "mine.yaml"), "seed=4,5"])
    assert (name, [plan.experiment.train.seed for plan in plans]) == ("mine-sweep", [4, 5])
    plans, name = plans_of(["laptop/random", "train.epochs=2", "seed=7"])
    both = [run for plan in plans for run in plan if run is not None]
    assert {(run.train.epochs, run.train.seed) for run in both} == {(2, 7)}
    assert len(tasks_of(plans, tmp_path)) == 14  # seeds 0, 1 and 2 became one


def test_runs_on_data_of_other_roots_or_from_the_prior_have_other_names(tmp_path):
    plans, _ = plans_of(["digits", "data.name=idx", "data.root=/data/mnist,/data/fashion,/else/mnist"])
    tasks = tasks_of(plans, tmp_path)
    assert [task.experiment.data.root for task in tasks] == ["/data/mnist", "/data/fashion"]
    plans, _ = plans_of(["digits", "scan=prior,row", "policy=none", "order.learning_rate=0.1,0.2"])
    tasks = tasks_of(plans, tmp_path)  # a fixed order has no use for a learning rate
    assert [task.experiment.order.scan for task in tasks] == ["prior", "row"]


def test_a_study_of_two_datasets_finds_both_below_one_root():
    plans, _ = plans_of(["paper/orders", "data.root=/data"])
    assert {plan.experiment.data.root for plan in plans} == {"/data/imagenet", "/data/fmow"}
    (plan, *_), _ = plans_of(["paper/no-flips", "data.root=/data/imagenet"])
    assert plan.experiment.data.root == "/data/imagenet"


def test_values_and_short_keys():
    assert split_values("8,[8,16],{a: [1,2], b: 3},x") == ["8", "[8,16]", "{a: [1,2], b: 3}", "x"]
    assert [full_key(key) for key in ("seed", "scan", "patch_size")] == [
        "train.seed",
        "order.scan",
        "model.patch_size",
    ]
    plans, _ = plans_of(["model.image_size=8,[8,16]", "model.patch_size=4"])
    assert [plan.experiment.model.image_shape for plan in plans] == [(8, 8), (8, 16)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["laptop/order"], "laptop/orders"),
        (["digits", "name=vit"], "model.name or data.name"),
        (["digits", "learning_rate=1"], "train.learning_rate or order.learning_rate"),
        (["digits", "sead=1"], "seed"),
        (["digits", "seed=0,"], "a value is missing"),
        (["digits", "seed"], "not a key=value"),
        (["digits", "seed=0", "train.seed=1"], "given twice"),
        (["digits", "seed=0,x"], "train.seed"),
        (["digits", "scan=row,rwo"], "unknown scan 'rwo'"),
        (["digits", "model.name=vit", "model.options.window=4"], "unknown option 'window'"),
        (["digits", "model.name=vit,vot"], "unknown model 'vot'"),
        (["digits", "model.patch_size=3"], "3"),
        (["digits", "scan=missing.json"], "cannot read"),
        (["digits", "train.compare=true"], "leave train.compare away"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(arguments, says, tmp_path):
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        tasks(arguments, tmp_path)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_name_says_what_a_run_is_and_stays():
    run = build(preset("digits"), overrides=["order.estimator=scaled", "order.learning_rate=1e-2"])
    # Names found on disk must be found again: this one is written down, hash and all.
    assert name_of(run) == "transformer_xl-digits-4x4-hilbert-global-s0-b76e4b39"
    same = ["data.workers=3", "data.root=/elsewhere", "train.threads=2", "train.track=wandb", "train.keep=9"]
    assert name_of(build(run, overrides=[*same, "train.checkpoint_minutes=1"])) == name_of(run)
    fashion = [f"data.root={root}" for root in ("null", "/here/fashion-mnist", "/there/mnist")]
    names = [name_of(build(run, overrides=["data.name=idx", root])) for root in fashion]
    assert names[0] == names[1] != names[2]
    other = ["train.epochs=41", "train.seed=1", "order.estimator=paper", "model.options.segment=4"]
    names = {name_of(build(run, overrides=[override])) for override in other}
    assert len(names | {name_of(run)}) == 5
    assert any("-segment4-" in name for name in names)


def test_an_order_file_counts_by_what_it_says(tmp_path):
    runs = []
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / f"{name}.json").write_text(content)
        runs.append(build(preset("digits"), overrides=[f"order.scan={tmp_path / name}.json"]))
    a, b, c = (name_of(run).rpartition("-")[2] for run in runs)
    assert a == b != c


def test_a_directory_of_another_run_is_refused(tmp_path):
    (task,) = tasks(TINY, tmp_path)
    changed = build(task.experiment, overrides=["train.epochs=2"])
    task.directory.create(with_threads(task._replace(experiment=changed), 1).experiment)  # as a sweep does
    assert "train.epochs is 2, not 1" in why_unusable(task)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("model.options.patch_size=4", "model.options.patch_size is no option of a backbone"),
        ("data.name=digitz", "digitz"),
        ("train.precision=float16", "train.precision=float16 needs a GPU"),
        ("train.batch_size=100000", "train.batch_size=100000 is more than the 1437 training images"),
    ],
)
def test_what_every_run_would_fail_of_is_said_once_before_any_starts(argument, says, tmp_path):
    arguments = [*TINY[:4], argument, "seed=0,1"]
    with pytest.raises(ValueError, match=says):
        app(["sweep", *arguments, "--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()


def test_the_last_line_of_a_run_under_torchrun_is_its_own(tmp_path):
    (task,) = tasks(TINY, tmp_path)
    task.directory.path.mkdir()
    log = task.directory.path / "log.txt"
    for text, words in (
        ("reorder: stopped\nTraceback:\n  x()\nKeyError: 3\n\n", "KeyError: 3"),
        (
            "epoch 1\nreorder: no space is left\n====\nFAILED\n----\ntime: 1\n====\n",
            "reorder: no space is left",
        ),
        ("\n", "it printed nothing"),
    ):
        log.write_text(text)
        assert last_line(task) == words


def test_the_dry_run_lists_what_is_to_do_and_says_when_it_cannot_measure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    app(["sweep", *TINY, "scan=row,column", "--out", "out", "--dry-run"], standalone_mode=False)
    *lines, total = capsys.readouterr().out.splitlines()
    assert [re.sub(r"-\w{8}  ", " ", line).split(", about")[0] for line in lines] == [
        "transformer_xl-digits-2x2-row-s0 new",
        "transformer_xl-digits-2x2-column-s0 new",
    ]
    assert re.fullmatch(r"2 runs, 0 finished; about \d+:\d\d:\d\d with .*", total)
    app(["sweep", "paper/random", "--dry-run"], standalone_mode=False)
    *lines, total = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert "the time cannot be measured here: " in total
    assert "data.root" in total
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["digits", "seed=0,"], "a value is missing"),
        (["digits", "--slurm-option", "partition=gpu"], "--slurm-option is for --slurm"),
        (["digits", "--jobs", "0"], "--jobs"),
        (["digits", "--jobs", "2", "--slurm"], "--jobs is for this machine"),
    ],
)
def test_the_command_refuses_bad_input_in_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reorder", "sweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output, errors = capsys.readouterr()
    assert (ended.value.code, output) == (2, "")
    assert says in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_studies_are_listed_with_their_runs(capsys):
    app(["sweep", "--list"], standalone_mode=False)
    listed = capsys.readouterr().out
    assert re.search(r"^paper/orders +48 runs +\S", listed, re.MULTILINE)
    assert re.search(r"^laptop/orders +144 runs +\S", listed, re.MULTILINE)


def test_defaults_have_no_name_of_their_own():
    """A key that is added with a default later must not rename the runs there are."""
    assert name_of(Experiment()).rpartition("-")[2] == "44136fa3"  # sha256 of "{}"


PUBLISHED = Path(__file__).parent / "published.json"  # names and configurations of older runs


def test_published_runs_are_found_under_the_names_they_were_given(tmp_path):
    """Their configurations lack keys that came later; every key of today must leave their names alone."""
    published = json.loads(PUBLISHED.read_text())
    assert len(published) > 30
    for name, configuration in published.items():
        (tmp_path / "config.yaml").write_text(configuration)
        experiment = RunDir(tmp_path).experiment()
        if not experiment.order.scan.endswith(".json"):
            assert name_of(experiment) == name


@pytest.mark.parametrize(
    ("change", "read_by"),
    [
        ("order.inverse_logits=true", ["global", "noise"]),
        ("order.temperature_advances=epoch", ["global", "noise"]),
        ("order.clip=5", ["global"]),
        ("train.hold_epochs=2", ["none", "global", "noise", "random"]),
    ],
)
def test_the_release_s_keys_count_where_they_are_read(change, read_by):
    for policy in ("none", "global", "noise", "random"):
        run = build(preset("digits"), overrides=["order.estimator=paper", f"order.policy={policy}"])
        assert (name_of(build(run, overrides=[change])) != name_of(run)) == (policy in read_by)


def test_where_the_baseline_starts_counts_only_for_runs_that_learn():
    run = preset("digits")
    zero = ["order.baseline_start=zero"]
    assert name_of(build(run, overrides=["order.baseline_start=first"])) == name_of(run)
    assert name_of(build(run, overrides=zero)) != name_of(run)
    for policy in ("none", "noise", "random"):
        other = build(run, overrides=[f"order.policy={policy}"])
        assert name_of(build(other, overrides=zero)) == name_of(other)
