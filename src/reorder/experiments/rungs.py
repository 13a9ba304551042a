"""The rungs of a search, one after the other: candidates are trained apart, and compared with row-major."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reorder.config import Experiment, Order, curriculum_of
from reorder.data.progress import Display
from reorder.experiments.budget import BEST, FIXED, KEPT, VARIED
from reorder.experiments.grids import Task, tasks_of
from reorder.experiments.studies import Planned
from reorder.models.grid import grid_of
from reorder.orders.candidates import variations
from reorder.orders.disk import discard
from reorder.orders.files import save_order
from reorder.orders.scans import SCANS
from reorder.runs.directory import RunDir
from reorder.runs.searches import Candidate, PlannedRung, Rung, Score, Search, write_search
from reorder.runs.verdict import paired_points
from reorder.training.continuing import continued

HELD_OUT_SHARE, MOST_HELD_OUT = 0.2, 10_000  # of the training images
LEARNER = "straight-through"
ROW = "row"
Train = Callable[[list[Task]], None]  # brings runs to their end, or raises


class Asked(NamedTuple):
    """What a search is asked for."""

    experiment: Experiment
    out: Path
    budget: float
    seeds: int
    given: dict[str, Tensor]  # orders (N,) from files, by the names of the candidates they become

    @property
    def grid(self) -> tuple[int, int]:
        return grid_of(self.experiment.model.image_shape, self.experiment.model.patch_size)


def searching(asked: Asked, images: int, first_epochs: int) -> Experiment:
    """What all candidates have in common, of so many training images, with the epochs of the first rung.

    They have other seeds than the runs that end the search, and as long a warm-up as fits their length.
    """
    experiment = asked.experiment
    train, data = experiment.train, experiment.data
    held_out = data.held_out or min(MOST_HELD_OUT, math.ceil(HELD_OUT_SHARE * images))
    return replace(
        experiment,
        data=replace(data, held_out=held_out, validation_images=None),
        train=replace(
            train,
            epochs=first_epochs,
            warmup_epochs=train.warmup_epochs * first_epochs / train.epochs,
            seed=train.seed + asked.seeds,
            compare=False,
            keep=1,
        ),
    )


def scan_of(search: Search, name: str, out: Path) -> str:
    """What `order.scan` takes for a candidate: a scan, or the file that its order is written to."""
    if name in SCANS:
        return name
    path = out / "orders" / f"{name}.json"
    if not path.exists():
        made = next(candidate.made for candidate in search.candidates if candidate.name == name)
        order = torch.tensor(search.order_of(name))
        save_order(path, order, search.grid, {"candidate": name, "made": made})
    return str(path)


class Rungs:
    """The rungs of a search, one after the other."""

    def __init__(self, asked: Asked, base: Experiment, search: Search, train: Train, display: Display):
        self.asked, self.base, self.search, self.train = asked, base, search, train
        self.display = display
        self.began = time.monotonic()

    def run(self) -> None:
        """All rungs that are not over, and the choice."""
        search = self.search
        self.write()
        for rung in search.plan[len(search.rungs) :]:
            names = self.names(rung)
            scores = self.scored(names, rung.epochs)
            images = self.base.data.held_out
            assert images is not None
            search.rungs.append(Rung(rung.source, rung.epochs, images, scores))
            self.write()
            self.say(rung)
            self.clear()
        search.chosen = next(score.name for score in search.standing() if score.name != ROW)
        self.write()

    def write(self) -> None:
        now = time.monotonic()
        self.search.seconds, self.began = self.search.seconds + now - self.began, now
        write_search(self.asked.out, self.search)

    def names(self, rung: PlannedRung) -> list[str]:
        """The candidates of a rung; new ones join the search."""
        search = self.search
        if rung.source == FIXED:
            return [candidate.name for candidate in search.candidates]
        standing = [score.name for score in search.standing()]
        if rung.source == BEST:
            return [ROW, *[name for name in standing if name != ROW][: rung.candidates]]
        made = self.varied(rung, standing) if rung.source == VARIED else self.learned(rung, standing[0])
        search.candidates += made
        return [candidate.name for candidate in made]

    def varied(self, rung: PlannedRung, standing: list[str]) -> list[Candidate]:
        """Variations of the best third."""
        best = standing[: max(2, math.ceil(len(standing) / KEPT))]
        parents = {name: torch.tensor(self.search.order_of(name)) for name in best}
        known = [torch.tensor(candidate.order) for candidate in self.search.candidates]
        made = variations(parents, known, rung.candidates, self.asked.experiment.train.seed)
        return [
            Candidate(f"variation-{number}", variation.made, variation.order.tolist())
            for number, variation in enumerate(made, start=1)
        ]

    def learned(self, rung: PlannedRung, best: str) -> list[Candidate]:
        """What a straight-through run from the best candidate ends with, if that is a new order."""
        usual = curriculum_of(LEARNER)
        warmup_share = usual.warmup_fraction / (usual.warmup_fraction + usual.policy_fraction)
        order = replace(
            self.asked.experiment.order,
            scan=scan_of(self.search, best, self.asked.out),
            policy="blocks" if self.asked.experiment.order.policy == "blocks" else "global",
            estimator=LEARNER,
            warmup_fraction=warmup_share,
            policy_fraction=1 - warmup_share,  # the whole run learns: its model is not used
            warmup_order=None,
            temperature_advances="step",
            inverse_logits=False,  # it starts at the best candidate itself
        )
        if self.asked.experiment.order.estimator != LEARNER:  # what was set for another is not meant for it
            order = replace(order, learning_rate=None, clip=None)
        epochs = rung.cost - rung.epochs
        warmup = self.asked.experiment.train.warmup_epochs * epochs / self.asked.experiment.train.epochs
        train = replace(self.base.train, epochs=epochs, warmup_epochs=warmup)
        (task,) = tasks_of(
            [Planned(replace(self.base, train=train, order=order))], self.asked.out / "learned"
        )
        self.train([task])
        found = summary_of(task.directory)["order"]
        if any(candidate.order == found for candidate in self.search.candidates):
            return []
        return [Candidate("learned", f"{LEARNER} from {best}", found)]

    def task(self, name: str, epochs: int) -> Task:
        """The run of a candidate, up to so many epochs: it is named by what it begins with."""
        scan = scan_of(self.search, name, self.asked.out)
        begins = replace(self.base, order=Order(scan=scan))
        (task,) = tasks_of([Planned(begins)], self.asked.out / "candidates")
        return task._replace(experiment=replace(begins, train=replace(begins.train, epochs=epochs)))

    def scored(self, names: list[str], epochs: int) -> list[Score]:
        """Train candidates up to so many epochs, and compare each with row-major, trained alike."""
        tasks = {name: self.task(name, epochs) for name in names}
        for task in tasks.values():
            lengthen(task)
        if tasks:
            self.train(list(tasks.values()))
        row = self.task(ROW, epochs).directory.correct()
        scores = []
        for name, task in tasks.items():
            summary, paired = summary_of(task.directory), paired_points([task.directory.correct()], [row])
            numbers = {key: summary[key] for key in ("top1", "top1_sem", "loss")}
            scores.append(Score(name, **numbers, difference=paired.points, difference_sem=paired.sem))
        return scores

    def clear(self) -> None:
        """Drop the checkpoints of candidates that do not go on."""
        later = self.search.plan[len(self.search.rungs) :]
        if later and later[0].source != BEST:
            return
        kept = self.names(later[0]) if later else []
        for candidate in self.search.candidates:
            checkpoints = self.task(candidate.name, 1).directory.path / "checkpoints"
            if candidate.name not in kept and checkpoints.exists():
                discard(checkpoints)

    def say(self, rung: PlannedRung) -> None:
        """What a rung found, in a line."""
        number, best = len(self.search.rungs), self.search.standing()
        shown = ", ".join(f"{score.name} {100 * score.top1:.1f}" for score in best[:3])
        row = next(score for score in best if score.name == ROW)
        epochs = f"{rung.epochs} epoch{'s' * (rung.epochs > 1)}"
        self.display.say(
            f"rung {number} of {len(self.search.plan)}, {epochs}, top-1: {shown}; row {100 * row.top1:.1f}"
        )


def lengthen(task: Task) -> None:
    """Have a run that ended after fewer epochs than its task has go on."""
    directory, epochs = task.directory, task.experiment.train.epochs
    if not (directory.path / "config.yaml").exists():
        return
    with directory.locked():
        found = directory.experiment()
        if found.train.epochs < epochs:
            directory.reopen(continued(found, [f"train.epochs={epochs}"]))


def summary_of(directory: RunDir) -> dict[str, Any]:
    """The results of a run that is finished."""
    summary = directory.summary()
    if summary is None:
        raise ValueError(f"{directory.path} is not finished")
    return summary
