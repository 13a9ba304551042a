"""Charts of what many runs amount to, aggregated over seeds."""

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reorder.config import Data, images_of
from reorder.orders.scans import SCANS
from reorder.report.comparisons import ROW, Comparison
from reorder.report.figures import Curve, draw_curves, stage_spans
from reorder.report.results import KINDS, Name, Result, by_order, scan_name, start_of, top1
from reorder.report.verdicts import ROW as ROW_MAJOR
from reorder.report.verdicts import Group
from reorder.runs.schemas import read
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
MOST_PANELS = 12  # of curves
HATCHES = dict(zip(COLOURS, ("", "//", "..", "xx", "--", "\\\\"), strict=True))
MARKERS = "osD^vPX*"
BEST_SCAN = "best other scan"
LETTER = 0.085  # inches that a letter of a legend takes at most, on average
ERRORS = "Bars: standard error over seeds, or over images where there is one seed."
SHARED = "Means over the seeds that all orders of a model and dataset have; over all, if they share none."


def _error(mean: Mean) -> float:
    """The error to draw, in points: over seeds if there are several, else over images."""
    return 100 * (mean.seed_error if mean.seed_error is not None else mean.image_error or 0.0)


def _panels(count: int, width: float, height: float, most: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of some inches, at most `most` side by side."""
    columns = min(count, most)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(5.0, columns * width), rows * height + 0.6), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=False))


def _legend(figure: Figure, found: dict[str, Any] | None = None, title: str = "") -> None:
    """One legend of all panels, or of what is given, below them: as many columns as fit the width."""
    if found is None:
        found = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
    width, height = figure.get_size_inches()
    letters = int((width - 0.8) / LETTER)
    labels = [_wrapped(label, letters) for label in found]
    longest = max(len(line) for label in labels for line in label.splitlines())
    columns = min(len(labels), max(1, int(width / (LETTER * longest + 0.7))))
    title = _wrapped(title, letters)
    legend = figure.legend([*found.values()], labels, loc="outside lower center", ncols=columns, fontsize=9)
    legend.set_title(title)
    legend.get_title().set_fontsize(9)
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
        (f"{_wrapped(group.model, 28)}\n{group.data}", own) for group, own in zip(shown, arms, strict=True)
    ]
    if single := len(shown) == 1:
        labels = {BEST_SCAN: f"{shown[0].best_scan}, the {BEST_SCAN}"}
        zero = {ROW_MAJOR: Difference(0.0, 0.0, 0, 0)}
        rows = [(f"row-major ({shown[0].row_top1:.1f}%)", zero)]
        rows += [(_wrapped(labels.get(name, name), 24), {name: arms[0][name]}) for name in names]
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
        _legend(figure)
    return figure


def _arms_of(group: Group) -> dict[str, Difference]:
    """The arms of a group that are drawn: of the scans, the best."""
    best = {BEST_SCAN: group.arms[group.best_scan]} if group.best_scan else {}
    return best | {name: found for name, found in group.arms.items() if name not in SCANS}


def _arm_look(name: str, names: list[str]) -> tuple[str, str]:
    """The colour and marker of an arm: its kind's, or those of a fixed order."""
    if look := KINDS.get("fixed" if name == ROW_MAJOR else name.partition(", ")[0]):
        return look.colour, look.marker
    number = [other for other in names if other.partition(", ")[0] not in KINDS].index(name)
    return OTHERS[number % len(OTHERS)], "vP*"[number % 3]


def change_figure(comparisons: Sequence[Comparison]) -> Figure | None:
    """Change in top-1 against row-major by model and fixed scan, a panel for each dataset."""
    shown: dict[str, dict[str, dict[str, Mean]]] = defaultdict(lambda: defaultdict(dict))
    for comparison in comparisons:
        summary = comparison.pairs[0].a.summary
        if comparison.kind == ROW and comparison.pairs[0].a.kind == "fixed":
            model, data, _ = comparison.name
            shown[data][model][scan_name(summary)] = comparison.mean
    if not shown:
        return None
    widest = max(len(models) for models in shown.values())
    figure, panels = _panels(len(shown), max(4.5, 1.9 * widest), 3.2, most=1 if widest > 3 else 2)
    for axes, (data, models) in zip(panels, shown.items(), strict=True):
        scans = [name for name in SCANS if any(name in found for found in models.values())]
        scans += sorted({name for found in models.values() for name in found} - set(scans))
        width = 0.8 / len(scans)
        others = [name for name in scans if name not in COLOURS]
        for place, name in enumerate(scans):
            number = others.index(name) % len(OTHERS) if name in others else 0
            here = [(x, found[name]) for x, found in enumerate(models.values()) if name in found]
            axes.bar(
                [x + (place - (len(scans) - 1) / 2) * width for x, _ in here],
                [100 * mean.value for _, mean in here],
                0.9 * width,
                yerr=[_error(mean) for _, mean in here],
                color=COLOURS.get(name, OTHERS[number]),
                hatch=HATCHES.get(name, OTHER_HATCHES[number]),
                edgecolor="white",
                linewidth=0,
                error_kw={"elinewidth": 1.2, "capsize": 2, "ecolor": "#444444"},
                label=name,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(models)), [_wrapped(model, 16) for model in models], fontsize=9)
        axes.set(ylabel="top-1 against row (points)", title=data, xlim=(-0.6, len(models) - 0.4))
        axes.grid(axis="y", color="#dddddd", zorder=0)
        axes.set_axisbelow(True)
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:  # so that grids and datasets can be compared by eye
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    _legend(figure, title=ERRORS)
    return figure


def _with_shared_seeds(groups: Mapping[Name, list[Result]]) -> dict[Name, list[Result]]:
    """Of each model and data the seeds that all orders have, or all seeds if no seed is common.

    What stands side by side would otherwise differ by the luck of its seeds.
    """
    seeds: dict[tuple[str, str], list[set[int]]] = defaultdict(list)
    for (model, data, _), group in groups.items():
        seeds[model, data].append({result.seed for result in group})
    shared = {panel: set.intersection(*several) for panel, several in seeds.items()}
    return {
        name: [result for result in group if result.seed in shared[name[:2]]] or group
        for name, group in groups.items()
    }


def _side_by_side(results: Sequence[Result]) -> dict[tuple[str, str], dict[str, dict[str, list[Mean]]]]:
    """Top-1 by model and data, kind, and scan."""
    groups = {name: g for name, g in by_order(results).items() if g[0].kind != "random every batch"}
    found: dict[tuple[str, str], dict[str, dict[str, list[Mean]]]] = defaultdict(lambda: defaultdict(dict))
    for (model, data, _), group in _with_shared_seeds(groups).items():
        found[model, data][group[0].kind].setdefault(scan_name(group[0].summary), []).append(top1(group))
    return found


def learning_figure(results: Sequence[Result]) -> Figure | None:
    """Fixed against learned: top-1 by scan, a panel for each model and dataset that learned."""
    shown = {
        name: found
        for name, found in _side_by_side(results).items()
        if found.keys() & {"learned", "Algorithm 1"}
        and sum(len(means) for scans in found.values() for means in scans.values()) > 1
    }
    if not shown:
        return None
    figure, panels = _panels(len(shown), 3.6, 3.0)
    for axes, ((model, data), found) in zip(panels, shown.items(), strict=True):
        starts = list(
            dict.fromkeys(
                scan for kind in ("learned", "Algorithm 1", "fixed") for scan in found.get(kind, {})
            )
        )
        starts.sort(key=lambda scan: list(SCANS).index(scan) if scan in SCANS else len(SCANS))
        for place, (kind, look) in enumerate(KINDS.items()):
            points = [
                (starts.index(scan) + 0.2 * (place - 1.5), mean)
                for scan, means in found.get(kind, {}).items()
                if scan in starts
                for mean in means
            ]
            if points:
                axes.errorbar(
                    [x for x, _ in points],
                    [100 * mean.value for _, mean in points],
                    [_error(mean) for _, mean in points],
                    fmt=look.marker,
                    color=look.colour,
                    label=kind,
                    capsize=2,
                    markersize=5,
                )
        axes.set_xticks(range(len(starts)), starts, fontsize=9)
        axes.tick_params(axis="x", rotation=30)
        for tick in axes.get_xticklabels():
            tick.set(ha="right", rotation_mode="anchor")
        axes.set(ylabel="top-1 (%)", xlim=(-0.6, len(starts) - 0.4))
        axes.set_title(f"{_wrapped(model, 34)}\n{_wrapped(data, 34)}", fontsize=10)
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
    _legend(figure, title=ERRORS)
    return figure


class Prior(NamedTuple):
    grid: tuple[int, int]
    reductions: dict[str, dict[str, tuple[float, float]]]  # by scan and encoding: percent, standard error
    images: str | None = None  # their name, if it is known
    tokenizer: str = ""

    def fits(self, result: Result) -> bool:
        """Whether a run reads a fixed order of these data and this grid."""
        same = self.images in (None, result.keys["data.root"]) and result.grid == self.grid
        return same and result.kind == "fixed"


class Point(NamedTuple):
    """A fixed scan's accuracy and compressibility."""

    model: str
    scan: str
    reduction: float
    error: float
    top1: Mean


def read_prior(path: Path) -> Prior:
    """What `reorder prior` wrote: by how many percent the codes of each scan compress."""
    content = read(path, "drawn prior")
    reductions = {
        scan: {
            encoding: (float(found["reduction"]), float(found["reduction_sem"]))
            for encoding, found in kinds.items()
            if {"reduction", "reduction_sem"} <= found.keys()
        }
        for scan, kinds in content["orders"].items()
    }
    data = content.get("data")
    images = images_of(Data(data["name"], data.get("root"))) if data else None
    tokenizer = content.get("tokenizer", {}).get("tokenizer", "")
    return Prior((content["grid"][0], content["grid"][1]), reductions, images, tokenizer)


def prior_notes(results: Sequence[Result], priors: Mapping[Path, Prior]) -> list[str]:
    """The priors that no run fits and, if there are any, the data and grids that lack one."""
    notes = [
        f"{path}: no fixed order of its data and {prior.grid[0]}x{prior.grid[1]} patches to draw it against."
        for path, prior in priors.items()
        if not any(map(prior.fits, results))
    ]
    fixed = [result for result in results if result.kind == "fixed"]
    lacking = [result.data for result in fixed if not any(prior.fits(result) for prior in priors.values())]
    return notes + [f"{data}: no --prior of it was given." for data in dict.fromkeys(lacking) if priors]


def _points(results: Sequence[Result], priors: Sequence[Prior]) -> dict[tuple[str, str], list[Point]]:
    """The fixed scans that priors have measured, by data and by tokenizer and encoding."""
    points: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for prior in priors:
        measured = [r for r in results if prior.fits(r) and start_of(r.summary) in prior.reductions]
        for (model, data, _), group in _with_shared_seeds(by_order(measured)).items():
            scan = start_of(group[0].summary)
            for encoding, (reduction, error) in prior.reductions[scan].items():
                label = ", ".join(filter(None, (prior.tokenizer, encoding)))
                points[data, label].append(Point(model, scan, reduction, error, top1(group)))
    return points


def compressibility_figure(results: Sequence[Result], priors: Sequence[Prior]) -> Figure | None:
    """Top-1 of fixed scans against how well they compress, a panel for each dataset, prior and encoding.

    Of the runs, those on a prior's data and grid are shown.
    """
    points = _points(results, priors)
    if not points:
        return None
    models = list(dict.fromkeys(point.model for several in points.values() for point in several))
    figure, panels = _panels(len(points), 4.6, 3.8, most=2)
    for axes, ((data, label), several) in zip(panels, points.items(), strict=True):
        for number, model in enumerate(models):
            here = [point for point in several if point.model == model]
            axes.errorbar(
                [point.reduction for point in here],
                [100 * point.top1.value for point in here],
                [_error(point.top1) for point in here],
                [point.error for point in here],
                fmt=MARKERS[number % len(MARKERS)],
                color=[*COLOURS.values(), *OTHERS][number % 9],
                label=model,
                capsize=2,
                markersize=5,
            )
        axes.margins(y=0.18)
        across = axes.get_xaxis_transform()
        places = sorted({point.reduction: point.scan for point in several}.items())
        close = 0.03 * (places[-1][0] - places[0][0])
        for number, (place, scan) in enumerate(places):
            axes.axvline(place, color="#eeeeee", zorder=0)
            beside = number > 0 and place - places[number - 1][0] < close
            axes.annotate(
                f"{scan} ",
                (place, 0.12 if beside else 0.01),
                xycoords=across,
                rotation=90,
                fontsize=7,
                ha="right",
                color="#555555",
            )
        axes.set(xlabel=f"percentage reduction (LZMA, {label})", ylabel="top-1 (%)", title=data)
    _legend(figure)
    return figure


def training_figure(results: Sequence[Result]) -> Figure | None:
    """Validation top-1 by epoch, means and ranges over seeds, a panel per model and data, at most a dozen."""
    panels: dict[tuple[str, str], dict[str, list[Curve]]] = defaultdict(lambda: defaultdict(list))
    others: list[str] = []
    styles: dict[str, str] = {}
    with_curves = by_order([result for result in results if result.metrics])
    for (model, data, _), group in _with_shared_seeds(with_curves).items():
        top1s = [[line["validation_top1"] for line in result.metrics] for result in group]
        epochs = min(map(len, top1s))
        if (model, data) not in panels and len(panels) == MOST_PANELS:
            continue
        kind, style = group[0].kind, KINDS[group[0].kind].line
        styles[kind] = style
        name = kind if kind == "random every batch" else scan_name(group[0].summary)
        if name not in COLOURS and name not in others:
            others.append(name)
        colour = COLOURS.get(name) or OTHERS[others.index(name) % len(OTHERS)]
        values = np.array([several[:epochs] for several in top1s])
        panels[model, data][name].append(Curve(values, stage_spans(group[0].keys), colour, style))
    if not panels:
        return None
    figure, axes = _panels(len(panels), 4.4, 3.2)
    for panel, ((model, data), curves) in zip(axes, panels.items(), strict=True):
        draw_curves(panel, [*chain(*curves.values())])
        panel.set_title(f"{_wrapped(model, 40)}\n{_wrapped(data, 40)}", fontsize=10)
        panel.xaxis.label.set_fontsize(8)
    colours = {name: several[0].colour for curves in panels.values() for name, several in curves.items()}
    keys = {name: Line2D([], [], color=colour) for name, colour in colours.items()}
    keys |= {label: Line2D([], [], color="#666666", ls=style) for label, style in styles.items()}
    _legend(figure, keys)
    return figure
