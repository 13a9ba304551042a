"""How long a sweep will take: by what finished runs of the same kind took, or by a few steps measured now."""

import dataclasses
import itertools
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from reorder.config import Experiment, Order
from reorder.data.ranks import World
from reorder.experiments.grids import Task, clock, with_threads
from reorder.models.accuracy import evaluate
from reorder.runs.directory import RunDir
from reorder.training.setup import setup
from reorder.training.step import train_step

T = TypeVar("T")
STEPS = 3
# Processes side by side on one CPU share its caches and memory: with two on two cores a step of a mini
# Transformer-XL or Mamba took 1.11 and 1.12 times the processor's time. More processes may take more.
SHARING = 1.15
# What a step costs, besides model and data.
TRAIN_KEYS = ("batch_size", "precision", "accumulate", "ema", "compile", "threads")
ORDER_KEYS = ("policy", "estimator", "orders_per_image")


class Pace(NamedTuple):
    """Seconds that a kind of run takes to start, and for each epoch with its validation."""

    start: float
    epoch: float

    def seconds(self, task: Task) -> float:
        """What is left of a run."""
        left = task.experiment.train.epochs - task.epochs_done
        return 0.0 if task.finished else self.start + self.epoch * left


def kind_of(experiment: Experiment) -> str:
    """What a run's pace depends on: not on its start, seed and length. A prior is not measured."""
    train = [getattr(experiment.train, key) for key in TRAIN_KEYS]
    order = [getattr(experiment.order, key) for key in ORDER_KEYS]
    parts = [dataclasses.asdict(experiment.model), dataclasses.asdict(experiment.data), train, order]
    return json.dumps([*parts, experiment.order.curriculum.policy_fraction])


def recorded(directory: Path, process_seconds: float) -> dict[str, Pace]:
    """The pace of each kind of run that is finished in a directory: the mean of their recorded seconds."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in sorted(directory.glob("*/summary.json")):
        run = RunDir(path.parent)
        try:
            summary, experiment = run.summary(), run.experiment()
        except (ValueError, OSError):  # damaged: the sweep says so
            continue
        assert summary is not None
        found[kind_of(experiment)].append(summary.get("wall_seconds", summary["seconds"]) / summary["epochs"])
    return {kind: Pace(process_seconds, sum(times) / len(times)) for kind, times in found.items()}


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


def measured_pace(experiment: Experiment, measure: Callable[[Experiment], Pace]) -> Pace:
    """A pace in which the policy stage, where a step may cost more, counts by its share of the run."""
    fixed = measure(dataclasses.replace(experiment, order=Order()))
    if experiment.order.policy in ("none", "random"):
        return fixed
    always = dataclasses.replace(experiment.order, scan="row", warmup_fraction=0.0, policy_fraction=1.0)
    learning = measure(dataclasses.replace(experiment, order=always))
    share = experiment.order.curriculum.policy_fraction
    return fixed._replace(epoch=(1 - share) * fixed.epoch + share * learning.epoch)


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


def paces(tasks: list[Task], sharing: float, world: World) -> dict[str, Pace | str]:
    """The pace of each unfinished run by its name, or why it cannot be measured."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import reorder.training.loop"], check=True)
    process_seconds = time.perf_counter() - began
    known: dict[str, Pace | str] = dict(recorded(tasks[0].directory.path.parent, process_seconds))
    found = {}
    for task in tasks:
        if task.finished:
            continue
        kind = kind_of(task.experiment)
        if kind not in known:
            try:
                pace = measured_pace(task.experiment, lambda run: measure(run, world, process_seconds))
                known[kind] = pace._replace(epoch=sharing * pace.epoch)
            except ValueError as error:  # most likely the data are not on this machine
                known[kind] = str(error)
        found[task.name] = known[kind]
    return found


def forecast(tasks: list[Task], jobs: int, threads: int, world: World) -> list[str]:
    """A line about each run, and one about them all."""
    tasks = [with_threads(task, threads) for task in tasks]
    found = paces(tasks, SHARING if jobs > 1 and world.device.type == "cpu" else 1.0, world)
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
