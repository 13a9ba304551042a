"""Sweeps of real, tiny runs: named by content, skipped, continued, tried again, stopped, submitted."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live

from reorder import processes
from reorder.cli import app, main
from reorder.config import Experiment, build
from reorder.presets import preset
from reorder.processes import Machine, Sweep, Working, run_here
from reorder.slurm import _parameter, grouped, submit
from reorder.studies import Planned
from reorder.sweep import (
    full_key,
    last_words,
    name_of,
    plans_of,
    split_values,
    start,
    tasks_of,
    with_threads,
)

TINY = [
    "digits",
    "policy=none",
    "model.patch_size=4",
    "train.epochs=1",
    "batch_size=512",
    "threads=1",
]
LONG = [*TINY[:3], "train.epochs=5000", *TINY[4:]]


def tasks(arguments, out):
    return tasks_of(plans_of(arguments)[0], out)


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Grids


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


def test_runs_on_data_of_other_roots_or_from_the_prior_are_told_apart(tmp_path):
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


# Names


def test_a_name_says_what_a_run_is_and_stays():
    run = preset("digits")
    # Names found on disk must be found again: this one is written down, hash and all.
    assert name_of(run) == "transformer_xl-digits-4x4-hilbert-global-s0-b76e4b39"
    same = ["data.workers=3", "data.root=/elsewhere", "train.threads=2", "train.track=wandb", "train.keep=9"]
    assert name_of(build(run, overrides=[*same, "train.checkpoint_minutes=1"])) == name_of(run)
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
    with pytest.raises(ValueError, match=r"train.epochs is 2, not 1"):
        tasks(TINY, tmp_path)


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


def test_jobs_share_all_cores_however_many_are_asked_for(monkeypatch):
    monkeypatch.setattr(processes, "cores", lambda: 64)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    found = [Machine(jobs, runs) for jobs, runs in ((None, 100), (None, 4), (8, 2), (8, 100))]
    assert [(machine.jobs, machine.threads) for machine in found] == [(64, 1), (4, 16), (2, 32), (8, 8)]


def test_the_last_words_of_a_run_under_torchrun_are_its_own(tmp_path):
    (task,) = tasks(TINY, tmp_path)
    task.directory.path.mkdir()
    log = task.directory.path / "log.txt"
    for text, words in (
        ("reorder: stopped\nTraceback:\n  x()\nKeyError: 3\n\n", "KeyError: 3"),
        (
            "epoch 1\nreorder: no space is left\n====\nFAILED\n----\ntime: 1\n====\n",
            "reorder: no space is left",
        ),
        ("\n", "it said nothing"),
    ):
        log.write_text(text)
        assert last_words(task) == words


# Runs


def test_finished_runs_are_skipped_and_failed_ones_reported_and_tried_again(tmp_path, capsys):
    def sweep(*arguments):
        status = app(["sweep", *TINY, *arguments, "--out", str(tmp_path / "out")], standalone_mode=False)
        return status or 0, capsys.readouterr().out

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
    assert "1 of 2 runs failed" in output
    (column.directory.path / "checkpoints").unlink()
    status, output = sweep("scan=row,column")
    assert (status, column.finished) == (0, True), output
    assert f"started {column.name}" in output
    assert f"started {row.name}" not in output
    assert (row.directory.path / "summary.json").stat().st_mtime_ns == written


def pids_of(text):
    """Processes whose command line has a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")


@needs_proc
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
        (victim,) = pids_of(f"--resume {row.directory.path}")
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: not pids_of(f"--resume {row.directory.path}"))
        time.sleep(0.5)
        sweep.send_signal(signal.SIGINT)
        output, errors = sweep.communicate(timeout=120)
    finally:
        sweep.kill()
    assert sweep.returncode == 130, output + errors
    assert f"failed {row.name}: killed by SIGKILL" in output
    assert "2 of 2 runs remain; continue with: reorder sweep digits" in output
    assert not pids_of(f"--resume {tmp_path}")  # nothing trains on
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


def learned(out, policy="global"):
    """A run that reads, from the start, what another has learned."""
    teacher = build(preset("digits"), overrides=[f"order.policy={policy}", *_full(TINY[2:])])
    plain = build(teacher, overrides=["order.policy=none"])
    return tasks_of([Planned(plain, learned_from=teacher)], out)


def _full(overrides):
    keys = [override.partition("=") for override in overrides]
    return [f"{full_key(key)}={value}" for key, _, value in [*keys, ("train.compare", "", "false")]]


def test_a_run_that_reads_a_learned_order_waits_for_it_or_fails_with_it(tmp_path):
    teacher, pupil = learned(tmp_path)
    assert (pupil.needs, teacher.needs) == (teacher.name, None)
    assert "-learned-s0-" in pupil.name
    said = Console(record=True, file=io.StringIO(), width=300)
    assert run_here([pupil, teacher], Machine(2, 2), said, "the same")
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
    assert not run_here([pupil, teacher], Machine(2, 2), said, "the same")
    assert f"failed {pupil.name}: it needs the order that {teacher.name} did not learn" in said.export_text()


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

    def trained(task, *top1):
        task.directory.create(task.experiment)
        task.directory.write_metrics([{"validation_top1": value} for value in top1])

    def finish(task, top1):
        trained(task, 0.1, 0.2, 0.3, top1)
        task.directory.write_summary({"top1": top1})
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
        f"{good.name} 2 of 4 62.5 0:01:00",
        "1 of 4 done, 1 failed, 0 waiting, time left: 0:03:00",  # half a run in 60 s; 1.5 are left
        f"finished {good.name}: top-1 81.0%, in 0:02:00",
        f"{slow.name} 1 of 4 50.0 0:01:00",
        "2 of 4 done, 1 failed, 0 waiting, time left: 0:01:12",  # 1.25 runs in 120 s; 0.75 are left
        f"finished {slow.name}: top-1 70.0%, in 0:02:00",
    ]
    first_seen = list(dict.fromkeys(line for line in screen.lines() if line in expected))
    assert first_seen == expected, screen.lines()


def test_runs_that_differ_in_their_seed_are_told_apart_in_80_columns(tmp_path):
    options = ["model.options.dropout=0.0", "model.options.memory=16", "model.options.segment=8"]
    runs = tasks([*TINY, *options, "seed=0,1"], tmp_path)
    screen = Console(file=io.StringIO(), width=80, record=True)
    sweep = Sweep(runs, Machine(2, 2), screen)
    sweep.working = [Working(task, None, 0) for task in runs]
    screen.print(sweep.table())
    _, _, *rows, _ = screen.export_text().splitlines()
    assert "".join(row.split()[0] for row in rows) == "".join(task.name for task in runs)


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


# Slurm, with submitit's local executor in its place


def test_a_job_is_a_run_and_those_that_read_its_order(tmp_path):
    teacher, pupil = learned(tmp_path)
    (alone,) = tasks(TINY, tmp_path)
    assert grouped([alone, teacher, pupil]) == [[alone], [teacher, pupil]]


@needs_proc
def test_a_preempted_job_saves_its_run_and_goes_on_when_queued_again(tmp_path):
    pytest.importorskip("submitit")
    (task,) = tasks([*LONG, "checkpoint_minutes=1000"], tmp_path)
    (job,) = submit([task], tmp_path / "slurm", ["timeout_min=10"], cluster="local")
    log = task.directory.path / "log.txt"
    wait_for(lambda: task.epochs_done >= 1)
    (training,) = pids_of(f"--resume {task.directory.path}")
    (inside,) = pids_of(f"submitit.core._submit {tmp_path / 'slurm'}")
    os.kill(training, signal.SIGUSR2)  # what Slurm sends before the time is over, on some clusters to all
    os.kill(inside, signal.SIGUSR2)
    wait_for(lambda: "continues after step" in log.read_text())
    assert "stopped by SIGTERM and saved" in log.read_text()
    (again,) = pids_of(f"--resume {task.directory.path}")
    assert again != training
    # SIGTERM to the job's own process, the first that Slurm does to a job it preempts: saved, and on it goes.
    os.kill(pids_of(f"submitit.core._submit {tmp_path / 'slurm'}")[0], signal.SIGTERM)
    wait_for(lambda: log.read_text().count("continues after step") == 2)
    # A run that dies makes its job fail.
    (third,) = pids_of(f"--resume {task.directory.path}")
    os.kill(third, signal.SIGKILL)
    assert f"RuntimeError: {task.name}" in str(job.exception())


def test_a_job_ends_with_its_run(tmp_path):
    pytest.importorskip("submitit")
    (task,) = tasks(TINY, tmp_path)
    (job,) = submit([task], tmp_path / "slurm", [], cluster="local")
    assert job.result() is None
    assert task.finished
    assert submit([task], tmp_path / "slurm", [], cluster="local") == []


def test_what_slurm_cannot_be_asked_for_is_said_in_one_line(tmp_path):
    pytest.importorskip("submitit")
    (task,) = tasks(TINY, tmp_path)
    for option, says in (
        ("partition", "takes key=value"),
        ("gpus_per_node=many", "gpus_per_node"),
        ("colour=red", "colour"),
        ("time=1:30:00", "use timeout_min=MINUTES"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            submit([task], tmp_path / "slurm", [option], cluster="local")
        assert "\n" not in str(error.value)
    if shutil.which("srun") is None:
        with pytest.raises(ValueError, match="there are none on this machine"):
            submit([task], tmp_path / "slurm", [])


def test_what_is_no_number_stays_as_it_was_typed():
    typed = ["account=01234", "constraint=yes", "qos=1e3", "mem_gb=1.5", "gpus_per_node=4", "exclusive=true"]
    assert [_parameter(option) for option in [*typed, "setup=[module load cuda]"]] == [
        ("slurm_account", "01234"),
        ("slurm_constraint", "yes"),
        ("slurm_qos", "1e3"),
        ("mem_gb", 1.5),
        ("gpus_per_node", 4),
        ("slurm_exclusive", True),
        ("slurm_setup", ["module load cuda"]),
    ]


def test_defaults_have_no_name_of_their_own():
    """A key that is added with a default later must not rename the runs there are."""
    assert name_of(Experiment()).rpartition("-")[2] == "44136fa3"  # sha256 of "{}"
