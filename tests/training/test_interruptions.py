"""What may interrupt a run: kills at any moment, signals, a full disk; it goes on as if nothing had been."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from short_runs import (
    OVERRIDES,
    QUIET,
    assert_same,
    experiment,
    on_pictures,
    stop_after,
    weights,
    without_times,
)
from tiny_sweeps import needs_proc, wait_for

from reorder.data.progress import Display
from reorder.data.ranks import ALONE
from reorder.experiments.comparison import compared_tasks, train_in_turn
from reorder.runs import directory as run_dir
from reorder.runs.directory import RunDir
from reorder.training import loop as training
from reorder.training import setup as running
from reorder.training import signals
from reorder.training import trackers as track
from reorder.training.checkpoint import restore, save
from reorder.training.continuing import continued, reopen
from reorder.training.signals import Stopped, StopSignals

pytestmark = pytest.mark.slow  # it trains, or starts processes


def test_a_full_disk_leaves_the_last_checkpoint_and_the_run_continues(whole, tmp_path, monkeypatch):
    directory = RunDir(tmp_path / "run")
    save_file, saved = run_dir.save_file, []

    def full(tensors, path):
        if len(saved) == 1:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        saved.append(path)
        save_file(tensors, path)

    monkeypatch.setattr(run_dir, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        training.train(experiment(), directory, QUIET)
    assert [p.name for p in directory.path.glob("checkpoints/step-*")] == ["step-000000005"]
    assert not list(directory.path.glob("checkpoints/*.tmp"))
    monkeypatch.setattr(run_dir, "save_file", save_file)
    training.train(experiment(), directory, QUIET)
    assert_same(directory, whole)


def test_an_average_of_weights_goes_on_where_a_run_stopped(tmp_path, monkeypatch):
    whole, directory = RunDir(tmp_path / "whole"), RunDir(tmp_path / "run")
    training.train(experiment(ema=0.9), whole, QUIET)
    stop_after(monkeypatch, 7)
    with pytest.raises(Stopped):
        training.train(experiment(ema=0.9), directory, QUIET)
    assert (directory.path / "checkpoints" / "latest").read_text() == "step-000000007"
    training.train(experiment(ema=0.9), directory, QUIET)
    assert_same(directory, whole)


def test_a_finished_run_can_be_made_longer(whole, tmp_path):
    directory = RunDir(tmp_path / "run")
    training.train(experiment(), directory, QUIET)
    longer = continued(directory.experiment(), ["train.epochs=6"])
    assert (longer.order.warmup_fraction, longer.order.policy_fraction) == pytest.approx((0.075, 0.15))
    directory.reopen(longer)
    assert json.loads((directory.path / "summary-3-epochs.json").read_text())["epochs"] == 3
    summary = training.train(longer, directory, QUIET)
    lines = directory.metrics()
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert without_times(lines[:3]) == without_times(whole.metrics())
    # 15 of now 30 steps are done, 2 of them warm-up: the cosine is back where a run of 30 has it.
    assert lines[3]["learning_rate"] == pytest.approx(1e-3 * (1 + np.cos(np.pi * (19 - 2) / 28)))
    assert {line["stage"] for line in lines[3:]} == {"frozen"}
    assert summary["order"] == whole.summary()["order"]
    with pytest.raises(ValueError, match=r"train.epochs=2 is less than the run's 6 epochs"):
        continued(longer, ["train.epochs=2"])
    with pytest.raises(ValueError, match=r"--resume cannot change 'model.name'; it may change train.epochs"):
        continued(longer, ["model.name=vit"])


def test_the_stages_of_a_run_that_is_made_longer_stay_at_their_very_steps(tmp_path):
    # 0.45 * 30 = 13.5 steps are 13; as a part of 50 steps they would be rounded to 14.
    directory, plan = RunDir(tmp_path / "run"), experiment(epochs=6)
    directory.create(plan)
    save(running.setup(plan), directory)
    longer = running.setup(continued(plan, ["train.epochs=10"]))
    restore(longer, directory, QUIET)
    assert (longer.learner.start_step, longer.learner.stop_step) == (4, 13)


def test_a_run_continues_on_another_number_of_processes(whole, tmp_path, monkeypatch):
    directory = RunDir(tmp_path / "run")
    stop_after(monkeypatch, 7)
    with pytest.raises(Stopped):
        training.train(experiment(), directory, QUIET)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "reorder", "train", "--resume", str(directory.path), "train.keep=3"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "continues after step 7 of 15" in done.stdout
    assert directory.experiment().train.keep == 3
    assert directory.summary()["order"] == whole.summary()["order"]
    for ours, theirs in zip(directory.metrics(), whole.metrics(), strict=True):
        for key in ("loss", "top1"):  # of the second epoch too, which both had a part in
            assert ours[key] == pytest.approx(theirs[key], abs=2e-3)
    np.testing.assert_allclose(directory.policy().logits, whole.policy().logits, atol=1e-4)
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(directory)[name], tensor, atol=2e-3, rtol=1e-2)


def test_a_closed_terminal_stops_a_run_unless_it_is_to_outlive_it():
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with StopSignals().watched() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.number == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with StopSignals().watched() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.number == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_slurm_job_asks_to_be_started_again(tmp_path, monkeypatch, capsys):
    command = tmp_path / "scontrol"
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    signals.requeue()
    assert not (tmp_path / "asked").exists()  # not a job of Slurm's
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    signals.requeue()
    assert (tmp_path / "asked").read_text() == "requeue 42\n"
    (tmp_path / "asked").unlink()
    monkeypatch.setenv("RANK", "1")
    signals.requeue()
    assert not (tmp_path / "asked").exists()  # one rank asks for all
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    signals.requeue()
    assert "cannot requeue job 42" in capsys.readouterr().err  # in a container without Slurm's commands


def test_a_signal_to_all_processes_stops_a_run_that_then_continues_with_other_workers(pictures, tmp_path):
    whole, directory = RunDir(tmp_path / "whole"), RunDir(tmp_path / "run")
    reorder = [sys.executable, "-m", "reorder"]
    subprocess.run([*reorder, *on_pictures(pictures), "--out", whole.path, "--quiet"], check=True)
    process = subprocess.Popen(
        [*reorder, *on_pictures(pictures, "train.checkpoint_minutes=0"), "--out", directory.path],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(directory.path.glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGTERM)  # as Slurm does: the workers and what forks them get it too
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert errors == "reorder: stopped by SIGTERM and saved; the same command, or --resume, continues\n"
    assert directory.summary() is None
    changes = ["data.workers=0", "train.checkpoint_minutes=10"]
    subprocess.run([*reorder, "train", "--resume", directory.path, *changes, "--quiet"], check=True)
    assert_same(directory, whole)


def group_lives(number):
    """Whether any process of a group is left."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def forked_in(group):
    """Processes of a group whose parent is of the group, but not its first process: decoding workers."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, member_of, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(member_of) == group:
            parents[int(path.parent.name)] = int(parent)
    return [pid for pid, parent in parents.items() if parent in parents and parent != group]


@needs_proc
def test_a_killed_run_leaves_no_workers_behind(pictures, tmp_path):
    long = on_pictures(pictures, "train.epochs=5000", "train.checkpoint_minutes=0")
    every_epoch = "from reorder.data.datasets import Kept; Kept.largest = 0"  # or they are needed but once
    code = f"{every_epoch}; from reorder.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *long, "--out", tmp_path / "run", "--quiet"],
        start_new_session=True,
    )
    try:
        wait_for(lambda: list(tmp_path.glob("run/checkpoints/step-*")) and forked_in(process.pid))
        assert process.poll() is None
        process.kill()
        process.wait()
        wait_for(lambda: not group_lives(process.pid), seconds=30)
    finally:
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_file_too_large_for_the_disk_is_one_line_and_leaves_nothing_half_written(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))"
    code = f"{limit}; from reorder.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "digits", *OVERRIDES, "--out", tmp_path / "run"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("reorder: cannot write a checkpoint to ")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []


def stop_in_validation(monkeypatch, at):
    """Have a signal come when the validation images are looked at for the `at`-th time."""
    validate, looks = running.Loader.validate, []

    def signalled(loader):
        looks.append(loader)
        if len(looks) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        yield from validate(loader)

    monkeypatch.setattr(running.Loader, "validate", signalled)


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_signal_during_validation_does_not_wait_for_its_end(whole, tmp_path, monkeypatch, epoch):
    directory = RunDir(tmp_path / "run")
    stop_in_validation(monkeypatch, epoch)
    with pytest.raises(Stopped):
        training.train(experiment(), directory, QUIET)
    assert (directory.path / "checkpoints" / "latest").read_text() == f"step-{5 * epoch:09d}"
    assert len(directory.metrics()) == epoch - 1  # the line of the epoch waits for its validation
    training.train(experiment(), directory, QUIET)
    assert_same(directory, whole)


def test_a_signal_at_the_end_of_a_run_also_stops_those_that_follow_it(tmp_path, monkeypatch):
    tasks = compared_tasks(experiment(epochs=1, compare=True), RunDir(tmp_path / "run"))
    stop_in_validation(monkeypatch, 1)
    with pytest.raises(Stopped):
        train_in_turn(tasks, QUIET, ALONE)
    assert not (tmp_path / "run" / "fixed-row").exists()
    train_in_turn(tasks, QUIET, ALONE)
    assert all(task.finished for task in tasks)


def test_every_epoch_is_tracked_although_the_run_was_stopped(tmp_path, monkeypatch):
    sent = []

    class Recorder(track.Nowhere):
        def log(self, metrics, step):
            sent.append(step)

    monkeypatch.setitem(track.TRACKERS, "none", lambda *_: Recorder())
    directory = RunDir(tmp_path / "run")

    def killed(run, where):
        save(run, where)
        if run.step == 10:
            raise RuntimeError("killed")

    monkeypatch.setattr(training, "save", killed)
    with pytest.raises(RuntimeError, match="killed"):
        training.train(experiment(), directory, QUIET)
    assert sent == [5]
    monkeypatch.setattr(training, "save", save)
    training.train(experiment(), directory, QUIET)
    assert sent == [5, 10, 15]


def test_runs_that_are_compared_are_continued_together(tmp_path, capsys):
    directory = RunDir(tmp_path / "run")
    first = experiment(epochs=1, compare=["noise", "row", "learned"])
    train_in_turn(compared_tasks(first, directory), QUIET, ALONE)
    longer = reopen(directory, ["train.epochs=2"], Display())
    assert "1 epochs become 2: the learning rate goes on where the longer cosine" in capsys.readouterr().out
    tasks = compared_tasks(longer, directory)
    train_in_turn(tasks, QUIET, ALONE)
    assert [task.epochs_done for task in tasks] == [2, 2, 2, 2]


def test_checkpoints_are_also_written_every_so_many_steps(tmp_path):
    directory = RunDir(tmp_path / "run")
    training.train(experiment(checkpoint_steps=2, keep=9), directory, QUIET)
    steps = [int(path.name[5:]) for path in sorted(directory.path.glob("checkpoints/step-*"))]
    assert steps == [2, 4, 5, 6, 8, 10, 12, 14, 15]


@pytest.mark.parametrize("keep", [1, 2])
def test_damaged_checkpoints_do_not_push_out_sound_ones(tmp_path, keep):
    directory = RunDir(tmp_path / "run")
    training.train(experiment(keep=9), directory, QUIET)
    folder = directory.path / "checkpoints"
    (folder / "step-000000015" / "sha256.json").write_text("{}")
    checkpoint, damaged = directory.load_checkpoint()
    assert (checkpoint.state["step"], damaged) == (10, ["step-000000015"])
    directory.save_checkpoint(11, checkpoint._replace(state=checkpoint.state | {"step": 11}), keep)
    kept = sorted(path.name for path in folder.glob("step-*"))
    assert kept == ["step-000000010", "step-000000011"][-keep:]
    assert directory.load_checkpoint()[1] == []
