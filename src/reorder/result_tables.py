"""The tables of a report: every run, means over seeds, paired differences, and what policies learned."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reorder.comparisons import Compared
from reorder.evolution import Evolution, centre_shift, evolution, student_interval
from reorder.results import Collection, Mean, Result, by_order, mean_over_seeds, rank, top1
from reorder.tables import Cell, Number, PValue, Table

IMAGES = "by bootstrap over the validation images; it does not include the variation between seeds"
COSTS = ("images/s", "parameters", "wall time (min)")
COMPARED = ("order", "compared with", "which is", "model", "difference (points)")


def runs_table(collection: Collection) -> Table:
    """A row per run."""
    rows: list[tuple[Cell, ...]] = []
    for result in sorted(collection.results, key=rank):
        summary = result.summary
        rows.append(
            (
                result.order,
                result.model,
                Number(100 * summary["top1"], 100 * summary["top1_sem"]),
                result.data,
                Number(result.seed, digits=0),
                Number(100 * summary["top5"]),
                Number(summary["images_per_second"], digits=0),
                Number(summary["parameters"], digits=0),
                Number(summary["seconds"] / 60, digits=1),
            )
        )
    headings = ("order", "model", "top-1 (%)", "data", "seed", "top-5 (%)", *COSTS)
    return Table(
        "runs", f"Every run. After ± stands the standard error {IMAGES}.", headings, rows, collection.notes
    )


def orders_table(results: Sequence[Result]) -> Table:
    """A row per model, data and order: means over seeds."""
    rows: list[tuple[Cell, ...]] = []
    for (model, data, order), group in by_order(results).items():
        mean = top1(group)
        speed = mean_over_seeds([r.summary["images_per_second"] for r in group], [])
        rows.append(
            (
                order,
                model,
                _percent(mean),
                _image_error(mean),
                data,
                Number(mean.seeds, digits=0),
                Number(100 * float(np.mean([r.summary["top5"] for r in group]))),
                Number(speed.value, digits=0),
                Number(group[0].summary["parameters"], digits=0),
                Number(float(np.mean([r.summary["seconds"] for r in group])) / 60, digits=1),
            )
        )
    headings = ("order", "model", "top-1 (%)", "± over images", "data", "seeds", "top-5 (%)", *COSTS)
    caption = (
        "Means over seeds. After ± stands the standard error over seeds, of two or more; the error over the "
        "validation images, of the images' means over seeds, has its own column."
    )
    return Table("orders", caption, headings, rows, [])


def _percent(mean: Mean) -> Number:
    return Number(100 * mean.value, None if mean.seed_error is None else 100 * mean.seed_error)


def _image_error(mean: Mean) -> Cell:
    return "" if mean.image_error is None else Number(100 * mean.image_error)


def differences_table(compared: Compared) -> Table:
    """A row per comparison: mean differences over seeds."""
    rows: list[tuple[Cell, ...]] = []
    for comparison in compared.comparisons:
        model, data, order = comparison.name
        mean, p = comparison.mean, comparison.p_value
        values = (_percent(mean), _image_error(mean), "" if p is None else PValue(p))
        seeds = Number(mean.seeds, digits=0)
        rows.append((order, comparison.kind, comparison.against, model, *values, data, seeds))
    headings = (*COMPARED, "± over images", "p", "data", "seeds")
    notes = [
        "Seeds are paired: both runs of a pair have the same seed and differ only in the order.",
        "p is that of a paired t-test over seeds; p-values are not corrected for the number of comparisons.",
        "The best fixed scan is chosen by its mean over the same seeds, which favours the fixed scan: of "
        "several equally good ones the luckiest is taken.",
    ]
    caption = (
        "Paired differences in top-1. In percentage points; positive is better than what is compared with. "
        "After ± stands the standard error over seeds; that over the validation images has its own column."
    )
    return Table("differences", caption, headings, rows, notes + compared.notes)


def pairs_table(compared: Compared) -> Table:
    """A row per comparison and seed."""
    rows: list[tuple[Cell, ...]] = []
    for comparison in compared.comparisons:
        model, data, order = comparison.name
        for a, _, paired in comparison.pairs:
            value = Number(100 * paired.difference, 100 * paired.spread.sem)
            seed, p = Number(a.seed, digits=0), PValue(paired.p_value)
            rows.append((order, comparison.kind, comparison.against, model, value, p, data, seed))
    headings = (*COMPARED, "p", "data", "seed")
    caption = (
        "The same differences seed by seed. After ± stands the paired bootstrap standard error over the "
        "validation images; p is McNemar's. Both speak for these trained models, not for the method."
    )
    return Table("pairs", caption, headings, rows, [])


class Policy(NamedTuple):
    """A learned run and how its policy moved."""

    result: Result
    evolution: Evolution
    initial: np.ndarray


def policies(results: Sequence[Result], notes: list[str]) -> list[Policy]:
    """The runs that learn an order; those without a policy.npz are noted."""
    found = []
    for result in sorted(results, key=rank):
        if result.summary["policy"] == "global":
            try:
                history = result.run.policy()
            except ValueError as error:
                notes.append(f"{result.run.path}: its policy is not shown, for {error}.")
                continue
            moved = evolution(history.epochs, history.logits, history.initial, result.grid)
            found.append(Policy(result, moved, history.initial))
    return found


def centre_table(learned: Sequence[Policy], radius: float | None) -> Table:
    """By how many slots central patches moved, by model, data and start, and over all starts of several."""
    starts = {(r.model, r.data, r.order) for r, _, _ in learned}
    several = Counter((model, data) for model, data, _ in starts)
    moved: dict[tuple[str, str, str], dict[int, list[tuple[float, ...]]]] = {}
    for whole in (False, True):
        for result, found, initial in learned:
            if whole and several[result.model, result.data] == 1:
                continue
            slots = centre_shift(initial, np.array(result.summary["order"]), result.grid, radius)
            name = (result.model, result.data, "all starts" if whole else result.order)
            row = (slots, found.tau[-1], found.footrule[-1], found.footrule_share[-1])
            moved.setdefault(name, {}).setdefault(result.seed, []).append(row)
    rows: list[tuple[Cell, ...]] = []
    for name, by_seed in moved.items():
        values = np.array([np.mean(several, axis=0) for several in by_seed.values()])  # (S, 4)
        shift, tau, footrule, share = (mean_over_seeds(column, []) for column in values.T)
        interval = student_interval(values[:, 0].tolist())
        rows.append(
            (
                *name,
                Number(shift.seeds, digits=0),
                Number(shift.value, shift.seed_error, 1),
                *(Number(limit, digits=1) for limit in interval or ()),
                *([""] * (0 if interval else 2)),
                Number(tau.value, tau.seed_error),
                Number(footrule.value, footrule.seed_error, 1),
                Number(share.value, share.seed_error),
            )
        )
    within = "a quarter of the shorter side" if radius is None else f"{radius:g} patches"
    caption = (
        f"Centre shift. By how many slots the patches within {within} of the grid's middle moved from the "
        "initial to the learned order, on average; positive is towards the front, as in the paper, which "
        "does not say what its central region is. Its 95% interval is Student's over seeds. Then how far the "
        "learned order is from the initial one: Kendall's tau, Spearman's footrule, and that as a share of "
        "the largest possible. After ± stands the standard error over seeds."
    )
    headings = ("model", "data", "order", "seeds", "shift (slots)", "95% from", "to")
    return Table("centre", caption, (*headings, "tau", "footrule (slots)", "footrule (share)"), rows, [])
