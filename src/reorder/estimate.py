"""How long a sweep will take: a few steps of each kind of run, measured here and now."""

import itertools
import subprocess
import sys
import time
from dataclasses import replace
from typing import NamedTuple

from reorder.config import Experiment, Order, to_yaml
from reorder.distributed import World
from reorder.evaluate import evaluate
from reorder.run import setup
from reorder.sweep import Task, clock, with_threads
from reorder.train import train_step

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
    """What a run's pace depends on: all but its order, seed and length."""
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
    return found


def measure(experiment: Experiment, world: World, process_seconds: float) -> Pace:
    """The pace of a run, from a few steps and one batch of validation after a first, slow step."""
    began = time.perf_counter()
    run = setup(experiment, world)
    start = process_seconds + time.perf_counter() - began
    run.model.train()
    batches = list(itertools.islice(run.loader.epoch(0), STEPS + 1))
    for images, labels in batches[:1]:
        train_step(run, images.to(world.device), labels.to(world.device))
    began = time.perf_counter()
    for images, labels in batches[1:] or batches:
        train_step(run, images.to(world.device), labels.to(world.device))
    step = (time.perf_counter() - began) / len(batches[1:] or batches)
    batch = next(run.loader.validate())
    began = time.perf_counter()
    evaluate(run.model, [batch], run.initial, world.device)
    validation = (time.perf_counter() - began) / len(batch[0]) * len(run.loader.dataset.validation)
    # A run ends with one more validation.
    return Pace(start + validation, step * run.loader.steps_per_epoch + validation)


def forecast(tasks: list[Task], jobs: int, threads: int, world: World) -> list[str]:
    """A line about each run, and one about them all."""
    tasks = [with_threads(task, threads) for task in tasks]
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
