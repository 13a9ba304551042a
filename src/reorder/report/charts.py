"""Charts of what many runs amount to, aggregated over seeds."""

import math
import textwrap
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reorder.orders.scans import SCANS
from reorder.report.comparisons import BEST, ROW, mean_difference
from reorder.report.results import KINDS, Result, by_order, scan_name, start_of, top1
from reorder.report.verdicts import Group
from reorder.runs.statistics import Mean
from reorder.runs.verdict import Difference

# Okabe and Ito's colours; a hatch or a marker says the same in print.
COLOURS = {
    "row": "#000000",
    "column": "#E69F00",
    "hilbert": "#56B4E9",
    "spiral": "#009E73",
    "diagonal": "#0072B2",
    "snake": "#D55E00",
}
OTHERS = ("#CC79A7", "#7F7F7F", "#8C564B")
OTHER_HATCHES = ("", "++", "oo")
HATCHES = dict(zip(COLOURS, ("", "//", "..", "xx", "--", "\\\\"), strict=True))
LETTER = 0.085  # inches that a letter of a legend takes at most, on average
ERRORS = "Bars: standard error over seeds, or over images where there is one seed."
SHARED = "Means over the seeds that all orders of a model and dataset have; over all, if they share none."


def _error(mean: Mean) -> float:
    """The error to draw, in points: over seeds if there are several, else over images."""
    return 100 * (mean.seed_error if mean.seed_error is not None else mean.image_error or 0.0)


def top1_table(results: Sequence[Result]) -> pd.DataFrame:
    """A row per order: top-1 in percent and its error over the seeds that all orders of its group have.

    Over all seeds if none is common. What stands side by side would otherwise differ by luck.
    """
    groups = by_order(results)
    rows = []
    for (model, data, _), group in groups.items():
        beside = [{r.seed for r in other} for name, other in groups.items() if name[:2] == (model, data)]
        shared = [result for result in group if result.seed in set.intersection(*beside)] or group
        mean, first = top1(shared), group[0]
        names = (model, data, first.kind, scan_name(first.summary), start_of(first.summary))
        rows.append((*names, 100 * mean.value, _error(mean)))
    return pd.DataFrame(rows, columns=["model", "data", "kind", "name", "scan", "top1", "error"])


def panels_of(count: int, width: float, height: float, most: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of some inches, at most `most` side by side."""
    columns = min(count, most)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(5.0, columns * width), rows * height + 0.6), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=False))


def legend(figure: Figure, title: str = "") -> None:
    """One legend of all panels below them: as many columns as fit the width."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    width, height = figure.get_size_inches()
    letters = int((width - 0.8) / LETTER)
    labels = [wrapped(label, letters) for label in found]
    longest = max(len(line) for label in labels for line in label.splitlines())
    columns = min(len(labels), max(1, int(width / (LETTER * longest + 0.7))))
    title = wrapped(title, letters)
    drawn = figure.legend([*found.values()], labels, loc="outside lower center", ncols=columns, fontsize=9)
    drawn.set_title(title)
    drawn.get_title().set_fontsize(9)
    lines = math.ceil(len(labels) / columns) - 1 + len(title.splitlines())
    figure.set_size_inches(width, height + 0.2 * lines)


def arms_figure(groups: Sequence[Group]) -> Figure | None:
    """Every way to read against row-major: a row for each, or of several groups a row for each group."""
    shown = [group for group in groups if group.arms]
    if not shown:
        return None
    arms = [_arms_of(group) for group in shown]
    names = list(dict.fromkeys(chain(*arms)))
    rows = [
        (f"{wrapped(group.model, 28)}\n{group.data}", own) for group, own in zip(shown, arms, strict=True)
    ]
    if single := len(shown) == 1:
        labels = {BEST: f"{shown[0].best_scan}, the {BEST}"}
        zero = {ROW: Difference(0.0, 0.0, 0, 0, 0.0)}
        rows = [(f"row-major ({shown[0].row_top1:.1f}%)", zero)]
        rows += [(wrapped(labels.get(name, name), 24), {name: arms[0][name]}) for name in names]
    heights = [max(0.12 * len(own), 0.18 * len(label.splitlines())) + 0.1 for label, own in rows]
    figure = Figure(figsize=(4.4 if single else 5, 0.8 + len(rows) * max(heights)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color="black", linewidth=1)
    for row, (_, own) in enumerate(rows):
        for place, (name, found) in enumerate(own.items()):
            y = row + 0.7 * ((place + 0.5) / len(own) - 0.5)
            colour, marker = _arm_look(name, names)
            axes.errorbar(
                [found.points], [y], xerr=[found.sem], fmt=marker, color=colour, capsize=2, label=name
            )
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=9)
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel="top-1 against row-major (points)")
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    if not single:
        legend(figure)
    return figure


def _arms_of(group: Group) -> dict[str, Difference]:
    """The arms of a group that are drawn: of the scans, the best."""
    best = {BEST: group.arms[group.best_scan]} if group.best_scan else {}
    return best | {name: found for name, found in group.arms.items() if name not in SCANS}


def _arm_look(name: str, names: list[str]) -> tuple[str, str]:
    """The colour and marker of an arm: its kind's, or those of a fixed order."""
    if look := KINDS.get("fixed" if name == ROW else name.partition(", ")[0]):
        return look.colour, look.marker
    number = [other for other in names if other.partition(", ")[0] not in KINDS].index(name)
    return OTHERS[number % len(OTHERS)], "vP*"[number % 3]


def change_figure(pairs: pd.DataFrame) -> Figure | None:
    """Change in top-1 against row-major by model and fixed scan, a panel for each dataset."""
    fixed = pairs[(pairs.against == ROW) & (pairs.kind == "fixed")]
    if not len(fixed):
        return None
    widest = fixed.groupby("data").model.nunique().max()
    figure, panels = panels_of(fixed.data.nunique(), max(4.5, 1.9 * widest), 3.2, most=1 if widest > 3 else 2)
    for axes, (data, shown) in zip(panels, fixed.groupby("data", sort=False), strict=True):
        models, names = list(shown.model.unique()), shown.order.str.removesuffix(", fixed")
        scans = [name for name in SCANS if name in set(names)] + sorted(set(names) - set(SCANS))
        others = [name for name in scans if name not in COLOURS]
        width = 0.8 / len(scans)
        for place, name in enumerate(scans):
            number = others.index(name) % len(OTHERS) if name in others else 0
            found = shown[names == name].groupby("model", sort=False)
            means = {models.index(model): mean_difference([*own.share]) for model, own in found}
            axes.bar(
                [x + (place - (len(scans) - 1) / 2) * width for x in means],
                [100 * mean.value for mean in means.values()],
                0.9 * width,
                yerr=[_error(mean) for mean in means.values()],
                color=COLOURS.get(name, OTHERS[number]),
                hatch=HATCHES.get(name, OTHER_HATCHES[number]),
                edgecolor="white",
                linewidth=0,
                error_kw={"elinewidth": 1.2, "capsize": 2, "ecolor": "#444444"},
                label=name,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(models)), [wrapped(model, 16) for model in models], fontsize=9)
        axes.set(ylabel="top-1 against row (points)", title=data, xlim=(-0.6, len(models) - 0.4))
        axes.grid(axis="y", color="#dddddd", zorder=0)
        axes.set_axisbelow(True)
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:  # so that grids and datasets can be compared by eye
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    legend(figure, title=ERRORS)
    return figure


def learning_figure(results: Sequence[Result]) -> Figure | None:
    """Fixed against learned: top-1 by scan, a panel for each model and dataset that learned."""
    table = top1_table([result for result in results if result.kind != "random every batch"])
    shown = [
        (name, found)
        for name, found in table.groupby(["model", "data"], sort=False)
        if len(found) > 1 and {"learned", "Algorithm 1"} & set(found.kind)
    ]
    if not shown:
        return None
    figure, panels = panels_of(len(shown), 3.6, 3.0)
    for axes, ((model, data), found) in zip(panels, shown, strict=True):
        names = set(found[found.kind != "equal noise"].name)
        starts = [name for name in SCANS if name in names] + sorted(names - set(SCANS))
        for place, (kind, look) in enumerate(KINDS.items()):
            own = found[(found.kind == kind) & found.name.isin(starts)]
            if len(own):
                x = [starts.index(name) + 0.2 * (place - 1.5) for name in own.name]
                style: dict[str, Any] = {"fmt": look.marker, "color": look.colour, "label": kind}
                axes.errorbar(x, own.top1, own.error, capsize=2, markersize=5, **style)
        axes.set_xticks(range(len(starts)), starts, fontsize=9)
        axes.tick_params(axis="x", rotation=30)
        for tick in axes.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
        axes.set(ylabel="top-1 (%)", xlim=(-0.6, len(starts) - 0.4))
        axes.set_title(f"{wrapped(model, 34)}\n{wrapped(data, 34)}", fontsize=10)
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
    legend(figure, title=ERRORS)
    return figure
