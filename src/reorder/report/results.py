"""Finished runs, sorted by what they tell: model, data, order, seed; and their means over seeds."""

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reorder.config import Experiment, Order, images_of, keys_that_matter, reading_of
from reorder.models.backbones import BACKBONES
from reorder.orders.scans import SCANS
from reorder.runs.directory import History, RunDir
from reorder.runs.statistics import Mean, mean_over_seeds

# S seeds, n images


class Look(NamedTuple):
    """How runs of a kind are drawn; the marker says in print what the colour says."""

    colour: str
    marker: str


# All ways to read that a report names, in the order in which it lists them; colours are Okabe and Ito's.
KINDS = {
    "fixed": Look("#000000", "o"),
    "equal noise": Look("#E69F00", "s"),
    "Algorithm 1": Look("#009E73", "D"),
    "learned": Look("#0072B2", "^"),
    "random every batch": Look("#D55E00", "X"),
}
BY_POLICY = {"none": "fixed", "noise": "equal noise", "random": "random every batch"}  # other policies learn


class Result(NamedTuple):
    """A finished run: runs with equal model, data and order differ in nothing but the seed."""

    run: RunDir
    summary: dict[str, Any]
    keys: dict[str, Any]  # what was computed, without the seed
    model: str
    data: str
    order: str
    correct: np.ndarray | None  # (n,), bool; None if the file is missing or damaged
    metrics: list[dict[str, Any]]  # a line per epoch; none if the file is missing or damaged

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def kind(self) -> str:
        """The way in which it reads, a key of `KINDS`."""
        policy = self.keys["order.policy"]
        if policy in BY_POLICY:
            return BY_POLICY[policy]
        return "Algorithm 1" if self.keys["order.estimator"] == "paper" else "learned"

    @property
    def learns(self) -> bool:
        return self.kind in ("Algorithm 1", "learned")

    @property
    def grid(self) -> tuple[int, int]:
        return self.summary["grid"][0], self.summary["grid"][1]


class Collection(NamedTuple):
    results: list[Result]
    notes: list[str]  # what was left out, and why


def expand(paths: Iterable[Path]) -> list[RunDir]:
    """The run directories that paths name: themselves, or all those below them."""
    found: dict[Path, RunDir] = {}
    for path in paths:
        below = list(_run_directories(path))
        if not below:
            raise ValueError(f"{path} is not a run directory, nor are there any in it")
        found |= {run.path: run for run in below}
    return list(found.values())


def _run_directories(path: Path) -> Iterable[RunDir]:
    if (path / "config.yaml").exists() or (path / "log.txt").exists():
        yield RunDir(path)
        yield from RunDir(path).inside()  # the runs that it is compared with
        return
    for entry in sorted(path.glob("*")):
        if entry.is_dir():
            yield from _run_directories(entry)


def collect(runs: Sequence[RunDir]) -> Collection:
    """The results of finished runs, and notes on what is left out; refused if no run is finished."""
    results: list[Result] = []
    notes: list[str] = []
    for run in runs:
        try:
            if (summary := run.summary()) is None:
                notes.append(f"{run.path}: {_why_unfinished(run)}.")
                continue
            experiment = run.experiment()
            _check_same_run(summary, experiment)
        except (ValueError, OSError) as error:
            notes.append(f"{run.path}: left out: {error}.")
            continue
        result, unreadable = _result(run, summary, experiment)
        results.append(result)
        notes += unreadable
    if not results:
        raise ValueError(f"none of the runs is finished: {' '.join(notes)}")
    results = _with_settings(results, "data", lambda r: (r.model, r.data), NOT_ORDER)
    results = _with_settings(results, "order", lambda r: (r.model, r.data, _kind_or_control(r)), SETTINGS)
    results = _with_settings(results, "order", lambda r: (r.model, r.data, r.order), START_KEYS, usual=False)
    results, repeated = _without_repeated(results)
    return Collection(results, notes + repeated)


def _check_same_run(summary: dict[str, Any], experiment: Experiment) -> None:
    """Refuse results of another run than the configuration's."""
    configured = {
        "model": experiment.model.name,
        "policy": experiment.order.policy,
        "epochs": experiment.train.epochs,
        "seed": experiment.train.seed,
    }
    for key, value in configured.items():
        if summary[key] != value:
            raise ValueError(f"its {key} is {summary[key]} in summary.json and {value} in config.yaml")


def _why_unfinished(run: RunDir) -> str:
    """What is known about a run without results."""
    log = run.path / "log.txt"
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    said = f"; its log ends: {lines[-1].strip()}" if lines else ""
    done = len(run.metrics()) if (run.path / "metrics.jsonl").exists() else 0
    return f"not finished, {done} epochs done{said}"


def _result(run: RunDir, summary: dict[str, Any], experiment: Experiment) -> tuple[Result, list[str]]:
    """A finished run, and notes on files that cannot be read."""
    model, data = experiment.model, experiment.data
    options = [f"{key}={value}" for key, value in sorted(model.options.items())]
    rows, columns = summary["grid"]
    keys = keys_that_matter(experiment) | {"order.scan": scan_name(summary)}
    del keys["train.seed"]
    if summary["policy"] == "none" and start_of(summary).endswith(".json"):  # files of one name may differ
        digest = hashlib.sha256(json.dumps(summary["order"]).encode()).hexdigest()
        keys["order.scan"] += f" ({digest[:8]})"
    keys["data.root"] = images_of(data)
    correct, metrics, notes = None, [], []
    try:
        correct = run.correct()
        if len(correct) != summary.get("validation_images", len(correct)):
            correct = None
            raise ValueError(f"correct.npy is not of the {summary['validation_images']} validation images")
    except ValueError as error:
        notes.append(f"{run.path}: in no paired difference: {error}.")
    try:
        metrics = run.metrics()
    except ValueError as error:
        notes.append(f"{run.path}: without a curve: {error}.")
    names = (" ".join([model.label, model.size, *options]), f"{images_of(data)} {rows}x{columns}")
    order = order_name(summary, experiment.order.estimator)
    return Result(run, summary, keys, *names, order, correct, metrics), notes


def policy_of(result: Result) -> History:
    """A run's policy through its training."""
    history, path = result.run.policy(), result.run.path / "policy.npz"
    if len(history.initial) != math.prod(result.grid):
        raise ValueError(f"{path} is of {len(history.initial)} patches, but the run reads {result.grid}")
    if result.learns and not history.logits.shape[1]:
        raise ValueError(f"{path} has no logits, but the run learned an order")
    return history


def start_of(summary: dict[str, Any]) -> str:
    """The scan or order that a run reads or starts from; of a prior, the scan that it chose."""
    if (name := _origin(summary)) and "learned" in name:  # every seed has its own file
        return name
    return str(summary.get("prior_scan", summary["scan"]))


def _origin(summary: dict[str, Any]) -> str | None:
    """What learned or found the order in the file that a run reads, if its file says so."""
    origin = summary.get("order_file", {})
    policy, scan, search = (origin.get(key) for key in ("policy", "scan", "search"))
    if isinstance(search, str):
        return f"order found by {search}"
    if isinstance(policy, str) and isinstance(scan, str) and policy not in BY_POLICY:
        return f"order learned from {Path(scan).stem}"
    return None


def scan_name(summary: dict[str, Any]) -> str:
    """The name of what a run reads or starts from; a saved order goes by its origin or file."""
    if summary["scan"] == "prior":
        return f"prior ({start_of(summary)})"
    path = Path(summary["scan"])
    file = path.parent.name if path.name == "order.json" and path.parent.name else path.name
    return _origin(summary) or file


def order_name(summary: dict[str, Any], estimator: str = "") -> str:
    """What a run reads in: a fixed scan, what was learned from one, or any order."""
    return reading_of(summary["policy"], scan_name(summary), estimator)


def settings_of(result: Result) -> str:
    """The settings by which a run's order is named, as text to append; mostly none."""
    return result.order.removeprefix(order_name(result.summary, result.keys.get("order.estimator", "")))


START_KEYS = ("order.scan", "order.tokenizer", "order.weights")
SETTINGS = tuple(
    f"order.{key}" for key in asdict(Order()) if f"order.{key}" not in (*START_KEYS, "order.policy")
)
NOT_ORDER = ("model.", "data.", "train.")


def _kind_or_control(result: Result) -> str:
    """A run's kind, where equal noise goes with what it is the control of."""
    return "learned" if result.kind == "equal noise" else result.kind


def _with_settings(
    results: list[Result],
    field: str,
    alike: Callable[[Result], tuple[str, ...]],
    own: tuple[str, ...],
    usual: bool = True,
) -> list[Result]:
    """The same, with a field that names the keys beginning with `own` in which runs that are alike differ.

    The usual value of a key is not named: a further study leaves the names of the others as they are.
    """
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    of_all_models: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in results:
        groups[alike(result)].append(result)
        of_all_models[alike(result)[1:]].append(result)
    named = []
    for name, members in groups.items():
        keys = sorted({key for member in members for key in member.keys if key.startswith(own)})
        varied = [key for key in keys if len(_counts(key, members)) > 1]
        omitted = {key: _usual(key, members, of_all_models[name[1:]]) if usual else None for key in varied}
        for result in members:
            values = {key: str(result.keys[key]) for key in varied if key in result.keys}
            settings = [f"{key}={value}" for key, value in values.items() if value != omitted[key]]
            renamed: dict[str, Any] = {field: ", ".join([getattr(result, field), *settings])}
            named.append(result._replace(**renamed))
    return named


def _counts(key: str, results: list[Result]) -> Counter[str]:
    """How many runs have each value of a key, of those that read it at all."""
    return Counter(str(result.keys[key]) for result in results if key in result.keys)


def _usual(key: str, members: list[Result], of_all_models: list[Result]) -> str | None:
    """The value of a key that most members have, or else most runs of all models; None if that is a tie."""
    own, others = _counts(key, members), _counts(key, of_all_models)
    first, second, *_ = sorted(own, key=lambda value: (own[value], others[value]), reverse=True)
    return None if (own[first], others[first]) == (own[second], others[second]) else first


def _without_repeated(results: list[Result]) -> tuple[list[Result], list[str]]:
    """The same without runs that repeat another one, and notes on these."""
    notes = []
    kept: dict[tuple[str, str, str, int], Result] = {}
    for result in results:
        name = (result.model, result.data, result.order, result.seed)
        if name in kept:
            first = kept[name]
            fixed = result.summary["policy"] == "none"
            other = fixed and result.summary["order"] != first.summary["order"]
            why = "reads another order of the same name" if other else "is the same run"
            notes.append(f"{result.run.path}: left out: {first.run.path} {why}.")
        else:
            kept[name] = result
    return list(kept.values()), notes


Name = tuple[str, str, str]  # model, data, order


def by_order(results: Sequence[Result]) -> dict[Name, list[Result]]:
    """Runs that differ only in their seed, by model, data and order, in the order of `rank`."""
    groups: dict[Name, list[Result]] = defaultdict(list)
    for result in sorted(results, key=rank):
        groups[result.model, result.data, result.order].append(result)
    return dict(groups)


def rank(result: Result) -> tuple[Any, ...]:
    """Where a run stands in tables: by data, model, policy and scan as the documents list them, then seed."""
    models, kinds, scans = list(BACKBONES), list(KINDS), list(SCANS)
    scan, model = result.summary["scan"], result.summary["model"]
    return (
        _natural(result.data),
        models.index(model) if model in models else len(models),
        _natural(result.model),
        kinds.index(result.kind),
        scans.index(scan) if scan in scans else len(scans),
        _natural(result.order),
        result.seed,
    )


def _natural(text: str) -> list[str | int]:
    """What text is sorted by: the numbers in it count as numbers, so that 7x7 comes before 14x14."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]


def top1(group: Sequence[Result]) -> Mean:
    """Mean top-1 of a group of seeds, as a fraction; of one seed, with the error of the bootstrap."""
    mean = mean_over_seeds([result.summary["top1"] for result in group], [r.correct for r in group])
    return mean if len(group) > 1 else mean._replace(image_error=group[0].summary["top1_sem"])
