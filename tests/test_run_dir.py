"""Run directories: what a kill leaves, who may write, who may read."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from short_runs import QUIET, experiment
from torture import kill_self, watch_calls

from reorder import run_dir
from reorder import train as training
from reorder.display import Display
from reorder.run_dir import Checkpoint, RunDir


def forked(work):
    """Do something in a process of its own; its status, negative for the signal that killed it."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("keep", [1, 2])
def test_a_kill_before_any_call_leaves_the_newest_whole_checkpoint(whole, tmp_path, keep):
    """Steps 5 and, twice, 10; the second time is killed before every call in turn."""
    (tensors, state), _ = whole.load_checkpoint()
    small = {"model.head.bias": tensors["model.head.bias"]}
    state["optimizer"] = {"state": {}, "param_groups": []}

    def numbered(step, number):
        return Checkpoint(small, state | {"step": step, "skipped": number})

    for at_call in range(1, 200):
        directory = RunDir(tmp_path / str(at_call))
        directory.path.mkdir()
        directory.save_checkpoint(5, numbered(5, 0), keep)
        directory.save_checkpoint(10, numbered(10, 0), keep)

        def again(directory=directory, at_call=at_call):
            watch_calls(str(directory.path), at_call, kill_self)
            directory.save_checkpoint(10, numbered(10, 1), keep)

        status = forked(again)
        found, damaged = directory.load_checkpoint()
        assert (found.state["step"], damaged) == (10, []), at_call
        for step, number in ((10, 2), (11, 3)):
            directory.save_checkpoint(step, numbered(step, number), keep)
            assert directory.load_checkpoint()[0].state["skipped"] == number
        left = sorted(path.name for path in (directory.path / "checkpoints").iterdir())
        assert left == ["latest", *["step-000000010", "step-000000011"][-keep:]]
        shutil.rmtree(directory.path)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert 10 < at_call < 199


def test_kills_full_disks_and_other_writers_change_nothing():
    script = Path(__file__).parent / "torture.py"
    counts = ["--calls", "10", "--times", "2", "--signals", "2", "--full", "2", "--writers", "1"]
    done = subprocess.run([sys.executable, script, *counts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_drops_checkpoints_meanwhile_is_read_all_the_same(whole, tmp_path, monkeypatch):
    directory = RunDir(shutil.copytree(whole.path, tmp_path / "run"))
    read, looked = run_dir.read_checkpoint, []

    def slow(path):
        if not looked:
            looked.append(path)
            checkpoint = read(path)
            newer = checkpoint._replace(state=checkpoint.state | {"step": 16})
            directory.save_checkpoint(16, newer, keep=1)
        return read(path)

    monkeypatch.setattr(run_dir, "read_checkpoint", slow)
    checkpoint, damaged = directory.load_checkpoint()
    assert (checkpoint.state["step"], damaged) == (16, [])


def test_checkpoints_follow_the_umask(whole, tmp_path):
    checkpoint, _ = whole.load_checkpoint()
    directory, before = RunDir(tmp_path), os.umask(0o027)
    try:
        directory.save_checkpoint(15, checkpoint, keep=2)
    finally:
        os.umask(before)
    folder = directory.path / "checkpoints" / "step-000000015"
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == dict.fromkeys(("weights.safetensors", "state.pt", "sha256.json"), 0o640)
    assert folder.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt", "sha256.json"])
def test_a_checkpoint_that_one_may_not_read_is_not_called_damaged(whole, name):
    with tempfile.TemporaryDirectory() as root:
        directory = RunDir(shutil.copytree(whole.path, Path(root) / "run"))
        newest = directory.path / "checkpoints" / "step-000000015" / name
        newest.chmod(0)
        os.chmod(root, 0o755)

        def refused():
            if os.geteuid() == 0:
                os.setuid(65534)  # who may read everything has to be another user
            with pytest.raises(ValueError, match=f"^cannot read {newest}: Permission denied$"):
                directory.load_checkpoint()

        assert forked(refused) == 0


def test_without_a_lock_nothing_is_trained(tmp_path, monkeypatch):
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"^cannot lock .*run: .*\.lock: Is a directory; choose a directory"):
        training.train(experiment(), RunDir(tmp_path / "run"), QUIET)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]

    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(ValueError, match=r": No locks available; choose a disk with file locks$"):
        training.train(experiment(), RunDir(tmp_path / "other"), QUIET)
    assert [path.name for path in (tmp_path / "other").iterdir()] == [".lock"]


def meanwhile(monkeypatch, act):
    """Have another process be quicker: between the look at the directory and the lock."""
    setup = training.setup

    def slow(*arguments):
        act()
        return setup(*arguments)

    monkeypatch.setattr(training, "setup", slow)


def test_a_directory_is_looked_at_again_when_it_is_locked(whole, tmp_path, monkeypatch):
    directory = RunDir(tmp_path / "run")
    meanwhile(monkeypatch, lambda: shutil.copytree(whole.path, directory.path))
    with pytest.raises(ValueError, match="holds a run of another configuration"):
        training.train(experiment(seed=1), directory, QUIET)
    assert directory.experiment().train.seed == directory.summary()["seed"] == 0


def test_a_run_that_another_process_has_finished_is_not_trained_again(whole, tmp_path, monkeypatch, capsys):
    directory = RunDir(tmp_path / "run")
    meanwhile(monkeypatch, lambda: shutil.copytree(whole.path, directory.path))
    monkeypatch.setattr(training, "train_run", None)
    assert training.train(experiment(), directory, Display()) == whole.summary()
    assert "was finished by another process" in capsys.readouterr().out


@pytest.mark.parametrize("trained", ["", "fixed-row"])
def test_a_run_is_not_changed_while_it_or_one_beside_it_is_trained(whole, tmp_path, trained):
    directory = RunDir(shutil.copytree(whole.path, tmp_path / "run"))
    shutil.copytree(whole.path, directory.path / "fixed-row")
    before = (directory.path / "config.yaml").read_text()
    with (
        RunDir(directory.path / trained).locked(),
        pytest.raises(ValueError, match="is being trained by another process"),
    ):
        training.reopen(directory, ["train.epochs=6"], QUIET)
    assert (directory.path / "config.yaml").read_text() == before
    assert (directory.path / "summary.json").exists()
    training.reopen(directory, ["train.epochs=6"], QUIET)
    assert RunDir(directory.path / "fixed-row").experiment().train.epochs == 6


def test_a_checkpoint_from_before_is_read(whole, tmp_path):
    """What older versions left: a half-written directory of a fixed name, and no second of a step."""
    directory = RunDir(shutil.copytree(whole.path, tmp_path / "run"))
    (directory.path / "checkpoints" / "unfinished.tmp").mkdir()
    checkpoint, damaged = directory.load_checkpoint()
    assert (checkpoint.state["step"], damaged) == (15, [])
    state = checkpoint.state.copy()
    del state["wall_seconds"]
    directory.save_checkpoint(15, checkpoint._replace(state=state), keep=2)
    assert torch.equal(
        directory.load_checkpoint()[0].tensors["model.head.bias"], checkpoint.tensors["model.head.bias"]
    )
    assert not list(directory.path.glob("checkpoints/*.tmp"))


def test_a_link_among_the_checkpoints_is_removed_and_not_what_it_leads_to(whole, tmp_path):
    directory, precious = RunDir(shutil.copytree(whole.path, tmp_path / "run")), tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    (directory.path / "checkpoints" / "unfinished.tmp").symlink_to(precious)
    (directory.path / "checkpoints" / "step-000000099").symlink_to(precious)
    checkpoint, damaged = directory.load_checkpoint()
    assert damaged == ["step-000000099"]
    directory.save_checkpoint(20, checkpoint, keep=1)
    assert [path.name for path in directory.path.glob("checkpoints/step-*")] == ["step-000000020"]
    assert (precious / "file").read_text() == "mine"
