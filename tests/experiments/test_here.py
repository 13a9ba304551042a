"""Runs side by side in processes: skipped, continued, tried again, stopped, and shown meanwhile."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live
from tiny_sweeps import LONG, TINY, learned, needs_proc, tasks, training_in, wait_for
from written_runs import make_run

from reorder.cli import app, main
from reorder.experiments import here as processes
from reorder.experiments.grids import start
from reorder.experiments.here import Failed, Machine, Sweep, Working, run_here

pytestmark = pytest.mark.slow  # it trains, or starts processes


def test_jobs_share_all_cores_however_many_are_asked_for(monkeypatch):
    monkeypatch.setattr(processes, "cores", lambda: 64)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    found = [Machine(jobs, runs) for jobs, runs in ((None, 100), (None, 4), (8, 2), (8, 100))]
    assert [(machine.jobs, machine.threads) for machine in found] == [(64, 1), (4, 16), (2, 32), (8, 8)]


def test_every_process_has_a_gpu_of_those_that_may_be_seen(monkeypatch):
    def seen(gpus, jobs=None, visible=None):
        """The GPU that each process of six runs sees, None for any."""
        monkeypatch.setattr("torch.accelerator.is_available", lambda: gpus > 0)
        monkeypatch.setattr("torch.accelerator.device_count", lambda: gpus)
        monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        machine = Machine(jobs, 6)
        environments = [machine.environment(slot) for slot in range(machine.jobs)]
        assert all(environment.keys() <= {"CUDA_VISIBLE_DEVICES"} for environment in environments)
        return [environment.get("CUDA_VISIBLE_DEVICES") for environment in environments]

    assert seen(4) == ["0", "1", "2", "3"]
    assert seen(4, jobs=6) == ["0", "1", "2", "3", "0", "1"]
    assert seen(2, visible="6,GPU-8f") == ["6", "GPU-8f"]
    assert seen(1, jobs=2, visible="3") == ["3", "3"]
    assert seen(0, jobs=2) == [None, None]
    assert seen(0, jobs=2, visible="") == [None, None]


def test_finished_runs_are_skipped_and_failed_ones_reported_and_tried_again(tmp_path, capsys, monkeypatch):
    def sweep(*arguments):
        monkeypatch.setattr(
            sys, "argv", ["reorder", "sweep", *TINY, *arguments, "--out", str(tmp_path / "out")]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, "".join(capsys.readouterr())

    row, column = tasks([*TINY, "scan=row,column"], tmp_path / "out")
    status, output = sweep("scan=row")
    assert (status, row.finished) == (0, True), output
    written = (row.directory.path / "summary.json").stat().st_mtime_ns
    column.directory.path.mkdir()
    (column.directory.path / "checkpoints").write_text("in the way")  # no checkpoint can be written
    status, output = sweep("scan=row,column", "--jobs", "2")
    assert status == 1, output
    assert "1 of 2 runs are finished already" in output
    (failure,) = re.findall(rf"^failed {column.name}: (.*)$", output, re.MULTILINE)
    assert "checkpoints" in failure
    assert failure in (column.directory.path / "log.txt").read_text()
    assert f"reorder: 1 of 2 runs failed, the first: {column.directory.path}/log.txt: {failure}" in output
    (column.directory.path / "checkpoints").unlink()
    status, output = sweep("scan=row,column")
    assert (status, column.finished) == (0, True), output
    assert f"started {column.name}" in output
    assert f"started {row.name}" not in output
    assert (row.directory.path / "summary.json").stat().st_mtime_ns == written


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_killed_run_is_reported_and_ctrl_c_leaves_the_rest_resumable(tmp_path):
    row, column = tasks([*LONG, "scan=row,column"], tmp_path / "out")
    command = [
        sys.executable,
        "-m",
        "reorder",
        "sweep",
        *LONG,
        "scan=row,column",
        "--out",
        "out",
        "--jobs",
        "2",
    ]
    sweep = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: row.epochs_done and column.epochs_done)
        (victim,) = training_in(row.directory.path)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: not training_in(row.directory.path))
        time.sleep(0.5)
        sweep.send_signal(signal.SIGINT)
        output, errors = sweep.communicate(timeout=120)
    finally:
        sweep.kill()
    assert sweep.returncode == 130, output + errors
    assert f"failed {row.name}: killed by SIGKILL" in output
    assert "2 of 2 runs remain; continue with: reorder sweep digits" in output
    assert not training_in(tmp_path)  # nothing trains on
    assert "stopped by SIGTERM and saved" in (column.directory.path / "log.txt").read_text()
    before = [task.epochs_done for task in (row, column)]
    assert min(before) >= 1
    # The next sweep goes on from there.
    sweep = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: row.epochs_done > before[0] and column.epochs_done > before[1])
        sweep.terminate()
        output, errors = sweep.communicate(timeout=120)
    finally:
        sweep.kill()
    assert sweep.returncode == 143, output + errors
    for task, epochs in zip((row, column), before, strict=True):
        assert f"started {task.name}, after epoch {epochs}" in output
        assert "continues after step" in (task.directory.path / "log.txt").read_text()


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_second_ctrl_c_ends_at_once_what_does_not_end_by_itself(tmp_path):
    runs = tasks([*LONG, "scan=row,column"], tmp_path / "out")
    command = ["sweep", *LONG, "scan=row,column", "--out", "out", "--jobs", "2"]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "reorder", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: all(task.epochs_done for task in runs))
        training = [pid for task in runs for pid in training_in(task.directory.path)]
        assert len(training) == 2
        for pid in training:
            os.kill(pid, signal.SIGSTOP)  # they cannot save, as if the disk hung
        sweep.send_signal(signal.SIGINT)
        said = next(line for line in sweep.stdout if line.startswith("stopping"))
        assert said == "stopping: 2 runs are being saved; Ctrl-C again ends them at once\n"
        assert sweep.poll() is None
        sweep.send_signal(signal.SIGINT)
        _, errors = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
    assert (sweep.returncode, errors) == (130, "")
    wait_for(lambda: not training_in(tmp_path), seconds=30)


def test_two_sweeps_do_not_train_a_run_twice(tmp_path, capsys):
    (task,) = tasks(TINY, tmp_path)
    lock = task.directory.lock()
    assert task.directory.lock() is None
    training = start(task, lock, [sys.executable], {})  # what another sweep does
    os.close(lock)
    assert task.directory.lock() is None  # the run's own process holds it, should its sweep be killed
    with pytest.raises(ValueError, match="is being trained by another process"):  # by hand
        app(["train", "--resume", str(task.directory.path), "train.keep=5"], standalone_mode=False)
    assert task.directory.experiment().train.keep == 2  # nothing was changed either
    assert app(["sweep", *TINY, "--out", str(tmp_path)], standalone_mode=False) is None
    output = capsys.readouterr().out
    assert f"{task.name} is being trained by another process" in output
    assert "started" not in output
    assert f"finished {task.name}: " in output
    assert training.wait(10) == 0


def test_a_run_that_reads_a_learned_order_waits_for_it_or_fails_with_it(tmp_path):
    teacher, pupil = learned(tmp_path)
    assert (pupil.needs, teacher.needs) == (teacher.name, None)
    assert "-learned-s0-" in pupil.name
    said = Console(record=True, file=io.StringIO(), width=300)
    run_here([pupil, teacher], Machine(2, 2), said, "the same")
    order = json.loads((teacher.directory.path / "order.json").read_text())["order"]
    assert pupil.directory.summary()["order"] == order
    events = [line.split(":")[0] for line in said.export_text().splitlines()[:4]]
    expected = [f"{what} {task.name}" for task in (teacher, pupil) for what in ("started", "finished")]
    assert events == expected
    # Moved as a whole, both are recognised: the path of the order is no part of the name.
    assert [task.name for task in learned(tmp_path / "elsewhere")] == [teacher.name, pupil.name]
    shutil.rmtree(teacher.directory.path)
    shutil.rmtree(pupil.directory.path)
    teacher.directory.path.mkdir()
    (teacher.directory.path / "checkpoints").write_text("in the way")
    with pytest.raises(Failed, match=f"2 of 2 runs failed, the first: {teacher.directory.path}/log.txt: "):
        run_here([pupil, teacher], Machine(2, 2), said, "the same")
    assert f"failed {pupil.name}: it needs the order that {teacher.name} did not learn" in said.export_text()


def test_one_bad_directory_among_many_fails_its_own_run_alone(tmp_path, monkeypatch):
    (tmp_path / "sound").mkdir()
    sound = make_run(tmp_path / "sound" / "run").summary()
    several = tasks([*TINY, "seed=0,1,2,3,4"], tmp_path / "out")
    summary, config, metrics, locked, other = several
    for task in several:
        task.directory.create(task.experiment)
    summary.directory.write_summary({"top1": "high"})
    (config.directory.path / "config.yaml").write_bytes(b"\0\0\0")
    (metrics.directory.path / "metrics.jsonl").write_bytes(b"{\n")
    (locked.directory.path / ".lock").mkdir()
    other.directory.create(summary.experiment)

    def trained(task, *_):
        task.directory.write_summary(sound)
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(processes, "start", trained)
    said = Console(record=True, file=io.StringIO(), width=400)
    sweep = Sweep(several, Machine(1, 5), said)
    sweep.run()
    assert sweep.done == {metrics.name}
    assert 'summary.json is damaged: it lacks "model"' in sweep.failed[summary.name]
    assert "config.yaml is damaged: " in sweep.failed[config.name]
    assert "cannot lock " in sweep.failed[locked.name]
    assert "holds a run of another configuration (train.seed is 0, not 4)" in sweep.failed[other.name]


class Screen(io.StringIO):
    """A terminal, and a clock that goes only while the sweep sleeps: a minute each time, with an event."""

    def __init__(self, events):
        super().__init__()
        self.events, self.seconds, self.live = events, 0.0, None

    def show(self, **options):
        self.live = Live(**options, auto_refresh=False)
        return self.live

    def work(self, *what):
        return Working(*what, began=self.seconds)

    def monotonic(self):
        return self.seconds

    def sleep(self, _):
        self.live.refresh()
        self.seconds += 60
        self.events.pop(0)()

    def lines(self):
        """All that was ever written, without colours and movements."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [" ".join(line.split()) for line in re.split(r"[\r\n]+", plain)]


def test_the_screen_says_what_runs_what_is_done_what_failed_and_how_long_is_left(tmp_path, monkeypatch):
    early, good, bad, slow = tasks([*TINY[:3], "train.epochs=4", "seed=0,1,2,3"], tmp_path)
    status = {}  # of the processes that ended
    sound = make_run(tmp_path / "sound").summary()

    def trained(task, *top1):
        task.directory.create(task.experiment)
        task.directory.write_metrics(
            [{"epoch": 1, "validation_top1": value, "validation_loss": 1.0} for value in top1]
        )

    def finish(task, top1):
        trained(task, 0.1, 0.2, 0.3, top1)
        task.directory.write_summary(sound | {"top1": top1})
        status[task.name] = 0

    def after_a_minute():
        trained(good, 0.25, 0.625)
        (bad.directory.path / "log.txt").write_text("epoch 1\nreorder: no space is left\n\n")
        status[bad.name] = 2

    def after_two():
        finish(good, 0.81)
        trained(slow, 0.5)

    finish(early, 0.9)
    trained(bad, 0.1, 0.2)  # by an earlier sweep: no part of what this one gains
    screen = Screen([after_a_minute, after_two, lambda: finish(slow, 0.7), lambda: None])
    monkeypatch.setattr(processes, "time", screen)
    monkeypatch.setattr(processes, "Live", screen.show)
    monkeypatch.setattr(processes, "Working", screen.work)
    monkeypatch.setattr(
        processes, "start", lambda task, *_: SimpleNamespace(poll=lambda: status.get(task.name))
    )
    console = Console(file=screen, force_terminal=True, width=100, height=24)
    Sweep([early, good, bad, slow], Machine(2, 4), console).run()
    expected = [
        f"started {good.name}",
        f"started {bad.name}, after epoch 2",
        "1 of 4 done, 0 failed, 1 waiting, time left: unknown",
        f"failed {bad.name}: reorder: no space is left",
        f"started {slow.name}",
        f"{good.name} 2 of 4 62.5% 0:01:00",
        "1 of 4 done, 1 failed, 0 waiting, time left: 0:03:00",  # half a run in 60 s; 1.5 are left
        f"finished {good.name}: top-1 81.0%, in 0:02:00",
        f"{slow.name} 1 of 4 50.0% 0:01:00",
        "2 of 4 done, 1 failed, 0 waiting, time left: 0:01:12",  # 1.25 runs in 120 s; 0.75 are left
        f"finished {slow.name}: top-1 70.0%, in 0:02:00",
    ]
    first_seen = list(dict.fromkeys(line for line in screen.lines() if line in expected))
    assert first_seen == expected, screen.lines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_shows_whole_names_on_a_narrow_terminal_at_the_cost_of_a_column(tmp_path, width):
    options = ["model.options.dropout=0.0", "model.options.memory=16", "model.options.segment=8"]
    runs = tasks([*TINY, *options, "seed=0,1"], tmp_path)
    screen = Console(file=io.StringIO(), width=width, record=True)
    sweep = Sweep(runs, Machine(2, 2), screen)
    sweep.working = [Working(task, None, 0) for task in runs]
    screen.print(sweep.table())
    heading, _, *rows, _ = screen.export_text().splitlines()
    columns = ["running", "epoch", "validation", "top-1", *(["time"] if width > 60 else [])]
    assert heading.split() == columns
    assert "".join(row.split()[0] for row in rows) == "".join(task.name for task in runs)
