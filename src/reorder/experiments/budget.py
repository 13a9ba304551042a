"""How a search spends its budget: rungs of candidates, each trained longer and with fewer of them.

All candidates begin with the same few epochs: first the fixed ones, then variations of the best of these,
then what a straight-through run from the best has learned. The best third goes on to three times as many
epochs, and the best third of these again, up to half of a full training, or all of it if many are left.
Row-major goes along in every rung: the others are compared with it.
"""

import math
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from reorder.runs.searches import PlannedRung

FIXED, VARIED, LEARNED, BEST = "fixed", "variations", "learned", "best"
KEPT = 3  # the best of so many go on, for so many times as many epochs
FEW = 3  # candidates beside row-major that one full-length look tells apart
FEWEST = 3  # candidates, of which one is row-major
WORTH_RUNGS = 8  # candidates; with fewer, the budget is better spent on more of them than on more rungs
# Of a full training: a first rung is not longer, for the ranking is good by then (docs/search.md), and not
# shorter even if that leaves candidates out.
LONGEST_START, SHORTEST_START = 1 / 6, 1 / 20
LEARNING = 1 / 4  # of a full training: the straight-through run, of which only the order is used
MOST_LEVELS = 5  # of training: a twentieth, three, nine, half, all
LEARNING_SHARE = 1 / 5  # of the budget that it may take at most


def cost(rungs: Iterable[PlannedRung]) -> int:
    """Epochs of training."""
    return sum(rung.cost for rung in rungs)


class Plan(NamedTuple):
    rungs: tuple[PlannedRung, ...]
    epochs: int  # of a full training
    seeds: int
    own_orders: bool = False  # whether the model is trained with an order for each image, too

    @property
    def search_epochs(self) -> int:
        return cost(self.rungs)

    @property
    def equal_epochs(self) -> int:
        """Of row-major, trained for as long as the search and the training of the order found together."""
        return self.search_epochs + self.epochs

    @property
    def final_epochs(self) -> int:
        """Row-major, the best scan, a random order, the order found, and row-major for longer, each seed.

        Maybe own orders as well.
        """
        return self.seeds * (4 * self.epochs + self.equal_epochs) + self.own_epochs

    @property
    def own_epochs(self) -> int:
        """Those of `final_epochs` in which each image has an order of its own."""
        return self.seeds * self.epochs if self.own_orders else 0


def plan(budget: float, candidates: int, epochs: int, seeds: int) -> Plan:
    """The rungs of a search that costs at most `budget` trainings of so many epochs.

    All candidates begin, with as long a first rung as the budget has room for; if it has no room even for the
    shortest, fewer begin, and if these are very few, they have fewer rungs. What is left goes to more
    variations.
    """
    most = math.floor(budget * epochs)
    learnings = [max(1, round(LEARNING * epochs)), 0]
    if learnings[0] > LEARNING_SHARE * most:
        del learnings[0]
    shortest = max(1, round(SHORTEST_START * epochs))
    longest = max(shortest, round(LONGEST_START * epochs))
    starts = [(candidates, first) for first in range(longest, shortest - 1, -1)]
    starts += [(count, shortest) for count in range(candidates - 1, FEWEST - 1, -1)]
    for learning, depth, (count, first) in product(learnings, range(MOST_LEVELS, 0, -1), starts):
        if count < WORTH_RUNGS and depth > 1:
            continue
        found, varied = None, count // 2
        while (more := rungs_of(count, varied, first, epochs, learning, depth)) and cost(more) <= most:
            found, varied = more, varied + 1
        if found is not None:
            return Plan(found, epochs, seeds)
    raise ValueError(
        f"--budget {budget:g} is {most} epochs (train.epochs={epochs}), too few for a search; give more, or "
        "more epochs of fewer images"
    )


def rungs_of(
    count: int, varied: int, first: int, epochs: int, learning: int, depth: int
) -> tuple[PlannedRung, ...]:
    """The rungs for so many fixed candidates, and variations of them, that begin with `first` epochs.

    With `learning` above 0, a run of so many epochs learns one more candidate. There are at most `depth`
    lengths of training; they end at half of a full training if few candidates are left by then, else at all.
    """
    rungs = [PlannedRung(FIXED, count, first, count * first)]
    if varied:
        rungs.append(PlannedRung(VARIED, varied, first, varied * first))
    if learning:
        rungs.append(PlannedRung(LEARNED, 1, first, learning + first))
    left, trained = count - 1 + varied + bool(learning), first  # without row-major
    for _ in range(depth - 1):
        if trained >= epochs or (trained >= epochs // 2 and left <= FEW):
            break
        further, left = longer(trained, epochs), max(min(2, left), math.ceil(left / KEPT))
        rungs.append(PlannedRung(BEST, left, further, (left + 1) * (further - trained)))
        trained = further
    return tuple(rungs)


def longer(trained: int, epochs: int) -> int:
    """How many epochs come after so many: three times as many, then half of all, then all."""
    if trained >= epochs // 2:
        return epochs
    return KEPT * trained if KEPT * trained <= epochs / 3 else epochs // 2


def describe(plan: Plan) -> list[str]:
    """A plan in words: the rungs, and the runs that end the search."""
    words = {
        FIXED: "{} candidates",
        VARIED: "{} variations of the best",
        LEARNED: "what a straight-through run learns from the best",
        BEST: "row-major and the best {}",
    }
    rungs = [
        f"{words[rung.source].format(rung.candidates)} for {_epochs(rung.epochs)}" for rung in plan.rungs
    ]
    seeds = f"with {plan.seeds} seed{'s' * (plan.seeds > 1)}"
    own = ["own orders for every image"] * plan.own_orders
    *arms, last = "row-major", "the best scan", "a random order", "the order found", *own
    return [
        f"plan: {', '.join(rungs)}: {plan.search_epochs} epochs, {plan.search_epochs / plan.epochs:.1f} full "
        "trainings",
        f"then {', '.join(arms)} and {last} for {_epochs(plan.epochs)}, and row-major for "
        f"{_epochs(plan.equal_epochs)}, {seeds}: {plan.final_epochs} epochs",
    ]


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' * (count > 1)}"
