"""What a change amounts to over many runs: learning an order, over starts and models; or another setting."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reorder.report.comparisons import (
    ALGORITHM,
    BEST,
    NOISE,
    ROW,
    START,
    Pair,
    as_table,
    complete,
    pair_up,
    shares_by_seed,
)
from reorder.report.evaluation import TRAINING_ONLY
from reorder.report.results import SETTINGS, Result, by_order
from reorder.runs.statistics import largest_block

# n images

LEARNED = "learned"
ASKED = [(kind, against) for kind in (LEARNED, ALGORITHM) for against in (START, NOISE, ROW, BEST)]
ASKED += [(LEARNED, ALGORITHM), (NOISE, START)]
COMMON = ("data.", "train.epochs", *SETTINGS)


class Gain(NamedTuple):
    """Runs against others, seed by seed, each the mean over several starts or orders."""

    what: str
    against: str
    model: str  # and, where there are several, the policy's settings
    data: str
    over: int  # starts or orders
    seeds: list[int]
    shares: list[np.ndarray]  # of the images (n,) in the difference of top-1, seed by seed


def _gain(what: str, against: str, model: str, data: str, over: str, pairs: pd.DataFrame) -> Gain:
    """The mean over all pairs of a seed, which are as many for every seed."""
    seeds = sorted(set(pairs.seed))
    return Gain(what, against, model, data, pairs[over].nunique(), seeds, shares_by_seed(pairs))


def gains(pairs: pd.DataFrame) -> tuple[list[Gain], list[str]]:
    """What learning gains over several starts, and exploring without it; and notes.

    By model, and over all models but the ViT, which cannot tell orders apart.
    """
    found, notes = [], []
    for kind, against in ASKED:
        asked = pairs[(pairs.kind == kind) & (pairs.against == against)]
        blocks = []
        for (model, settings, data), group in asked.groupby(["model", "settings", "data"], sort=False):
            block, said = complete(group, "start", f"{model}{settings}, {data}, {kind} against {against}")
            notes += said
            if block.start.nunique() > 1:
                found.append(_gain(kind, against, model + settings, data, "start", block))
            if not model.startswith("vit"):
                blocks.append(block.assign(common=_common_ground(block.iloc[0])))
        for (settings, data, _), group in _grouped(blocks, ["settings", "data", "common"]):
            gain, said = _pooled(kind, against, settings, data, group)
            found += gain
            notes += said
    return found, notes


def _grouped(blocks: list[pd.DataFrame], by: list[str]) -> Any:
    return pd.concat(blocks).groupby(by, sort=False) if blocks else []


def _common_ground(pair: Any) -> str:
    """What models must share to be averaged: the images, how long they were trained, and the policy."""
    keys = {key: value for key, value in pair.a.keys.items() if key.startswith(COMMON)}
    return repr((len(pair.share), sorted(keys.items())))


def _pooled(
    kind: str, against: str, settings: str, data: str, pairs: pd.DataFrame
) -> tuple[list[Gain], list[str]]:
    """The mean over the models that share most starts and seeds; and a note on what that leaves out."""
    if pairs.model.nunique() < 2:
        return [], []
    have = {
        model: {*zip(own.start, own.seed, strict=True)} for model, own in pairs.groupby("model", sort=False)
    }
    kept, shared = largest_block(have, least=2)
    about = f"{data}, {kind} against {against}"
    if len(kept) < 2:
        return [], [f"{about}: no mean over models, which share no start and seed."]
    is_shared = np.array([pair in shared for pair in zip(pairs.start, pairs.seed, strict=True)])
    block = pairs[pairs.model.isin(kept) & is_shared]
    name = f"mean of {len(kept)} models, without the ViT{settings}"
    gain = _gain(kind, against, name, data, "start", block)
    if len(block) == len(pairs):
        return [gain], []
    starts = f"from {', '.join(block.start.unique())} with seed {', '.join(map(str, gain.seeds))}"
    return [gain], [f"{name}, {about}: of {', '.join(kept)}, {starts}; what they do not share is left out."]


def setting_changes(results: Sequence[Result]) -> tuple[list[Gain], list[str]]:
    """What a setting changes, other than the order, where runs differ in it alone; and notes.

    The mean over all orders that both have read; what comes first in tables is compared with.
    """
    variants: dict[tuple[str, str], dict[str, list[Result]]] = defaultdict(dict)
    for (model, data, order), group in by_order(results).items():
        variants[model, data][order] = group
    found, notes = [], []
    for (variant, theirs), (_, ours) in combinations(variants.items(), 2):
        changes: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        for order in ours:
            if order in theirs and (change := _one_change(ours[order][0], theirs[order][0])):
                changes[change] += pair_up(ours[order], theirs[order], "")[0]
        for (changed, usual), pairs in changes.items():
            about = f"{', '.join(variant)}, {changed} against {usual}"
            block, said = complete(as_table(pairs), "order", about)
            notes += said
            if len(block):
                found.append(_gain(changed, usual, *variant, "order", block))
    return found, notes


def _one_change(run: Result, other: Result) -> tuple[str, str] | None:
    """The one key in which two runs differ, with both values; None if there are more, or other images."""
    ours, theirs = _with_options(run.keys), _with_options(other.keys)
    differing = _different_keys(ours, theirs)
    if len(differing) != 1 or (differing[0].startswith("data.") and differing[0] not in TRAINING_ONLY):
        return None
    (key,) = differing
    return f"{key}={ours.get(key, 'default')}", f"{key}={theirs.get(key, 'default')}"


def _different_keys(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The keys in which two runs differ."""
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]


def _with_options(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys with each option of the model by itself."""
    options = {f"model.options.{option}": value for option, value in keys["model.options"].items()}
    return {key: value for key, value in keys.items() if key != "model.options"} | options
