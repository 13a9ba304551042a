"""What won, by how much, in plain words: every way to read against fixed row-major, in paired points."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from reorder.orders.scans import SCANS
from reorder.report.comparisons import ALGORITHM, BEST, NOISE, ROW, complete
from reorder.report.results import Result, rank
from reorder.runs.verdict import Difference, Verdict, paired_points

NONE = (
    "No verdict, which takes fixed row-major and a learned or another fixed order with the same model, data, "
    "settings, seeds and images."
)


class Group(NamedTuple):
    """The runs of one model and data, and what they amount to."""

    model: str
    data: str
    runs: int
    row_top1: float  # of fixed row-major, in percent
    arms: dict[str, Difference]  # every other way to read, the mean over its starts, against row-major
    sentences: list[str]  # the first is on row-major
    verdict: Verdict | None

    @property
    def best_scan(self) -> str | None:
        return _best({name: found for name, found in self.arms.items() if name in SCANS})


def groups_of(results: Sequence[Result], pairs: pd.DataFrame) -> list[Group]:
    """A group for every model and data, with its verdict, in the order of tables."""
    fixed = pairs.kind == "fixed"
    pairs = pairs.assign(
        arm=pairs.order.str.removesuffix(", fixed").where(fixed, pairs.kind + pairs.settings)
    )
    counts = Counter((result.model, result.data) for result in sorted(results, key=rank))
    groups = []
    for (model, data), runs in counts.items():
        own = pairs[(pairs.model == model) & (pairs.data == data)]
        groups.append(_group(model, data, runs, own, several=len(counts) > 1))
    return groups


def main_group(groups: Sequence[Group]) -> Group:
    """The one with a verdict, of several that with most runs, of equal ones the first in the tables."""
    return max(groups, key=lambda group: (group.verdict is not None, group.runs))


def _group(model: str, data: str, runs: int, pairs: pd.DataFrame, several: bool) -> Group:
    """A group with its verdict, whose text names the group if there are several."""
    on_row = pairs[pairs.against == ROW]
    arms = {name: difference(found) for name, found in on_row.groupby("arm", sort=False)}
    top1 = float(np.mean([100 * row.summary["top1"] for row in on_row.drop_duplicates("seed").b] or [0.0]))
    group = Group(model, data, runs, top1, arms, [NONE], None)
    subject, said = _on_learned(group, pairs) or _on_fixed(group, on_row) or ("", [NONE])
    said[0] = f"{model} on {data}: {said[0]}" if several else said[0]
    verdict = Verdict(" ".join(said), ROW, arms[subject]) if subject else None
    return group._replace(sentences=said, verdict=verdict)


def difference(pairs: pd.DataFrame) -> Difference:
    """The paired difference of an arm's runs, seed by seed the mean over the starts that share most seeds."""
    alike = pairs[pairs.share.map(len) == len(pairs.share.iloc[0])]  # as many images
    block, _ = complete(alike, "start", "")
    seeds = [found for _, found in block.groupby("seed")]
    ours, theirs = (
        [np.mean([run.correct for run in found[side]], axis=0) for found in seeds] for side in ("a", "b")
    )
    return paired_points(ours, theirs)


def _best(differences: dict[str, Difference]) -> str | None:
    """The best arm of those with most seeds."""
    return max(
        differences, key=lambda name: (differences[name].seeds, differences[name].points), default=None
    )


def _on_learned(group: Group, pairs: pd.DataFrame) -> tuple[str, list[str]] | None:
    """The learned arm with most runs and what is said of it; that of Algorithm 1 if nothing else learned."""
    on_row = pairs[pairs.against == ROW]
    for kind, subject in {"learned": "The learned order", ALGORITHM: "The order of Algorithm 1"}.items():
        learned = on_row[on_row.kind == kind]
        if len(learned):
            name = learned.arm.value_counts(sort=False).idxmax()
            own = pairs[pairs.arm == name]
            starts = complete(own[own.against == ROW], "start", "")[0].start.nunique()
            about = [f"mean of {starts} starts"] * (starts > 1) + [own.settings.iloc[0].removeprefix(", ")]
            if about := list(filter(None, about)):
                subject += f" ({'; '.join(about)})"
            return name, [_sentence(subject, ROW, group.arms[name], counts=True), *_on_controls(group, own)]
    return None


def _on_controls(group: Group, pairs: pd.DataFrame) -> list[str]:
    """A learned arm against equal noise and Algorithm 1 from the same starts, and the best other scan."""
    said = []
    scans = sum(name in SCANS for name in group.arms)
    for control in (NOISE, ALGORITHM, BEST):
        found = pairs[pairs.against == control]
        if len(found):
            other = found.other.iloc[0].removesuffix(", fixed")
            chosen = f", the best of {scans} other scans, chosen after the fact" if scans > 1 else ""
            words = {NOISE: f"{NOISE}, which learns nothing", BEST: f"{other}{chosen}"}.get(control, control)
            said.append(_sentence("It", words, difference(found)))
    return said


def _on_fixed(group: Group, on_row: pd.DataFrame) -> tuple[str, list[str]] | None:
    """The order that was found or learned before, or else the best fixed order, and what is said of it."""
    fixed = {name: group.arms[name] for name in on_row[on_row.kind == "fixed"].arm}
    chosen = {
        name: found for name, found in fixed.items() if name.startswith(("order found", "order learned"))
    }
    best = _best(chosen or fixed)
    if best is None:
        return None
    if chosen or len(fixed) == 1:  # not chosen by these results
        subject = f"The {best}" if chosen else f"The fixed order {best}"
        return best, [_sentence(subject, ROW, fixed[best], counts=True)]
    said = _sentence(f"The best of {len(fixed)} other fixed orders, {best},", ROW, fixed[best], counts=True)
    return best, [said, "It was chosen after the fact, which favours it."]


def _sentence(subject: str, other: str, found: Difference, counts: bool = False) -> str:
    """Which of two is better, by how many points; within its bound, that they cannot be told apart."""
    seeds = f"{found.seeds} seed{'s' * (found.seeds != 1)}"
    counted = f" ({seeds}, {found.images:,} images)" if counts else ""
    if found.points == 0 or abs(found.points) <= found.bound:
        size = f"{found.points:+.1f} ± {found.sem:.1f} points"
        return f"{subject} cannot be told apart from {other}: {size}{counted}."
    size = f"{abs(found.points):.1f} ± {found.sem:.1f} points"
    return f"{subject} is {size} {'better' if found.points > 0 else 'worse'} than {other}{counted}."
