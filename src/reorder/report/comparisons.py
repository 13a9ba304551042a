"""Which orders are better: paired differences of runs that share model, data and seed."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from reorder.orders.scans import SCANS
from reorder.report.results import Name, Result, by_order, extra_keys, start_of, top1
from reorder.runs.statistics import (
    Mean,
    PairedDifference,
    blocked_f_test,
    largest_block,
    mean_over_seeds,
    paired_difference,
    seeds_left_out,
)

ROW, START, NOISE, BEST = "row-major", "its start, fixed", "equal noise", "best fixed scan"


class Pair(NamedTuple):
    """Two runs of one seed on the same images."""

    a: Result
    b: Result
    paired: PairedDifference

    @property
    def shares(self) -> np.ndarray:
        """What each image (n,) adds to the difference: 1, 0 or -1."""
        return self.a.correct.astype(float) - self.b.correct  # type: ignore[union-attr]


class Comparison(NamedTuple):
    """An order against another, seed by seed."""

    name: Name  # model, data, order
    kind: str  # what it is compared with: ROW, START, NOISE or BEST
    against: str  # the other's order
    pairs: list[Pair]

    @property
    def differences(self) -> list[float]:
        """In top-1, as fractions, seed by seed."""
        return [pair.paired.difference for pair in self.pairs]

    @property
    def mean(self) -> Mean:
        """The mean difference over seeds."""
        return mean_over_seeds(self.differences, [pair.shares for pair in self.pairs])


class Compared(NamedTuple):
    comparisons: list[Comparison]
    notes: list[str]


def compare(results: Sequence[Result]) -> Compared:
    """Every order against row-major; learned ones against their start, equal noise and the best scan.

    And equal noise against its start, which is what exploring costs or gains without learning.
    """
    groups = by_order(results)
    comparisons: list[Comparison] = []
    alone: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)  # what lacks a partner, and why
    for kind in (ROW, START, NOISE, BEST):
        for (model, data, order), group in groups.items():
            if not _asked(kind, group[0]):
                continue
            partner, why = _partner(kind, group, groups)
            pairs, seeds = pair_up(group, partner)
            if pairs:
                comparisons.append(Comparison((model, data, order), kind, partner[0].order, pairs))
            if seeds:
                alone[kind, model, data, why or _one_side(seeds)].append(order)
            for better, lacking in _passed_over(kind, group, partner, groups):
                if better not in alone[kind, model, data, _one_side(lacking)]:
                    alone[kind, model, data, _one_side(lacking)].append(better)
    notes = [
        f"{model}, {data}, against {kind}: {'; '.join(orders)} not compared: {why}."
        for (kind, model, data, why), orders in alone.items()
    ]
    return Compared(comparisons, notes)


def _one_side(seeds: list[int]) -> str:
    return f"seed {', '.join(map(str, seeds))} only on one side, or on other images"


def _asked(kind: str, result: Result) -> bool:
    """Whether runs like this one are compared in this way."""
    if result.kind == "equal noise":
        return kind in (ROW, START)
    return result.learns or (kind == ROW and (result.kind, start_of(result.summary)) != ("fixed", "row"))


def _suits(kind: str, result: Result, other: Result) -> bool:
    """Whether the other reads what a run is compared with in this way."""
    scans = {ROW: ("row",), BEST: tuple(SCANS)}.get(kind, (start_of(result.summary),))
    policy = "noise" if kind == NOISE else "none"
    return other.summary["policy"] == policy and start_of(other.summary) in scans


def _extra(kind: str, result: Result, other: Result) -> list[str]:
    """The keys in which two runs differ, but for those that are compared."""
    keys = extra_keys(result.keys, other.keys)
    if kind == NOISE:  # the control shares the noise; what it does not read, it has nothing to learn with
        return [key for key in keys if key in other.keys and key != "order.policy"]
    return [key for key in keys if not key.startswith("order.")]


def _partner(kind: str, own: list[Result], groups: dict[Name, list[Result]]) -> tuple[list[Result], str]:
    """The runs to compare with, of several the best by their mean over the same seeds; or none, and why.

    Those that lack fewest of the seeds come first.
    """
    result, seeds = own[0], {each.seed for each in own}
    suiting = [group for group in groups.values() if _suits(kind, result, group[0])]
    extra = [_extra(kind, result, group[0]) for group in suiting]
    equal = [group for group, keys in zip(suiting, extra, strict=True) if not keys]
    if equal:
        return max(equal, key=lambda group: _merit(group, seeds)), ""
    near = [
        (keys, group)
        for group, keys in zip(suiting, extra, strict=True)
        if not {"model.name", "data.name"} & set(keys)
    ]
    if not near:
        return [], "there is no such run"
    keys, group = min(near, key=lambda pair: len(pair[0]))
    return [], f"{group[0].run.path} differs in {', '.join(keys)} as well"


def _merit(group: list[Result], seeds: set[int]) -> tuple[int, float]:
    """How many of the seeds a group has, and its mean over them."""
    shared = [each for each in group if each.seed in seeds]
    return len(shared), top1(shared).value if shared else 0.0


def _passed_over(
    kind: str, own: list[Result], partner: list[Result], groups: dict[Name, list[Result]]
) -> list[tuple[str, list[int]]]:
    """The orders that were better than the best that was chosen but lack seeds, and those seeds."""
    if kind != BEST or not partner:
        return []
    seeds, found = {each.seed for each in own}, []
    for group in groups.values():
        if _suits(kind, own[0], group[0]) and not _extra(kind, own[0], group[0]):
            common = seeds & {each.seed for each in group}
            if common and _merit(group, common)[1] > _merit(partner, common)[1]:
                found.append((group[0].order, sorted(seeds - common)))
    return found


def pair_up(group: list[Result], partner: list[Result]) -> tuple[list[Pair], list[int]]:
    """The runs of both sides that share seed and images, and the seeds of which there is no such pair."""
    other = {result.seed: result for result in partner}
    pairs, alone = [], list(other.keys() - {result.seed for result in group})
    for result in group:
        match = other.get(result.seed)
        if match is None or not _same_images(result, match):
            alone.append(result.seed)
            continue
        ours, theirs = torch.from_numpy(result.correct), torch.from_numpy(match.correct)
        paired = paired_difference(ours, theirs, generator=torch.Generator().manual_seed(0))
        pairs.append(Pair(result, match, paired))
    return pairs, sorted(alone)


def _same_images(a: Result, b: Result) -> bool:
    return a.correct is not None and b.correct is not None and len(a.correct) == len(b.correct)


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
    models: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(dict)
    for (model, data, _), group in by_order(results).items():
        scan = start_of(group[0].summary)
        if group[0].summary["policy"] == "none" and scan in SCANS:  # once, should a prior have chosen it too
            models[model, data].setdefault(scan, {each.seed: each.summary["top1"] for each in group})
    found, notes = [], []
    for (model, data), scans in models.items():
        if len(scans) == 1:
            continue
        have = {scan: set(of) for scan, of in scans.items()}
        kept, seeds = largest_block(have, least=2)
        if len(kept) < 2 or len(seeds) < 2:
            notes.append(f"{model}, {data}: no test, which takes two scans with two seeds in common.")
            continue
        notes += seeds_left_out(f"{model}, {data}", have, kept, seeds)
        values = np.array([[scans[scan][seed] for seed in sorted(seeds)] for scan in kept])
        error, p_value = blocked_f_test(values)
        means = dict(zip(kept, values.mean(1).tolist(), strict=True))
        found.append(Sensitivity(model, data, means, len(seeds), error, p_value))
    return found, notes
