"""The end of a search: the order found and its controls, trained in full, and a verdict in plain words."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reorder.config import Experiment, Order
from reorder.experiments.grids import Task, tasks_of
from reorder.experiments.studies import Planned
from reorder.orders.scans import SCANS
from reorder.runs.searches import Arm, Search
from reorder.runs.statistics import mean_over_seeds
from reorder.runs.verdict import Difference, Verdict, paired_points

ROW, SCAN, RANDOM, FOUND, LONGER = (
    "row-major",
    "best scan",
    "random order",
    "order found",
    "row-major, equal compute",
)
ERRORS = 2  # standard errors beyond which a difference is no accident
SMALL = 2.0  # points: a larger difference would matter


class Trained(NamedTuple):
    """An arm: an order trained with every seed."""

    order: str
    tasks: list[Task]

    @property
    def correct(self) -> list[np.ndarray]:
        """Of every seed, whether each validation image (n,) is classified right."""
        return [task.directory.correct() for task in self.tasks]


def arms_of(experiment: Experiment, search: Search, out: Path, seeds: int, longer: int) -> dict[str, Trained]:
    """What is trained in full: all on the whole training split, with the same seeds.

    `longer` is how many epochs row-major has for equal compute. The order found may be a scan, and is then
    trained once.
    """
    assert search.chosen is not None
    scan = search.furthest([name for name in SCANS if name != "row"])
    found = search.chosen if search.chosen in SCANS else str(out / "order.json")
    orders = {ROW: ("row", "row"), RANDOM: ("random", "random"), FOUND: (search.chosen, found)}
    if scan is not None:
        orders[SCAN] = scan, scan
    plain = in_full(experiment)

    def trained(name: str, scan: str, epochs: int) -> Trained:
        plans = [
            Planned(
                replace(
                    plain,
                    order=Order(scan=scan),
                    train=replace(plain.train, epochs=epochs, seed=plain.train.seed + number),
                )
            )
            for number in range(seeds)
        ]
        return Trained(name, tasks_of(plans, out / "final"))

    arms = {arm: trained(*order, plain.train.epochs) for arm, order in orders.items()}
    return arms | {LONGER: trained("row", "row", longer)}


def in_full(experiment: Experiment) -> Experiment:
    """An experiment on the whole training split, in row-major."""
    return replace(
        experiment,
        data=replace(experiment.data, held_out=None),
        train=replace(experiment.train, compare=False, keep=1),
        order=Order(),
    )


def compared(arms: dict[str, Trained]) -> list[Arm]:
    """Every arm with its top-1, and its paired difference to row-major trained as long as the order found."""
    row, found = arms[ROW].correct, []
    for name, arm in arms.items():
        correct = arm.correct
        top1 = mean_over_seeds([float(seed.mean()) for seed in correct], correct)
        paired = paired_points(correct, row)
        found.append(
            Arm(
                name,
                arm.order,
                arm.tasks[0].experiment.train.epochs,
                [f"final/{task.name}" for task in arm.tasks],
                top1.value,
                max(top1.seed_error or 0.0, top1.image_error or 0.0),
                paired.points,
                paired.sem,
            )
        )
    return found


def verdict_of(arms: dict[str, Trained], tried: int) -> Verdict:
    """One sentence on the order that was found among so many."""
    against = {
        name: paired_points(arm.correct, arms[ROW].correct)
        for name, arm in arms.items()
        if name not in (ROW, LONGER)
    }
    equal = paired_points(arms[FOUND].correct, arms[LONGER].correct)
    found = against.pop(FOUND)
    return Verdict(describe(found, equal, against, tried), ROW, found)


def describe(found: Difference, equal: Difference, others: dict[str, Difference], tried: int) -> str:
    """The verdict in words, from the differences to row-major: of the order found, and of other arms.

    `equal` is that of the order found to row-major trained as long as the whole search took.
    """
    if found.points > ERRORS * found.sem:
        return f"the order found is {_size(found)} points better than row-major, {_at_equal_compute(equal)}"
    every = others | {FOUND: found}
    different = {name: each for name, each in every.items() if abs(each.points) > ERRORS * each.sem}
    if not different:
        most = max(abs(each.points) + ERRORS * each.sem for each in every.values())
        small = f"no order among {tried} was found to differ from row-major by more than {most:.1f} points"
        if most > SMALL:
            return f"{small}, which is too much to tell: give more --seeds, validation images or epochs"
        return f"{small}: for this model and data order does not matter; keep row-major"
    none = f"no order among {tried} was found to be better than row-major"
    best = max(different, key=lambda name: different[name].points)
    if different[best].points > 0:
        return (
            f"{none}, but the {best} it was compared with is, by {_size(different[best])} points; read that"
        )
    worst = min(different, key=lambda name: different[name].points)
    return f"{none}, and the {worst} is {_size(different[worst])} points worse; keep row-major"


def _at_equal_compute(equal: Difference) -> str:
    control = "row-major trained as long as the whole search took"
    if equal.points > ERRORS * equal.sem:
        return f"{_size(equal)} better than {control}"
    if equal.points < -ERRORS * equal.sem:
        return f"but {_size(equal)} worse than {control}: for one model, longer training is worth more"
    return f"but no better than {control} ({equal.points:+.1f} ± {equal.sem:.1f})"


def _size(difference: Difference) -> str:
    return f"{abs(difference.points):.1f} ± {difference.sem:.1f}"
