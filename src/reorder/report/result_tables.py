"""The tables of a report: every run, means over seeds, paired differences, and what policies learned."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from reorder.report.comparisons import Compared, complete, mean_difference, sensitivities
from reorder.report.evolution import Evolution, centre_shift, evolution
from reorder.report.gains import Gain, gains, setting_changes
from reorder.report.results import (
    Result,
    by_order,
    policy_of,
    rank,
    settings_of,
    start_of,
    top1,
)
from reorder.report.tables import STANDARD_ERROR, Cell, Number, PValue, Table
from reorder.runs.statistics import (
    Mean,
    mean_over_seeds,
    p_value,
    paired_difference,
    student_interval,
)

IMAGES = "by bootstrap over the validation images; it does not include the variation between seeds"
COSTS = ("top-5 (%)", "images/s", "parameters", "training steps (min)", "wall time (min)")
COMPARED = ("order", "compared with", "which is", "model", "difference (points)")
TESTED = ("95% from", "to", "p", "± over images")


def runs_table(results: Sequence[Result], notes: list[str]) -> Table:
    """A row per run, and notes on what was left out."""
    rows: list[tuple[Cell, ...]] = []
    for result in sorted(results, key=rank):
        accuracy = Number(100 * result.summary["top1"], 100 * result.summary["top1_sem"])
        seed = Number(result.seed, digits=0)
        rows.append((result.order, result.model, accuracy, result.data, seed, *_costs([result])))
    headings = ("order", "model", "top-1 (%)", "data", "seed", *COSTS)
    caption = f"Every run. After ± stands the standard error {IMAGES}."
    return Table("runs", caption, headings, rows, notes + _untimed(results))


def orders_table(results: Sequence[Result]) -> Table:
    """A row per model, data and order: means over seeds."""
    rows: list[tuple[Cell, ...]] = []
    for (model, data, order), group in by_order(results).items():
        mean = top1(group)
        accuracy = (_percent(mean), _image_error(mean))
        rows.append((order, model, *accuracy, data, Number(mean.seeds, digits=0), *_costs(group)))
    headings = ("order", "model", "top-1 (%)", "± over images", "data", "seeds", *COSTS)
    caption = (
        "Means over seeds. After ± stands the standard error over seeds, of two or more; the error over the "
        "validation images, of the images' means over seeds, has its own column."
    )
    return Table("orders", caption, headings, rows, _untimed(results))


def _costs(group: Sequence[Result]) -> tuple[Cell, ...]:
    """The cells of `COSTS`, means over runs; older runs lack the wall time."""
    summaries = [result.summary for result in group]
    top5, speed, seconds, wall = (
        float(np.mean([summary.get(key, math.nan) for summary in summaries]))
        for key in ("top5", "images_per_second", "seconds", "wall_seconds")
    )
    minutes = (Number(seconds / 60, digits=1), "" if math.isnan(wall) else Number(wall / 60, digits=1))
    parameters = Number(summaries[0]["parameters"], digits=0)
    return (Number(100 * top5), Number(speed, digits=0), parameters, *minutes)


def _untimed(results: Sequence[Result]) -> list[str]:
    """A note on the runs whose wall time is not known."""
    untimed = sum("wall_seconds" not in result.summary for result in results)
    return [f"The wall time of {untimed} of {len(results)} runs was not recorded."] if untimed else []


def _percent(mean: Mean) -> Number:
    return Number(100 * mean.value, None if mean.seed_error is None else 100 * mean.seed_error)


def _image_error(mean: Mean) -> Cell:
    return "" if mean.image_error is None else Number(100 * mean.image_error)


def differences_table(compared: Compared) -> Table:
    """A row per comparison: mean differences over seeds."""
    rows: list[tuple[Cell, ...]] = []
    names = ["against", "model", "data", "order", "other"]
    for (against, model, data, order, other), found in compared.pairs.groupby(names, sort=False):
        values = _difference([*found.share])
        rows.append((order, against, other, model, *values, data, Number(len(found), digits=0)))
    headings = (*COMPARED, *TESTED, "data", "seeds")
    notes = [
        "Seeds are paired: both runs of a pair have the same seed and differ only in the order.",
        "p is that of a paired t-test over seeds; p-values are not corrected for the number of comparisons.",
        "The best other scan is chosen by its mean over the same seeds, which favours it: of several equally "
        "good ones the luckiest is taken.",
    ]
    caption = (
        "Paired differences in top-1. In percentage points; positive is better than what is compared with. "
        "After ± stands the standard error over seeds, then Student's 95% interval over seeds, which for few "
        "seeds is much wider than two errors; the error over the validation images has its own column."
    )
    return Table("differences", caption, headings, rows, notes + compared.notes)


def _difference(shares: Sequence[np.ndarray]) -> tuple[Cell, ...]:
    """A difference in points with its error, interval, p-value and error over images, from shares by seed."""
    mean = mean_difference(shares)
    p, interval = p_value(mean), student_interval([100 * float(share.mean()) for share in shares])
    limits = [Number(limit, digits=1) for limit in interval] if interval else ["", ""]
    return (_percent(mean), *limits, "" if p is None else PValue(p), _image_error(mean))


def gains_table(compared: Compared) -> Table:
    """A row per model and comparison of learned orders, and of their control: means over all their starts."""
    found, notes = gains(compared.pairs)
    caption = (
        "What learning an order gains, and exploring as much without learning. Paired differences in top-1, "
        "in percentage points, averaged over all starts, and in the last row of a kind over models, before "
        "seeds are compared; the interval and p are Student's over seeds; the error over the validation "
        "images has its own column."
    )
    return _gains("gains", caption, "starts", found, notes if found else [])


def settings_table(results: Sequence[Result]) -> Table:
    """A row per setting in which runs differ: means over all orders."""
    caption = (
        "What other settings than the order change. Paired differences in top-1, in percentage points, of "
        "runs that differ in one setting, averaged over all orders that both read, before seeds are "
        "compared; the interval and p are Student's over seeds."
    )
    return _gains("settings", caption, "orders", *setting_changes(results))


def _gains(name: str, caption: str, over: str, found: Sequence[Gain], notes: list[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for gain in found:
        counts = (Number(gain.over, digits=0), Number(len(gain.seeds), digits=0))
        rows.append((gain.what, gain.against, gain.model, *_difference(gain.shares), gain.data, *counts))
    headings = ("runs", "compared with", "model", "difference (points)", *TESTED, "data", over, "seeds")
    return Table(name, caption, headings, rows, notes)


def sensitivity_table(results: Sequence[Result]) -> Table:
    """A row per model: how much the fixed scan matters to it."""
    rows: list[tuple[Cell, ...]] = []
    sensitive, notes = sensitivities(results)
    for found in sensitive:
        best, worst = (pick(found.means, key=found.means.__getitem__) for pick in (max, min))
        rows.append(
            (
                found.model,
                Number(100 * (found.means[best] - found.means[worst]), 100 * found.error),
                PValue(found.p_value),
                best,
                worst,
                Number(100 * found.between),
                found.data,
                Number(len(found.means), digits=0),
                Number(found.seeds, digits=0),
            )
        )
    caption = (
        "Does the order matter? All fixed scans of a model together. p is of an F-test with seeds as blocks, "
        "that all scans are equally good. After ± stands the standard error of the difference of any two "
        "scans, pooled over all; the best and the worst of several differ by more than that by chance alone. "
        "Between scans: the standard deviation that chance does not explain."
    )
    headings = ("model", "best - worst (points)", "p", "best", "worst", "between scans", "data", "scans")
    return Table("scans", caption, (*headings, "seeds"), rows, notes)


def pairs_table(compared: Compared) -> Table:
    """A row per comparison and seed."""
    rows: list[tuple[Cell, ...]] = []
    for pair in compared.pairs.itertuples():
        a, b = (torch.from_numpy(run.correct) for run in (pair.a, pair.b))
        paired = paired_difference(a, b, generator=torch.Generator().manual_seed(0))
        value = Number(100 * paired.difference, 100 * paired.spread.sem)
        names, seed = (pair.order, pair.against, pair.other, pair.model), Number(pair.seed, digits=0)
        rows.append((*names, value, PValue(paired.p_value), pair.data, seed))
    headings = (*COMPARED, "p", "data", "seed")
    caption = (
        "The same differences seed by seed. After ± stands the paired bootstrap standard error over the "
        "validation images; p is McNemar's. Both speak for these trained models, not for the method."
    )
    return Table("pairs", caption, headings, rows, [])


OTHER_ORDERS = ("top-1 (%)", "against own (points)", "p", "tau with own")


def other_orders_table(results: Sequence[Result]) -> Table:
    """A row per run and order that `reorder evaluate --sensitivity` has tried it in."""
    rows: list[tuple[Cell, ...]] = []
    notes = []
    for result in sorted(results, key=rank):
        path = result.run.path / "evaluations" / "sensitivity.csv"
        try:
            tried = _tried(path, result) if path.exists() else []
        except (OSError, ValueError, KeyError) as error:
            notes.append(f"{path}: left out: it cannot be used: {error}.")
            continue
        seed = Number(result.seed, digits=0)
        rows += [(order, result.order, result.model, *found, result.data, seed) for order, *found in tried]
    caption = (
        "Trained models in other orders than their own, without further training. After ± stands the "
        "bootstrap standard error over the validation images, paired for differences; p is McNemar's; tau is "
        "Kendall's, 1 for the same order."
    )
    headings = ("read in", "trained in", "model", *OTHER_ORDERS, "data", "seed")
    return Table("other-orders", caption, headings, rows, notes)


def _tried(path: Path, result: Result) -> list[tuple[Cell, ...]]:
    """The order and the `OTHER_ORDERS` of each row that was written of a run; refused if it went on since."""
    table = pd.read_csv(path)
    last = result.metrics[-1].get("step") if result.metrics else None
    for step in table.get("step", []):
        if last is not None and step != last:
            raise ValueError(f"it is of step {step:g}, and the run has {last}")
    tried: list[tuple[Cell, ...]] = []
    for row in table.to_dict("records"):
        values = [float(row[heading]) for heading in OTHER_ORDERS]
        errors = [row.get(heading + STANDARD_ERROR) for heading in OTHER_ORDERS]
        if not np.isfinite(values).all():
            raise ValueError(f"it has no number for {row['order']}")
        top1, change, p, tau = map(Number, values, errors)
        tried.append((str(row["order"]), top1, change, PValue(p.value), tau))
    return tried


class Policy(NamedTuple):
    """A learned run and how its policy moved."""

    result: Result
    evolution: Evolution
    initial: np.ndarray


def policies(results: Sequence[Result]) -> tuple[list[Policy], list[str]]:
    """The runs that learn an order, and notes on those without a policy.npz."""
    found, notes = [], []
    for result in sorted(results, key=rank):
        if result.learns:
            try:
                history = policy_of(result)
            except ValueError as error:
                notes.append(f"{result.run.path}: its policy is not shown: {error}.")
                continue
            moved = evolution(history.epochs, history.logits, history.initial, result.grid)
            found.append(Policy(result, moved, history.initial))
    return found, notes


def _moved(found: pd.DataFrame) -> tuple[Cell, ...]:
    """How far orders moved: means over seeds of the means over starts, with their errors."""
    by_seed = found.groupby("seed")[["shift", "tau", "footrule", "share"]].mean()
    means = [mean_over_seeds(by_seed[column].tolist(), []) for column in by_seed]
    interval = student_interval(by_seed["shift"].tolist())
    limits: Sequence[Cell] = [Number(limit, digits=1) for limit in interval] if interval else ["", ""]
    shift, *rest = (
        Number(m.value, m.seed_error, digits) for m, digits in zip(means, (1, 2, 1, 2), strict=True)
    )
    return (Number(len(by_seed), digits=0), shift, *limits, *rest)


def centre_table(learned: Sequence[Policy], radius: float | None) -> Table:
    """By how many slots central patches moved, by model, data and start, and over all starts of several.

    The mean over starts is of those that share most seeds.
    """
    moved, notes = [], []
    for result, found, initial in learned:
        shift = centre_shift(initial, np.array(result.summary["order"]), result.grid, radius)
        names = (result.model, result.data, result.order, settings_of(result), start_of(result.summary))
        distances = (found.tau[-1], found.footrule[-1], found.footrule_share[-1])
        moved.append((*names, result.seed, shift, *distances))
    columns = ["model", "data", "order", "settings", "start", "seed", "shift", "tau", "footrule", "share"]
    table = pd.DataFrame(moved, columns=columns)
    sheets = [*table.groupby(["model", "data", "order"], sort=False)]
    for (model, data, settings), found in table.groupby(["model", "data", "settings"], sort=False):
        name = (model, data, f"all starts{settings}")
        block, said = complete(found, "start", ", ".join(name))
        notes += said
        sheets += [(name, block)] if block.start.nunique() > 1 else []
    rows = [(*name, *_moved(found)) for name, found in sheets]
    within = "a quarter of the shorter side" if radius is None else f"{radius:g} patches"
    caption = (
        f"Centre shift. By how many slots the patches within {within} of the grid's middle moved from the "
        "initial to the learned order, on average; positive is towards the front, as in the paper, which "
        "does not say what its central region is. Its 95% interval is Student's over seeds. Then how far the "
        "learned order is from the initial one: Kendall's tau, Spearman's footrule, and that as a share of "
        "the largest possible. After ± stands the standard error over seeds."
    )
    headings = ("model", "data", "order", "seeds", "shift (slots)", "95% from", "to")
    return Table("centre", caption, (*headings, "tau", "footrule (slots)", "footrule (share)"), rows, notes)
