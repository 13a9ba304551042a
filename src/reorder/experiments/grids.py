"""Sweeps: a grid or a study becomes runs, each in a directory named by what determines its result.

So a finished run is recognised, an interrupted one continued and a failed one tried again, by any sweep
that meets it. A run is trained by `reorder train --resume DIRECTORY`, which anyone can type as well.
"""

import dataclasses
import hashlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from reorder.config import Experiment, Model, defaults, keys_that_matter
from reorder.data.datasets import Dataset, load_dataset
from reorder.data.loader import Loader
from reorder.data.ranks import World, accelerator
from reorder.experiments.presets import with_order
from reorder.experiments.studies import Planned
from reorder.models.classifier import model_of
from reorder.models.grid import grid_of
from reorder.orders.named import starting_order
from reorder.runs.directory import LOCKED, RunDir
from reorder.training.setup import check_machine
from reorder.training.trackers import check as check_tracker

# Defaults that runs were named by before they were changed.
FIRST_DEFAULTS = {
    "order.estimator": "scaled",
    "order.learning_rate": 1e-4,
    "order.warmup_fraction": 0.15,
    "order.policy_fraction": 0.30,
    "order.warmup_order": "row",
}


class Task(NamedTuple):
    """One run of a sweep; `needs` is the name of the run whose learned order it reads."""

    name: str
    directory: RunDir
    experiment: Experiment
    needs: str | None = None

    @property
    def finished(self) -> bool:
        return (self.directory.path / "summary.json").exists()

    @property
    def epochs_done(self) -> int:
        return len(self.metrics())

    @property
    def share_done(self) -> float:
        return 1.0 if self.finished else self.epochs_done / self.experiment.train.epochs

    def metrics(self) -> list[dict[str, Any]]:
        """A line per epoch that is over, as far as they can be read: they only show how far a run is."""
        try:
            return self.directory.metrics()
        except ValueError:
            return []


# From plans to runs with names and directories


def tasks_of(plans: list[Planned], out: Path) -> list[Task]:
    """The runs, each once, with those that others need, in directories below `out`; checked, not begun."""
    tasks: dict[str, Task] = {}
    for plan in plans:
        needs = None
        if plan.learned_from is not None:
            first = _task(plan.learned_from, out)
            tasks.setdefault(first.name, first)
            needs = first.name
        task = _task(plan.experiment, out, needs)
        tasks.setdefault(task.name, task)
    for task in tasks.values():
        check(task)
    return list(tasks.values())


def _task(experiment: Experiment, out: Path, needs: str | None = None) -> Task:
    # The sweep itself is the comparison.
    experiment = dataclasses.replace(experiment, train=dataclasses.replace(experiment.train, compare=False))
    if needs is not None:
        experiment = with_order(experiment, str(out / needs / "order.json"), experiment.order.policy)
    name = name_of(experiment, needs)
    return Task(name, RunDir(out / name), experiment, needs)


def name_of(experiment: Experiment, needs: str | None = None) -> str:
    """A readable name that ends in a hash of all that determines the run's result."""
    model, order = experiment.model, experiment.order
    height, width = model.image_shape
    options = [f"{key}{value}" for key, value in sorted(model.options.items())]
    scan = "learned" if needs else Path(order.scan).stem
    parts = [
        model.label,
        *options,
        experiment.data.name,
        f"{height // model.patch_size}x{width // model.patch_size}",
        scan,
        *([order.policy] if order.policy != "none" else []),
        f"s{experiment.train.seed}",
    ]
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", "-".join(parts))
    return f"{plain[:100]}-{_digest(experiment, needs)}"


def _digest(experiment: Experiment, needs: str | None) -> str:
    """A hash of what differs from the defaults, so that a new key or default does not rename old runs."""
    usual = defaults() | FIRST_DEFAULTS
    changed = {key: value for key, value in keys_that_matter(experiment).items() if value != usual[key]}
    scan, model = experiment.order.scan, experiment.model
    if needs is not None:
        changed["order.scan"] = needs
    elif scan.endswith(".json"):
        changed["order.scan"] = _content("order.scan", scan)
    if model.name.startswith("hf:/") and not model.options.get("pretrained"):
        path = Path(model.name.removeprefix("hf:"))
        changed["model.name"] = _content("model.name", path / "config.json" if path.is_dir() else path)
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def _content(key: str, file: str | Path) -> str:
    """A hash of what a file says, wherever it is."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"{key}: cannot read {file}: {error.strerror}") from None


def check(task: Task) -> None:
    """Refuse what would fail only later: an impossible model or order."""
    _check_model(json.dumps(dataclasses.asdict(task.experiment.model)))
    if task.needs is None and task.experiment.order.scan != "prior":
        model = task.experiment.model
        starting_order(task.experiment.order.scan, grid_of(model.image_shape, model.patch_size))


def why_unusable(task: Task) -> str | None:
    """Why a run's directory cannot be used, if so: it is damaged, or holds another run.

    To be asked when it is locked. The other runs of a sweep go on.
    """
    try:
        task.directory.summary()
        if not (task.directory.path / "config.yaml").exists():
            return None
        found = task.directory.experiment()
        if _digest(found, task.needs) == _digest(task.experiment, task.needs):
            return None
    except (ValueError, OSError) as error:
        return str(error)
    ours, theirs = keys_that_matter(task.experiment), keys_that_matter(found)
    key = next((key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key)), "order.scan")
    return (
        f"{task.directory.path} holds a run of another configuration "
        f"({key} is {theirs.get(key)}, not {ours.get(key)}); choose another --out, or move it away"
    )


def check_here(tasks: list[Task]) -> None:
    """Refuse, before anything starts, runs that this machine cannot train, or for which it has no data."""
    world = World(0, 1, accelerator())  # which is not touched: the runs need its memory
    seen: dict[str, Dataset] = {}
    for task in tasks:
        settings, shape = task.experiment.data, task.experiment.model.image_shape
        if not task.finished:
            check_machine(task.experiment, world)
            check_tracker(task.experiment.train.track)
            key = json.dumps([dataclasses.asdict(settings), shape])
            if key not in seen:
                seen[key] = load_dataset(settings, shape)
            Loader(seen[key], settings, task.experiment.train.batch_size, seed=0)


@lru_cache
def _check_model(settings: str) -> None:
    """Build a model without its memory."""
    with torch.device("meta"):
        model_of(Model(**json.loads(settings)), channels=3, classes=1000)


# From a run to its process


def start(task: Task, lock: int, launcher: list[str], environment: dict[str, str]) -> subprocess.Popen:
    """Start or continue a locked run in its own process and session; what it prints goes to log.txt."""
    task.directory.create(task.experiment)
    path, threads = str(task.directory.path), task.experiment.train.threads
    # Stopped by the sweep, a run must not ask Slurm to start the sweep's own job again.
    environment = {"SLURM_JOB_ID": "", LOCKED: path} | environment
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    with open(task.directory.path / "log.txt", "a") as log, _without_sigusr2():
        return subprocess.Popen(
            [*launcher, "-m", "reorder", "train", "--resume", path, "--no-report"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            pass_fds=[lock],
            start_new_session=True,
        )


@contextmanager
def _without_sigusr2() -> Iterator[None]:
    """Processes that are started in the block never get SIGUSR2, by which Slurm warns a job of its end.

    Some clusters send it to all processes of a job; only submitit's knows what to do with it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def last_line(task: Task) -> str:
    """The last line that a run printed."""
    log = task.directory.path / "log.txt"
    lines = log.read_text(errors="replace").split("\n") if log.is_file() else []
    printed = [line.strip() for line in lines if line.strip()]
    if printed and set(printed[-1]) == {"="}:  # the end of the page that torchrun adds
        printed = [line for line in printed if line.startswith("reorder: ")] or printed
    return printed[-1] if printed else "it printed nothing"


def with_threads(task: Task, threads: int) -> Task:
    """A run on so many threads and decoding processes, unless its configuration says how many."""
    train, data = task.experiment.train, task.experiment.data
    changed = dataclasses.replace(
        task.experiment,
        train=dataclasses.replace(train, threads=train.threads or threads),
        data=dataclasses.replace(data, workers=threads if data.workers is None else data.workers),
    )
    return task._replace(experiment=changed)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))
