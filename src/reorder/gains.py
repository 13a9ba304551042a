"""What a change amounts to over many runs: learning an order, over starts and models; or another setting."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from reorder.comparisons import BEST, NOISE, ROW, START, Comparison, Pair, pair_up
from reorder.results import Mean, Result, by_order, extra_keys, mean_over_seeds, settings_of, start_of

# n images

LEARNED, EXPLORED = "learned", "equal noise"
ASKED = ((LEARNED, START), (LEARNED, NOISE), (LEARNED, ROW), (LEARNED, BEST), (EXPLORED, START))
OF_POLICY = {"global": LEARNED, "noise": EXPLORED}

Pairs = dict[str, dict[int, Pair]]  # by start or order, and by seed


class Gain(NamedTuple):
    """Runs against others, seed by seed, each the mean over several starts or orders."""

    what: str
    against: str
    model: str  # and, where there are several, the policy's settings
    data: str
    over: int  # starts or orders
    seeds: list[int]
    differences: list[float]  # in top-1, as fractions
    shares: list[np.ndarray]  # of the images (n,), seed by seed

    @property
    def mean(self) -> Mean:
        return mean_over_seeds(self.differences, self.shares)


def _gain(what: str, against: str, model: str, data: str, several: list[Pairs]) -> Gain:
    """The mean over all pairs of a seed, which are as many for every seed."""
    by_seed: dict[int, list[Pair]] = defaultdict(list)
    for pairs in several:
        for of_seeds in pairs.values():
            for seed, pair in of_seeds.items():
                by_seed[seed].append(pair)
    differences = [float(np.mean([pair.paired.difference for pair in found])) for found in by_seed.values()]
    shares = [np.mean([pair.shares for pair in found], axis=0) for found in by_seed.values()]
    return Gain(what, against, model, data, len(several[0]), [*by_seed], differences, shares)


def _whole(pairs: Pairs) -> Pairs:
    """The starts that have all seeds of the one that has most: errors are taken over seeds."""
    most = max(pairs.values(), key=len, default={})
    return {name: of_seeds for name, of_seeds in pairs.items() if most.keys() <= of_seeds.keys()}


def _shared(models: dict[str, Pairs]) -> dict[str, Pairs]:
    """The starts, and of them the seeds, that all models have."""
    starts = [start for start in next(iter(models.values())) if all(start in of for of in models.values())]
    every = [set(pairs[start]) for pairs in models.values() for start in starts]
    seeds = sorted(set.intersection(*every)) if every else []
    return {
        model: {start: {seed: pairs[start][seed] for seed in seeds} for start in starts if seeds}
        for model, pairs in models.items()
    }


def gains(comparisons: Sequence[Comparison]) -> tuple[list[Gain], list[str]]:
    """What learning gains over several starts, and exploring without it; and notes.

    By model, and over all models but the ViT, which cannot tell orders apart.
    """
    explored: dict[str, dict[tuple[str, str, str], dict[str, Pairs]]] = {LEARNED: {}, EXPLORED: {}}
    for name, kind, _, pairs in comparisons:
        first = pairs[0].a
        if what := OF_POLICY.get(first.summary["policy"]):
            kinds = explored[what].setdefault((name[0], settings_of(first), name[1]), {})
            starts = kinds.setdefault(kind, {})
            starts.setdefault(start_of(first.summary), {pair.a.seed: pair for pair in pairs})
    found, notes = [], []
    for what, against in ASKED:
        together: dict[tuple[str, str, int], dict[str, Pairs]] = defaultdict(dict)  # settings, data, images
        for (model, settings, data), kinds in explored[what].items():
            starts = kinds.get(against, {})
            whole = _whole(starts)
            about = f"{model}{settings}, {data}, {what} against {against}"
            notes += _left_out(about, [start for of in kinds.values() for start in of], starts, whole)
            if len(whole) > 1:
                found.append(_gain(what, against, model + settings, data, [whole]))
            if whole and not model.startswith("vit"):
                images = len(next(iter(next(iter(whole.values())).values())).shares)
                together[settings, data, images][model] = whole
        for (settings, data, _), models in together.items():
            if len(models) > 1:
                pooled, said = _pooled(what, against, settings, data, models)
                found += pooled
                notes += said
    return found, notes


def _left_out(about: str, every: list[str], starts: Pairs, whole: Pairs) -> list[str]:
    """Notes on the starts that a mean lacks, and why."""
    notes = []
    if lacking := [start for start in dict.fromkeys(every) if start not in starts]:
        notes.append(f"{about}: not from {', '.join(lacking)}, for want of a partner.")
    if lacking := [start for start in starts if start not in whole]:
        notes.append(f"{about}: not from {', '.join(lacking)}, for want of seeds that others have.")
    return notes


def _pooled(
    what: str, against: str, settings: str, data: str, models: dict[str, Pairs]
) -> tuple[list[Gain], list[str]]:
    """The mean over models, of the starts and seeds that all have; and a note on what that leaves out."""
    name = f"mean of {len(models)} models, without the ViT{settings}"
    about = f"{name}, {data}, {what} against {against}"
    shared = _shared(models)
    if not any(shared.values()):
        return [], [f"{about}: none, for they have no start and seed in common."]
    gain = _gain(what, against, name, data, [*shared.values()])
    if shared == models:
        return [gain], []
    seeds, starts = ", ".join(map(str, gain.seeds)), ", ".join(shared[next(iter(shared))])
    return [gain], [f"{about}: of what all have, which is {starts} with seed {seeds}."]


def setting_changes(results: Sequence[Result]) -> list[Gain]:
    """What a setting of the model or the training changes, where runs differ in it alone.

    The mean over all orders that both have read; what comes first in tables is compared with.
    """
    variants: dict[tuple[str, str], dict[str, list[Result]]] = defaultdict(dict)
    for (model, data, order), group in by_order(results).items():
        variants[model, data][order] = group
    found = []
    for (_, theirs), (_, ours) in combinations(variants.items(), 2):
        first, other = (next(iter(orders.values()))[0] for orders in (ours, theirs))
        keys, others = _settings(first), _settings(other)
        differing = extra_keys(keys, others)
        if len(differing) != 1 or differing[0].startswith(
            "data."
        ):  # of which other images could be the cause
            continue
        pairs: Pairs = {
            order: {pair.a.seed: pair for pair in pair_up(ours[order], theirs[order])[0]}
            for order in ours
            if order in theirs
        }
        if whole := _whole({order: of_seeds for order, of_seeds in pairs.items() if of_seeds}):
            key = differing[0]
            changed, usual = (f"{key}={of.get(key, 'default')}" for of in (keys, others))
            found.append(_gain(changed, usual, other.model, other.data, [whole]))
    return found


def _settings(result: Result) -> dict[str, Any]:
    """The keys of a run that are not about its order, each option of the model by itself."""
    keys = {key: value for key, value in result.keys.items() if not key.startswith("order.")}
    options = keys.pop("model.options")
    return keys | {f"model.options.{option}": value for option, value in options.items()}
