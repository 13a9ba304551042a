"""What a change amounts to over many runs: learning an order, over starts and models; or another setting."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np

from reorder.report.comparisons import BEST, NOISE, ROW, START, Comparison, Pair, pair_up
from reorder.report.evaluation import TRAINING_ONLY
from reorder.report.results import SETTINGS, Result, by_order, extra_keys, settings_of, start_of
from reorder.runs.statistics import Mean, largest_block, mean_over_seeds, seeds_left_out

# n images

LEARNED = "learned"
EXPLORED = (LEARNED, "Algorithm 1", NOISE)
ASKED = [(what, against) for what in EXPLORED[:2] for against in (START, NOISE, ROW, BEST)] + [(NOISE, START)]
COMMON = ("data.", "train.epochs", *SETTINGS)

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


def _restricted(pairs: Pairs, names: Iterable[str], seeds: Iterable[int]) -> Pairs:
    return {name: {seed: pairs[name][seed] for seed in sorted(seeds)} for name in names}


def _whole(about: str, pairs: Pairs) -> tuple[Pairs, list[str]]:
    """The starts or orders that share most seeds, with those seeds; and a note on what that leaves out."""
    have = {name: set(of_seeds) for name, of_seeds in pairs.items()}
    kept, seeds = largest_block(have)
    return _restricted(pairs, kept, seeds), seeds_left_out(about, have, kept, seeds)


def gains(comparisons: Sequence[Comparison]) -> tuple[list[Gain], list[str]]:
    """What learning gains over several starts, and exploring without it; and notes.

    By model, and over all models but the ViT, which cannot tell orders apart.
    """
    explored: dict[str, dict[tuple[str, str, str], dict[str, Pairs]]] = {what: {} for what in EXPLORED}
    for name, kind, _, pairs in comparisons:
        first = pairs[0].a
        if first.kind in explored:
            kinds = explored[first.kind].setdefault((name[0], settings_of(first), name[1]), {})
            starts = kinds.setdefault(kind, {})
            starts.setdefault(start_of(first.summary), {pair.a.seed: pair for pair in pairs})
    found, notes = [], []
    for what, against in ASKED:
        together: dict[tuple[str, str, str], dict[str, Pairs]] = defaultdict(dict)
        for (model, settings, data), kinds in explored[what].items():
            about = f"{model}{settings}, {data}, {what} against {against}"
            starts = kinds.get(against, {})
            if lacking := [start for start in dict.fromkeys(chain(*kinds.values())) if start not in starts]:
                notes.append(f"{about}: not from {', '.join(lacking)}, for want of a partner.")
            whole, said = _whole(about, starts)
            notes += said
            if len(whole) > 1:
                found.append(_gain(what, against, model + settings, data, [whole]))
            if whole and not model.startswith("vit"):
                together[settings, data, _common_ground(whole)][model] = whole
        for (settings, data, _), models in together.items():
            gain, said = _pooled(what, against, settings, data, models)
            found += gain
            notes += said
    return found, notes


def _common_ground(pairs: Pairs) -> str:
    """What models must share to be averaged: the images, how long they were trained, and the policy."""
    first = next(iter(next(iter(pairs.values())).values()))
    keys = {key: value for key, value in first.a.keys.items() if key.startswith(COMMON)}
    return repr((len(first.shares), sorted(keys.items())))


def _pooled(
    what: str, against: str, settings: str, data: str, models: dict[str, Pairs]
) -> tuple[list[Gain], list[str]]:
    """The mean over the models that share most starts and seeds; and a note on what that leaves out."""
    if len(models) < 2:
        return [], []
    have = {
        model: {(start, seed) for start, of_seeds in pairs.items() for seed in of_seeds}
        for model, pairs in models.items()
    }
    kept, shared = largest_block(have, least=2)
    about = f"{data}, {what} against {against}"
    if len(kept) < 2:
        return [], [f"{about}: no mean over models, for they share no start and seed."]
    starts = [start for start in models[kept[0]] if any(start == other for other, _ in shared)]
    seeds = {seed for _, seed in shared}
    name = f"mean of {len(kept)} models, without the ViT{settings}"
    gain = _gain(what, against, name, data, [_restricted(models[model], starts, seeds) for model in kept])
    if all(had == shared for had in have.values()):
        return [gain], []
    found = f"from {', '.join(starts)} with seed {', '.join(map(str, gain.seeds))}"
    return [gain], [f"{name}, {about}: of {', '.join(kept)}, {found}; what they do not share is left out."]


def setting_changes(results: Sequence[Result]) -> tuple[list[Gain], list[str]]:
    """What a setting changes, other than the order, where runs differ in it alone; and notes.

    The mean over all orders that both have read; what comes first in tables is compared with.
    """
    variants: dict[tuple[str, str], dict[str, list[Result]]] = defaultdict(dict)
    for (model, data, order), group in by_order(results).items():
        variants[model, data][order] = group
    found, notes = [], []
    for (variant, theirs), (_, ours) in combinations(variants.items(), 2):
        changes: dict[tuple[str, str], Pairs] = defaultdict(dict)
        for order in ours:
            if order in theirs and (change := _one_change(ours[order][0], theirs[order][0])):
                pairs, _ = pair_up(ours[order], theirs[order])
                changes[change][order] = {pair.a.seed: pair for pair in pairs}
        for (changed, usual), pairs_of in changes.items():
            whole, said = _whole(f"{', '.join(variant)}, {changed} against {usual}", pairs_of)
            notes += said
            if whole:
                found.append(_gain(changed, usual, *variant, [whole]))
    return found, notes


def _one_change(run: Result, other: Result) -> tuple[str, str] | None:
    """The one key in which two runs differ, with both values; None if there are more, or other images."""
    ours, theirs = _with_options(run.keys), _with_options(other.keys)
    differing = extra_keys(ours, theirs)
    if len(differing) != 1 or (differing[0].startswith("data.") and differing[0] not in TRAINING_ONLY):
        return None
    (key,) = differing
    return f"{key}={ours.get(key, 'default')}", f"{key}={theirs.get(key, 'default')}"


def _with_options(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys with each option of the model by itself."""
    options = {f"model.options.{option}": value for option, value in keys["model.options"].items()}
    return {key: value for key, value in keys.items() if key != "model.options"} | options
