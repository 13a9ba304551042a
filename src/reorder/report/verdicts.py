"""What won, by how much, in plain words: every way to read against fixed row-major, in paired points."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reorder.orders.scans import SCANS
from reorder.report.results import START, Result, by_order, scan_name, settings_of, start_of
from reorder.runs.statistics import largest_block
from reorder.runs.verdict import Difference, Verdict, paired_points

# n images

ROW = "row-major"
NO_ROW = (
    "No verdict: no fixed row-major run has the same model, data, settings, seeds and images as the others."
)
NO_OTHER = "No verdict: row-major is compared with no learned and no other fixed order."
Arm = list[Result]  # runs that read in one way, with the same seeds from every start


class Group(NamedTuple):
    """The runs of one model and data, and what they amount to."""

    model: str
    data: str
    runs: int
    row_top1: float  # of fixed row-major, in percent
    arms: dict[str, Difference]  # every other way to read, against row-major
    sentences: list[str]  # the first is on row-major
    verdict: Verdict | None

    @property
    def best_scan(self) -> str | None:
        return _best({name: found for name, found in self.arms.items() if name in SCANS})


def groups_of(results: Sequence[Result]) -> list[Group]:
    """A group for every model and data, with its verdict, in the order of tables."""
    members: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for (model, data, _), group in by_order(results).items():
        members[model, data] += group
    return [_group(model, data, found, len(members) > 1) for (model, data), found in members.items()]


def main_group(groups: Sequence[Group]) -> Group:
    """The one with a verdict, of several that with most runs, of equal ones the first in the tables."""
    return max(groups, key=lambda group: (group.verdict is not None, group.runs))


def _group(model: str, data: str, members: list[Result], several: bool) -> Group:
    """A group with its verdict, whose text names the group if there are several."""
    arms = _arms(members)
    row = arms.pop(ROW, [])
    found = {name: against for name, arm in arms.items() if (against := difference(arm, row))}
    top1 = 100 * float(np.mean([result.summary["top1"] for result in row])) if row else 0.0
    group = Group(model, data, len(members), top1, found, [NO_OTHER if row else NO_ROW], None)
    subject, said = _on_learned(group, arms) or _on_fixed(group, arms) or ("", group.sentences)
    said[0] = f"{model} on {data}: {said[0]}" if several else said[0]
    verdict = Verdict(" ".join(said), ROW, found[subject]) if subject else None
    return group._replace(sentences=said, verdict=verdict)


def _arms(members: list[Result]) -> dict[str, Arm]:
    """The ways to read of a group's runs, of those that were validated on as many images as the first."""
    arms: dict[str, Arm] = defaultdict(list)
    known = [result for result in members if result.correct is not None]
    for result in known:
        name = _start(result) if result.kind == "fixed" else result.kind + settings_of(result)
        if len(result.correct) == len(known[0].correct):  # type: ignore[arg-type]
            arms[name].append(result)
    return {name: _complete(arm) for name, arm in arms.items()}


def _complete(runs: list[Result]) -> Arm:
    """The runs of the starts that share most seeds, with these seeds."""
    by_start: dict[str, dict[int, Result]] = defaultdict(dict)
    for result in runs:
        by_start[_start(result)].setdefault(result.seed, result)
    starts, seeds = largest_block({start: set(by_seed) for start, by_seed in by_start.items()})
    return [by_start[start][seed] for start in starts for seed in sorted(seeds)]


def _start(result: Result) -> str:
    """What a run reads or starts from; a scan that a prior chose is that scan."""
    scan = start_of(result.summary)
    return ROW if scan == "row" else scan if scan in SCANS else scan_name(result.summary)


def difference(arm: Arm, other: Arm) -> Difference | None:
    """One arm against another on the seeds that both have, each the mean over its starts."""
    ours, theirs = _by_seed(arm), _by_seed(other)
    seeds = [seed for seed in ours if seed in theirs]
    return paired_points([ours[s] for s in seeds], [theirs[s] for s in seeds]) if seeds else None


def _by_seed(arm: Arm) -> dict[int, np.ndarray]:
    """How often each image (n,) is right, by seed: the mean over the starts."""
    found: dict[int, list[np.ndarray]] = defaultdict(list)
    for result in arm:
        found[result.seed].append(result.correct)  # type: ignore[arg-type]
    return {seed: np.mean(correct, axis=0) for seed, correct in found.items()}


def _best(differences: dict[str, Difference]) -> str | None:
    """The best arm of those with most seeds."""
    return max(
        differences, key=lambda name: (differences[name].seeds, differences[name].points), default=None
    )


def _on_learned(group: Group, arms: dict[str, Arm]) -> tuple[str, list[str]] | None:
    """The learned arm with most runs and what is said of it; that of Algorithm 1 if nothing else learned."""
    learned = [name for name in group.arms if arms[name][0].learns]
    learned = [name for name in learned if arms[name][0].kind == "learned"] or learned
    if not learned:
        return None
    name = max(learned, key=lambda name: len(arms[name]))
    arm, starts = arms[name], len(_starts(arms[name]))
    subject = "The learned order" if arm[0].kind == "learned" else "The order that Algorithm 1 learned"
    about = [f"mean of {starts} starts"] if starts > 1 else []
    about += [settings] if (settings := settings_of(arm[0]).removeprefix(", ")) else []
    subject += f" ({'; '.join(about)})" if about else ""
    return name, [_sentence(subject, ROW, group.arms[name], counts=True), *_on_controls(group, arms, arm)]


def _on_controls(group: Group, arms: dict[str, Arm], arm: Arm) -> list[str]:
    """A learned arm against equal noise and Algorithm 1 from the same starts, and the best other scan."""
    said = []
    for name, control in arms.items():
        if _is_control(control[0], arm[0]):
            shared = _starts(arm) & _starts(control)
            pair = [[result for result in runs if _start(result) in shared] for runs in (arm, control)]
            if against := difference(*pair):
                noise = control[0].kind == "equal noise"
                said.append(_sentence("It", "equal noise, which learns nothing" if noise else name, against))
    scans = sum(name in SCANS for name in group.arms)
    if (best := group.best_scan) and (against := difference(arm, arms[best])):
        words = f"{best}, the best of {scans} other scans, chosen after the fact" if scans > 1 else best
        said.append(_sentence("It", words, against))
    return said


def _starts(arm: Arm) -> set[str]:
    return {_start(result) for result in arm}


def _is_control(control: Result, learned: Result) -> bool:
    """Whether a run explores as much as a learned one and learns nothing, or by Algorithm 1 alone."""
    if control.kind == "equal noise":
        own = (*START, "order.policy")
        return all(learned.keys.get(key) == value for key, value in control.keys.items() if key not in own)
    return control.kind == "Algorithm 1" and learned.kind == "learned"


def _on_fixed(group: Group, arms: dict[str, Arm]) -> tuple[str, list[str]] | None:
    """The best fixed order other than row-major, and what is said of it."""
    fixed = {name: found for name, found in group.arms.items() if arms[name][0].kind == "fixed"}
    best = _best(fixed)
    if best is None:
        return None
    if len(fixed) == 1:
        return best, [_sentence(f"The fixed order {best}", ROW, fixed[best], counts=True)]
    subject = f"The best of {len(fixed)} other fixed orders, {best},"
    said = _sentence(subject, ROW, fixed[best], counts=True)
    return best, [said, "It was chosen after the fact, which favours it."]


def _sentence(subject: str, other: str, found: Difference, counts: bool = False) -> str:
    """Which of two is better, by how many points; below two errors, that they cannot be told apart."""
    seeds = f"{found.seeds} seed{'s' * (found.seeds != 1)}"
    counted = f" ({seeds}, {found.images:,} images)" if counts else ""
    if found.points == 0 or abs(found.points) < 2 * found.sem:
        size = f"{found.points:+.1f} ± {found.sem:.1f} points"
        return f"{subject} cannot be told apart from {other}: {size}{counted}."
    size = f"{abs(found.points):.1f} ± {found.sem:.1f} points"
    return f"{subject} is {size} {'better' if found.points > 0 else 'worse'} than {other}{counted}."
