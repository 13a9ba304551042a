"""Which orders are better: paired differences of runs that share model, data and seed."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from reorder.orders.scans import SCANS
from reorder.report.results import START_KEYS, Result, by_order, rank, settings_of, start_of, top1
from reorder.runs.statistics import Mean, blocked_f_test, largest_block, mean_over_seeds, seeds_left_out

# n images

ROW, START, NOISE, ALGORITHM = "row-major", "its start, fixed", "equal noise", "Algorithm 1"
BEST = "best other scan"


class Pair(NamedTuple):
    """Two runs of one seed on the same images: a row of the table of pairs."""

    against: str  # what is compared with: ROW, START, NOISE, ALGORITHM or BEST
    kind: str  # of the first run, as are those up to its order
    model: str
    data: str
    settings: str
    start: str
    order: str
    other: str  # the second run's order
    seed: int
    a: Result
    b: Result
    share: np.ndarray  # what each image (n,) adds to the difference in top-1: 1, 0 or -1


class Compared(NamedTuple):
    pairs: pd.DataFrame  # of `Pair`
    notes: list[str]


def compare(results: Sequence[Result]) -> Compared:
    """Every order against row-major; those that explore against their start; learned ones against controls.

    Equal noise against its start is what exploring costs or gains without learning.
    """
    groups = by_order(results)
    pairs: list[Pair] = []
    alone: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)  # what lacks a partner, and why
    for against in (ROW, START, NOISE, ALGORITHM, BEST):
        for (model, data, order), group in groups.items():
            if not _is_compared(group[0], against):
                continue
            fitting = [other for other in groups.values() if _fits(group[0], other[0], against)]
            # of several, one that lacks fewest of the seeds, and of these the best
            partner = max(fitting, key=lambda other: _common(other, group), default=[])
            found, unpaired = pair_up(group, partner, against)
            pairs += found
            if unpaired and (partner or against in (ROW, START)):
                why = f"seed {', '.join(map(str, unpaired))} only on one side, or on other images"
                alone[against, model, data, why if partner else "there is no such run"].append(order)
    notes = [
        f"{model}, {data}, against {against}: {'; '.join(orders)} not compared: {why}."
        for (against, model, data, why), orders in alone.items()
    ]
    return Compared(as_table(pairs), notes)


def as_table(pairs: Sequence[Pair]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=Pair._fields)


def _is_compared(result: Result, against: str) -> bool:
    """Whether runs like this one are compared in this respect."""
    if against == ROW:
        return (result.kind, start_of(result.summary)) != ("fixed", "row")
    if against == ALGORITHM:
        return result.kind == "learned"
    return result.learns or (against == START and result.kind == "equal noise")


def _fits(result: Result, other: Result, against: str) -> bool:
    """Whether a run is what another is compared with in this respect, and differs in nothing else."""
    starts = {ROW: {"row"}, BEST: SCANS.keys() - {"row"}}.get(against, {start_of(result.summary)})
    kind = against if against in (NOISE, ALGORITHM) else "fixed"
    if (result.model, result.data, kind) != (other.model, other.data, other.kind):
        return False
    own = (*START_KEYS, "order.policy")
    equal = [result.keys.get(key) == value for key, value in other.keys.items() if key not in own]
    return start_of(other.summary) in starts and (against != NOISE or all(equal))


def _common(group: list[Result], own: list[Result]) -> tuple[int, float]:
    """How many seeds a group shares with another, and its mean over them."""
    shared = [result for result in group if result.seed in {each.seed for each in own}]
    return len(shared), top1(shared).value if shared else 0.0


def pair_up(group: list[Result], partner: list[Result], against: str) -> tuple[list[Pair], list[int]]:
    """The runs of both sides that share seed and images, and the seeds of which there is no such pair."""
    others = {result.seed: result for result in partner}
    pairs = []
    for a in group:
        b = others.get(a.seed)
        if b is None or a.correct is None or b.correct is None or len(a.correct) != len(b.correct):
            continue
        about = (a.kind, a.model, a.data, settings_of(a), start_of(a.summary), a.order, b.order, a.seed)
        pairs.append(Pair(against, *about, a, b, a.correct.astype(float) - b.correct))
    seeds = {result.seed for result in (*group, *partner)}
    return pairs, sorted(seeds - {pair.seed for pair in pairs})


def complete(table: pd.DataFrame, by: str, about: str, least: int = 1) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the starts or orders that share most seeds, with these seeds; and a note on the rest."""
    table = table.drop_duplicates([by, "seed"])  # a scan, and the same chosen by a prior
    have = {name: set(found.seed) for name, found in table.groupby(by, sort=False)}
    kept, seeds = largest_block(have, least)
    block = table[table[by].isin(kept) & table.seed.isin(seeds)]
    return block, seeds_left_out(about, have, kept, seeds)


def shares_by_seed(pairs: pd.DataFrame) -> list[np.ndarray]:
    """What each image (n,) adds to the mean difference of all pairs of a seed, seed by seed."""
    return [np.mean([*found.share], axis=0) for _, found in pairs.groupby("seed")]


def mean_difference(shares: Sequence[np.ndarray]) -> Mean:
    """The mean over seeds of a difference in top-1, from the shares of the images (n,) in it."""
    return mean_over_seeds([float(share.mean()) for share in shares], shares)


class Sensitivity(NamedTuple):
    """How much a model's top-1 depends on which of several fixed scans it reads."""

    model: str
    data: str
    means: dict[str, float]  # by scan, over the same seeds
    seeds: int
    error: float  # standard error of the difference of two scans, pooled over all of them
    p_value: float  # that no scan differs from another

    @property
    def between(self) -> float:
        """The standard deviation between scans that chance does not explain."""
        variance = float(np.var(list(self.means.values()), ddof=1)) - self.error**2 / 2
        return math.sqrt(max(0.0, variance))


def sensitivities(results: Sequence[Result]) -> tuple[list[Sensitivity], list[str]]:
    """Of every model that read several scans with several seeds: an F-test with seeds as blocks; and notes.

    All scans together tell the error far better than two of them do.
    """
    rows = [
        (result.model, result.data, start_of(result.summary), result.seed, result.summary["top1"])
        for result in sorted(results, key=rank)
        if result.kind == "fixed" and start_of(result.summary) in SCANS
    ]
    table = pd.DataFrame(rows, columns=["model", "data", "scan", "seed", "top1"])
    found, notes = [], []
    for (model, data), scans in table.groupby(["model", "data"], sort=False):
        if scans.scan.nunique() == 1:
            continue
        block, said = complete(scans, "scan", f"{model}, {data}", least=2)
        values = block.pivot(index="scan", columns="seed", values="top1").loc[block.scan.unique()]
        if min(values.shape) < 2:
            notes.append(f"{model}, {data}: no test, which takes two scans with two seeds in common.")
            continue
        notes += said
        error, p_value = blocked_f_test(values.to_numpy())
        means = values.mean(axis=1).to_dict()
        found.append(Sensitivity(model, data, means, values.shape[1], error, p_value))
    return found, notes
