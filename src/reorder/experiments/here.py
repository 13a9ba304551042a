"""A sweep on this machine: so many processes at a time, a table of them on the terminal, and a clean end."""

import os
import signal
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table

from reorder.data.ranks import cores
from reorder.experiments.grids import Task, clock, last_line, start, why_unusable, with_threads
from reorder.training.signals import Stopped, StopSignals

POLL_SECONDS = 0.2
NARROW = 72  # columns of a terminal


class Failed(Exception):
    """Some runs of a sweep failed; `status` is what to exit with."""

    status = 1


class Process(Protocol):
    """What trains a run."""

    pid: int

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...


class Starter(Protocol):
    def start(self, task: Task, lock: int, slot: int) -> Process:
        """Start a locked run in a free slot of the machine."""


class Machine:
    """How the cores, or the GPUs, of this machine are divided among `jobs` processes."""

    def __init__(self, jobs: int | None, runs: int):
        devices = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        numbers = visible.split(",") if visible else [str(number) for number in range(devices)]
        self.gpus = numbers if torch.cuda.is_available() else []
        # Small models gain little from a second thread, so a core each; by all runs, not by those that are
        # left, so that a sweep that is continued computes with as many threads as before.
        self.jobs = min(runs, jobs or devices or cores())
        self.threads = max(1, cores() // self.jobs)

    def environment(self, slot: int) -> dict[str, str]:
        """What the process in a slot is to see."""
        return {"CUDA_VISIBLE_DEVICES": self.gpus[slot % len(self.gpus)]} if self.gpus else {}

    def start(self, task: Task, lock: int, slot: int) -> Process:
        """Start a locked run in a process of its own."""
        return start(with_threads(task, self.threads), lock, [sys.executable], self.environment(slot))


@dataclass
class Working:
    task: Task
    process: Process
    slot: int
    began: float = field(default_factory=time.monotonic)


class Sweep:
    """Runs in all their states; `run()` brings them to an end."""

    def __init__(self, tasks: list[Task], machine: Machine, console: Console, starter: Starter | None = None):
        self.machine, self.console, self.starter = machine, console, starter or machine
        self.total = len(tasks)
        self.done: set[str] = set()
        self.waiting: list[Task] = []
        self.working: list[Working] = []
        self.failed: dict[str, str] = {}
        for task in tasks:
            if not task.finished:
                self.waiting.append(task)
            elif why := why_unusable(task):
                self.fail(task, why)
            else:
                self.done.add(task.name)
        self.elsewhere: set[str] = set()  # runs that were found locked
        self.began, self.shares_at_start = time.monotonic(), {task.name: task.share_done for task in tasks}

    def share(self) -> float:
        """How many runs are done, with parts of those begun."""
        begun = [*self.waiting, *(working.task for working in self.working)]
        return len(self.done) + sum(task.share_done for task in begun)

    def run(self) -> None:
        """Train all that is not finished; raises Stopped after a signal, when all that ran is saved."""
        stop = StopSignals()
        shown = Live(get_renderable=self.table, console=self.console, refresh_per_second=1, transient=True)
        with stop.watched(), shown if self.console.is_terminal else nullcontext():
            try:
                while self.waiting or self.working:
                    self.collect()
                    if stop.number:
                        self.stop(stop.number)
                    self.start_more()
                    time.sleep(POLL_SECONDS)
            finally:  # a second Ctrl-C, or an error of ours: nothing trains on unseen
                for working in self.working:
                    if working.process.poll() is None:
                        os.killpg(working.process.pid, signal.SIGKILL)

    def start_more(self) -> None:
        """Give free slots to runs that wait for nothing."""
        free = sorted(set(range(self.machine.jobs)) - {working.slot for working in self.working})
        for task in list(self.waiting):
            if task.needs in self.failed:
                self.waiting.remove(task)
                self.fail(task, f"it needs the order that {task.needs} did not learn")
            elif free and (task.needs is None or task.needs in self.done) and self.begin(task, free[0]):
                free.pop(0)

    def begin(self, task: Task, slot: int) -> bool:
        """Start a run, unless another sweep is at it, in which case it waits, or has finished it."""
        try:
            lock = task.directory.lock()
        except (ValueError, OSError) as error:
            self.waiting.remove(task)
            self.fail(task, str(error))
            return False
        if lock is None:
            if task.name not in self.elsewhere:
                self.elsewhere.add(task.name)
                self.say(f"{task.name} is being trained by another process")
            return False
        self.waiting.remove(task)
        try:
            if task.finished:
                self.finish(task, "elsewhere")
                return False
            if why := why_unusable(task):
                self.fail(task, why)
                return False
            again = f", after epoch {task.epochs_done}" if task.epochs_done else ""
            process = self.starter.start(task, lock, slot)
        finally:
            os.close(lock)
        self.working.append(Working(task, process, slot))
        self.say(f"started {task.name}{again}")
        return True

    def collect(self) -> None:
        """Take note of the runs that ended."""
        for working in list(self.working):
            status = working.process.poll()
            if status is None:
                continue
            self.working.remove(working)
            if working.task.finished:
                self.finish(working.task, f"in {clock(time.monotonic() - working.began)}")
            elif status < 0:
                self.fail(working.task, f"killed by {signal.Signals(-status).name}")
            else:
                self.fail(working.task, last_line(working.task))

    def finish(self, task: Task, how: str) -> None:
        try:
            summary = task.directory.summary()
        except ValueError as error:
            self.fail(task, str(error))
            return
        assert summary is not None
        self.done.add(task.name)
        self.say(f"finished {task.name}: top-1 {summary['top1']:.1%}, {how}")

    def fail(self, task: Task, reason: str) -> None:
        self.failed[task.name] = reason
        self.say(f"failed {task.name}: {reason}")

    def stop(self, number: int) -> None:
        """Ask all processes to save and end, and wait for them."""
        for working in self.working:
            working.process.terminate()
        self.say(f"stopping: {len(self.working)} runs are being saved; Ctrl-C again ends them at once")
        while any(working.process.poll() is None for working in self.working):
            time.sleep(POLL_SECONDS)
        self.waiting += [working.task for working in self.working if not working.task.finished]
        self.done |= {working.task.name for working in self.working if working.task.finished}
        self.working = []
        raise Stopped(number)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def left(self) -> str:
        """The time left, if all runs take the same time."""
        gained = self.share() - sum(
            share for name, share in self.shares_at_start.items() if name not in self.failed
        )
        if gained <= 0:
            return "unknown"
        rest = self.total - len(self.failed) - self.share()
        return clock(rest * (time.monotonic() - self.began) / gained)

    def table(self) -> Group:
        """The runs that are under way, and how many are not."""
        name = Column("running", overflow="fold")  # the end of a name tells seeds apart
        # A narrow terminal has no room for the time; time left is below the table.
        others = ["epoch", "validation top-1", "time"][: 2 if self.console.width < NARROW else 3]
        table = Table(name, *others, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for working in self.working:
            metrics, epochs = working.task.metrics(), working.task.experiment.train.epochs
            top1 = f"{metrics[-1]['validation_top1']:.1%}" if metrics else ""
            shown = [f"{len(metrics)} of {epochs}", top1, clock(time.monotonic() - working.began)]
            table.add_row(working.task.name, *shown[: len(others)])
        counts = (
            f"{len(self.done)} of {self.total} done, {len(self.failed)} failed, {len(self.waiting)} waiting, "
            f"time left: {self.left()}"
        )
        return Group(table, counts)


def run_here(
    tasks: list[Task], machine: Machine, console: Console, command: str, starter: Starter | None = None
) -> None:
    """Train all runs that are not finished, and say how it ended; `command` is what continues them."""
    sweep = Sweep(tasks, machine, console, starter)
    if sweep.done:
        sweep.say(f"{len(sweep.done)} of {sweep.total} runs are finished already")
    try:
        sweep.run()
    except Stopped:
        remain = len(sweep.waiting) + len(sweep.failed)
        sweep.say(f"{remain} of {sweep.total} runs remain; continue with: {command}")
        raise
    logs = {task.name: task.directory.path / "log.txt" for task in tasks}
    reasons = [f"{logs[name]}: {reason}" for name, reason in sweep.failed.items()]
    for reason in reasons:
        sweep.say(f"failed: {reason}")
    if reasons:
        count = f"{len(reasons)} of {sweep.total} runs failed, the first: {reasons[0]}"
        raise Failed(f"{count}; try again with: {command}")
    where = os.path.commonpath([task.directory.path for task in tasks])
    sweep.say(f"{sweep.total} runs are finished in {where}")
