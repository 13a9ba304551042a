"""A run and those it is compared with: which they are, where they go, and that each is as trained alone."""

import dataclasses
import signal
import subprocess
import sys

import pytest
import torch
from short_runs import OVERRIDES, QUIET, assert_same
from tiny_sweeps import needs_proc, wait_for

from reorder.config import build
from reorder.experiments.arms import ARMS, comparison
from reorder.experiments.comparison import compared_tasks
from reorder.experiments.presets import preset
from reorder.orders.files import save_order
from reorder.orders.scans import SCANS
from reorder.runs.directory import LOCKED, RunDir
from reorder.training import loop as training

SHORT = [key for key in OVERRIDES if not key.startswith(("train.compare", "train.epochs"))]


def compared(*names, **order):
    """digits, which learns from hilbert, with arms or `true`, and another order section."""
    base = build(preset("digits"), overrides=["train.epochs=5"])
    base = dataclasses.replace(base, order=dataclasses.replace(base.order, **order))
    return dataclasses.replace(base, train=dataclasses.replace(base.train, compare=list(names) or True))


def orders(experiment):
    """The scan and policy of each arm."""
    plans = {name: plan.experiment.order for name, plan in comparison(experiment).items()}
    return {name: (order.scan, order.policy) for name, order in plans.items()}


def test_true_means_the_start_and_row_major_fixed_and_nothing_without_a_policy():
    assert orders(compared()) == {"start": ("hilbert", "none"), "row": ("row", "none")}
    assert orders(compared(scan="row")) == {"start": ("row", "none")}
    assert orders(compared(policy="none")) == {}
    assert orders(build(compared(), overrides=["train.compare=false"])) == {}


def test_every_arm_has_its_order_and_all_else_of_the_run():
    run = compared(*ARMS)
    found = comparison(run)
    assert {name: found[name].experiment.order for name in ("column", "random", "noise", "paper")} == {
        "column": dataclasses.replace(run.order, scan="column", policy="none"),
        "random": dataclasses.replace(run.order, scan="random", policy="none"),
        "noise": dataclasses.replace(run.order, policy="noise"),
        "paper": dataclasses.replace(run.order, estimator="paper"),
    }
    assert set(found) == {"start", *SCANS, "random", "noise", "paper", "learned"} - {"hilbert"}  # the start
    for plan in found.values():
        arm = plan.experiment
        assert (arm.model, arm.data, arm.train.compare) == (run.model, run.data, False)
        assert dataclasses.replace(arm.train, compare=run.train.compare) == run.train
    assert found["learned"].learned_from.order == run.order


def test_an_arm_that_is_the_run_itself_or_another_one_is_left_out():
    assert orders(compared("noise", "row", policy="noise")) == {"row": ("row", "none")}
    assert orders(compared("hilbert", "start", "start")) == {"hilbert": ("hilbert", "none")}
    assert orders(compared("row", "noise", policy="none", scan="row")) == {"noise": ("row", "noise")}
    assert orders(compared("paper", estimator="paper")) == {}
    with pytest.raises(ValueError, match=r"train.compare: unknown arm 'nose'; choose from start, row"):
        comparison(compared("nose"))


def test_arms_are_in_directories_of_the_run_and_former_names_stay(tmp_path):
    file, directory = tmp_path / "a.json", RunDir(tmp_path / "run")
    save_order(file, torch.arange(16), (4, 4))
    main, *found = compared_tasks(compared("start", "row", "noise", "learned"), directory)
    assert main.experiment.train.compare == ["start", "row", "noise", "learned"]  # for whoever continues it
    names = ["fixed-hilbert", "fixed-row", "noise", "fixed-learned"]
    assert [task.name for task in (main, *found)] == ["run", *(f"run/{name}" for name in names)]
    assert [task.directory.path for task in (main, *found)] == [tmp_path / t.name for t in (main, *found)]
    assert [task.needs for task in (main, *found)] == [None, None, None, None, "run"]
    learned = dataclasses.replace(found[0].experiment.order, scan=str(directory.path / "order.json"))
    assert found[-1].experiment.order == learned
    _, *found = compared_tasks(compared(scan=str(file)), directory)
    assert [task.name for task in found] == ["run/fixed-start", "run/fixed-row"]
    assert not directory.path.exists()


def test_a_process_that_was_started_for_the_run_alone_leaves_its_arms_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(LOCKED, str(tmp_path / "run"))
    assert [task.name for task in compared_tasks(compared(), RunDir(tmp_path / "run"))] == ["run"]


def test_an_arm_whose_directory_holds_another_run_is_refused(tmp_path):
    other = build(compared(policy="none", scan="row"), overrides=["train.seed=5", "train.compare=false"])
    RunDir(tmp_path / "run" / "fixed-row").create(other)
    RunDir(tmp_path / "run").create(build(compared(), overrides=["train.threads=3"]))  # the same run
    with pytest.raises(ValueError, match=r"fixed-row holds a run of another .*train.seed is 5, not 0"):
        compared_tasks(compared(), RunDir(tmp_path / "run"))


@pytest.mark.slow
@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_side_by_side_stopped_and_continued_each_is_as_if_trained_alone(tmp_path):
    command = [sys.executable, "-m", "reorder", "train", "digits", *SHORT, "train.epochs=16"]
    command += ["train.compare=[row,learned]", "train.threads=1", "--out", "run", "--no-report"]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (tmp_path / "run" / "fixed-row" / "metrics.jsonl").exists())
        first.send_signal(signal.SIGINT)
        said, errors = first.communicate(timeout=900)
    finally:
        first.kill()
    assert first.returncode == 130, said + errors
    assert "3 of 3 runs remain; continue with: reorder train digits " in said
    assert errors.startswith("reorder: stopped by SIGINT and saved; the same command, or --resume, continues")
    resumed = [sys.executable, "-m", "reorder", "train", "--resume", "run", "--no-report", "--quiet"]
    second = subprocess.run(resumed, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    directory = RunDir(tmp_path / "run")
    tasks = compared_tasks(directory.experiment(), directory)
    for task in tasks:
        alone = RunDir(tmp_path / "alone" / task.name)
        training.train(task.experiment, alone, QUIET)
        assert_same(task.directory, alone)
    assert tasks[2].directory.summary()["order"] == tasks[0].directory.summary()["order"]


@pytest.mark.slow
def test_several_ranks_train_the_runs_in_turn(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "reorder", "train", "digits", *SHORT, "train.epochs=1", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = [line.split("  ")[0] for line in done.stdout.splitlines() if "epoch 1/1" in line]
    assert said == ["learned from column", "column, fixed", "row, fixed"]
    assert "row, fixed" in (tmp_path / "run" / "report" / "orders.md").read_text()
