"""The end of a search: the order found and its controls, trained in full, and a verdict in plain words."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reorder.config import Experiment, Order, reading_of
from reorder.experiments.grids import Task, tasks_of
from reorder.experiments.studies import Planned
from reorder.orders.scans import SCANS
from reorder.runs.searches import Arm, Search
from reorder.runs.statistics import mean_over_seeds
from reorder.runs.verdict import Difference, Verdict, paired_points

ROW, SCAN, RANDOM, FOUND, OWN, LONGER = (
    "row-major",
    "best scan",
    "random order",
    "order found",
    "own orders",
    "row-major, equal compute",
)
SMALL = 2.0  # points: a larger difference would matter


class Trained(NamedTuple):
    """An arm: an order, or one for each image, trained with every seed."""

    order: str
    tasks: list[Task]

    @property
    def correct(self) -> list[np.ndarray]:
        """Of every seed, whether each validation image (n,) is classified right."""
        return [task.directory.correct() for task in self.tasks]


class Own(NamedTuple):
    """How many points own orders for every image are above row-major, the order found, and `LONGER`."""

    row: Difference
    found: Difference
    equal: Difference


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

    def trained(name: str, order: Order, epochs: int) -> Trained:
        plans = [
            Planned(
                replace(
                    plain,
                    order=order,
                    train=replace(plain.train, epochs=epochs, seed=plain.train.seed + number),
                )
            )
            for number in range(seeds)
        ]
        return Trained(name, tasks_of(plans, out / "final"))

    arms = {arm: trained(name, Order(scan), plain.train.epochs) for arm, (name, scan) in orders.items()}
    if wants_own_orders(experiment):
        name = reading_of("image", search.chosen)
        arms[OWN] = trained(name, replace(experiment.order, scan=found), plain.train.epochs)
    return arms | {LONGER: trained("row", Order("row"), longer)}


def wants_own_orders(experiment: Experiment) -> bool:
    """Whether the comparison has an arm in which each image has its own order, learned from that found."""
    return experiment.order.policy == "image"


def kinds_in_full(experiment: Experiment) -> list[Experiment]:
    """The kinds of runs that end a search: with an order for all images, maybe with one for each."""
    plain = in_full(experiment)
    own = replace(plain, order=replace(experiment.order, scan="row"))
    return [plain, own] if wants_own_orders(experiment) else [plain]


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
        if name not in (ROW, OWN, LONGER)
    }
    equal = paired_points(arms[FOUND].correct, arms[LONGER].correct)
    found, own = against.pop(FOUND), own_orders(arms)
    return Verdict(describe(found, equal, against, tried, own), ROW, found, own.found if own else None)


def own_orders(arms: dict[str, Trained]) -> Own | None:
    """What own orders are worth, if they were trained."""
    if OWN not in arms:
        return None
    return Own(*(paired_points(arms[OWN].correct, arms[other].correct) for other in (ROW, FOUND, LONGER)))


def describe(
    found: Difference,
    equal: Difference,
    others: dict[str, Difference],
    tried: int,
    own: Own | None = None,
) -> str:
    """The verdict in words, from the differences to row-major: of the order found, and of other arms.

    `equal` is that of the order found to row-major trained as long as the whole search took.
    """
    if not _better(found):
        said = _none_better(others | {FOUND: found}, tried, own)
        return said if own is None else f"{said}; {_added(own.found, 'better than with the order found')}"
    said = f"the order found is {_size(found)} points better than row-major, {_at_equal_compute(equal)}"
    if own is None:
        return said
    said = f"{said}; {_added(own.found, 'better still')}"
    if _better(own.found) and not _better(equal):
        return f"{said}, {_at_equal_compute(own.equal)}"
    return said


def _none_better(fixed: dict[str, Difference], tried: int, own: Own | None) -> str:
    """The verdict on arms with one order for all images, and own orders, if that found is not better."""
    every = fixed if own is None else fixed | {OWN: own.row}
    different = {name: each for name, each in every.items() if abs(each.points) > each.bound}
    if not different:
        most = max(abs(each.points) + each.bound for each in every.values())
        neither = "" if own is None else ", nor own orders for every image,"
        small = (
            f"no order among {tried}{neither} was found to differ from row-major by more than {most:.1f} "
            "points"
        )
        if most > SMALL:
            return f"{small}, which is too much to tell: give more --seeds, validation images or epochs"
        return f"{small}: for this model and data order does not matter; keep row-major"
    none = f"no order among {tried} was found to be better than row-major"
    best = max(different, key=lambda name: different[name].points)
    size = _size(different[best])
    if own is not None and best == OWN and own.row.points > 0:
        return f"{none}, but own orders for every image are, by {size} points, {_at_equal_compute(own.equal)}"
    if different[best].points > 0:
        return f"{none}, but the {best} it was compared with is, by {size} points; read that"
    worst = min(different, key=lambda name: different[name].points)
    which = "own orders for every image are" if worst == OWN else f"the {worst} is"
    return f"{none}, and {which} {_size(different[worst])} points worse; keep row-major"


def _added(own: Difference, better: str) -> str:
    """What own orders are worth beside the order found."""
    model = "with an order of its own for every image the model is"
    if _better(own):
        return f"{model} {_size(own)} points {better}"
    if own.points < -own.bound:
        return f"{model} {_size(own)} points worse than with the order found"
    shown = f"({own.points:+.1f} ± {own.sem:.1f})"
    if abs(own.points) + own.bound > SMALL:
        return f"whether own orders for every image add anything to the order found cannot be told {shown}"
    return f"own orders for every image add nothing {shown}"


def _better(difference: Difference) -> bool:
    return difference.points > difference.bound


def _at_equal_compute(equal: Difference) -> str:
    control = "row-major trained as long as the whole search took"
    if _better(equal):
        return f"{_size(equal)} better than {control}"
    if equal.points < -equal.bound:
        return f"but {_size(equal)} worse than {control}: for one model, longer training is worth more"
    return f"but no better than {control} ({equal.points:+.1f} ± {equal.sem:.1f})"


def _size(difference: Difference) -> str:
    return f"{abs(difference.points):.1f} ± {difference.sem:.1f}"
