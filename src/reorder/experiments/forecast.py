"""How long a sweep will take: a few steps of each kind of run, measured here and now."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

from reorder.config import Experiment, Order, to_yaml
from reorder.data.ranks import World
from reorder.experiments.grids import Task, clock, with_threads
from reorder.models.accuracy import evaluate
from reorder.training.setup import setup
from reorder.training.step import train_step

T = TypeVar("T")
STEPS = 3


class Pace(NamedTuple):
    """Seconds that a kind of run takes to start, and for each epoch with its validation."""

    start: float
    epoch: float

    def seconds(self, task: Task) -> float:
        """What is left of a run."""
        return (
            0.0
            if task.finished
            else self.start + self.epoch * (task.experiment.train.epochs - task.epochs_done)
        )


def kind_of(task: Task) -> Experiment:
    """What a run's pace depends on: all but its order, seed and length. A prior is not measured."""
    experiment = task.experiment
    return replace(experiment, order=Order(), train=replace(experiment.train, seed=0, epochs=1))


def paces(tasks: list[Task], world: World) -> dict[str, Pace | str]:
    """The pace of each unfinished run by its name, or why it cannot be measured."""
    measured: dict[str, Pace | str] = {}
    found = {}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "reorder", "--version"], check=True, capture_output=True)
    process_seconds = time.perf_counter() - began
    for task in tasks:
        if task.finished:
            continue
        kind = kind_of(task)
        key = to_yaml(kind)
        if key not in measured:
            try:
                measured[key] = measure(kind, world, process_seconds)
            except ValueError as error:  # most likely the data are not on this machine
                measured[key] = str(error)
        found[task.name] = measured[key]
    # What the first kind imports the others find in this process, but not in their own.
    longest = max((pace.start for pace in measured.values() if isinstance(pace, Pace)), default=0.0)
    return {
        name: pace._replace(start=longest) if isinstance(pace, Pace) else pace for name, pace in found.items()
    }


def measure(experiment: Experiment, world: World, process_seconds: float) -> Pace:
    """The pace of a run, from a few steps after a first, slow one and a batch of validation."""
    began = time.perf_counter()
    run = setup(experiment, world)
    start = process_seconds + time.perf_counter() - began
    run.model.train()
    batches, load = loaded(run.loader.epoch(0), experiment.data.workers or 0)
    times = []
    for images, labels in batches:
        began = time.perf_counter()
        train_step(run, images.to(world.device), labels.to(world.device))
        times.append(time.perf_counter() - began)
    steady = sum(times[1:] or times) / len(times[1:] or times)
    start += times[0] - steady  # kernels are compiled, or loaded, for the first
    step = together(load, steady, world)
    (batch, *_), load = loaded(run.loader.validate(), experiment.data.workers or 0)
    began = time.perf_counter()
    evaluate(run.model, [batch], run.initial, world.device)
    image = together(load, time.perf_counter() - began, world) / len(batch[0])
    return Pace(start, step * run.loader.steps_per_epoch + image * len(run.loader.dataset.validation))


def loaded(batches: Iterator[T], workers: int) -> tuple[list[T], float]:
    """The first few batches, and how many seconds each takes to read.

    Every worker reads one at a time, so after the first a round of all of them tells their pace.
    """
    kept = [next(batches)]
    began, count = time.perf_counter(), 0
    for batch in itertools.islice(batches, max(STEPS, workers)):
        kept, count = [*kept, batch][: STEPS + 1], count + 1
    return kept, (time.perf_counter() - began) / max(1, count)


def together(load: float, compute: float, world: World) -> float:
    """Seconds of reading and computing, which on a CPU take turns."""
    return load + compute if world.device.type == "cpu" else max(load, compute)


@contextmanager
def others_at_work(processes: int, threads: int) -> Iterator[None]:
    """Keep as many cores busy as the other processes of a sweep will: they slow each other down."""
    work = f"""import os, torch
torch.set_num_threads({threads})
matrix = torch.rand(256, 256)
matrix @ matrix
print("at work", flush=True)
while os.getppid() == {os.getpid()}:
    matrix @ matrix"""
    command = [sys.executable, "-c", work]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()  # what is measured while they still import is not slowed down
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()


def forecast(tasks: list[Task], jobs: int, threads: int, world: World) -> list[str]:
    """A line about each run, and one about them all."""
    tasks = [with_threads(task, threads) for task in tasks]
    with others_at_work(jobs - 1 if world.device.type == "cpu" else 0, threads):
        found = paces(tasks, world)
    lines, busy = [], [0.0] * jobs  # a run goes to the process that is free first
    for task in tasks:
        pace = found.get(task.name)
        begun = f"{task.epochs_done} of {task.experiment.train.epochs} epochs done"
        state = "finished" if task.finished else begun if task.epochs_done else "new"
        if isinstance(pace, Pace):
            busy[busy.index(min(busy))] += pace.seconds(task)
            state += f", about {clock(pace.seconds(task))}"
        lines.append(f"{task.name}  {state}")
    reasons = list(dict.fromkeys(pace for pace in found.values() if isinstance(pace, str)))
    unknown = sum(isinstance(pace, str) for pace in found.values())
    total = [f"{len(tasks)} runs, {sum(task.finished for task in tasks)} finished"]
    if unknown < len(found) or not found:
        how = f"{jobs} process{'es' * (jobs > 1)} of {threads} thread{'s' * (threads > 1)}"
        total.append(f"about {clock(max(busy))} with {how}")
    if unknown:
        which = f" of {unknown} of them" if unknown < len(found) else ""
        total.append(f"the time{which} cannot be measured here: {'; '.join(reasons)}")
    return [*lines, "; ".join(total)]
