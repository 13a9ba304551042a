"""Figures of a prior: reduction by order, and the accuracy of runs against it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reorder.config import Data, images_of
from reorder.prior.compressibility import ENCODINGS
from reorder.prior.ranking import FLOOR, MEASURES, value
from reorder.report.charts import COLOURS, OTHERS, legend, panels_of, top1_table
from reorder.report.results import Result, start_of
from reorder.runs.schemas import read

MARKERS, INKS = "osD^vPX*", (*COLOURS.values(), *OTHERS)
INK, CHOSEN, FLOOR_INK = "#0072b2", "#d55e00", "#555555"  # told apart by the colour-blind, and by marker


def prior_figure(prior: dict[str, Any]) -> Figure:
    """Percentage reduction by order, unigram and bigram, with standard errors; the random order is a line."""
    names = sorted(prior["rankings"]["unigram"], key=lambda name: value(prior, name, "unigram"))
    figure = Figure(figsize=(8, 1.6 + 0.32 * len(names)), layout="constrained")
    for axes, encoding in zip(figure.subplots(1, 2, sharey=True), ENCODINGS, strict=True):
        for row, name in enumerate(names):
            found, chosen = prior["orders"][name][encoding], name == prior["chosen"]["scan"]
            axes.errorbar(
                found["reduction"],
                row,
                xerr=found["reduction_sem"],
                fmt="D" if chosen else "o",
                color=CHOSEN if chosen else INK,
                capsize=3,
            )
        floor = prior["orders"][FLOOR][encoding]["reduction"]
        axes.axvline(floor, color=FLOOR_INK, linestyle="--", linewidth=1)
        axes.annotate(
            "random", (floor, 1), (3, -3), ("data", "axes fraction"), "offset points", va="top", fontsize=8
        )
        axes.set(xlabel="percentage reduction ± standard error", title=MEASURES[encoding])
        axes.grid(axis="x", alpha=0.3)
        axes.margins(x=0.12)
    figure.axes[0].set_yticks(range(len(names)), names)
    each = "each image" if prior["scope"] == "image" else "streams of many images"
    figure.suptitle(f"{each}, {prior['images']:,} in all; diamond: the least compressible scan", fontsize=10)
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


def _points(results: Sequence[Result], prior: Prior) -> pd.DataFrame:
    """The accuracy and compressibility of the fixed scans that a prior has measured, a row per encoding."""
    measured = [r for r in results if prior.fits(r) and start_of(r.summary) in prior.reductions]
    rows = [
        (scan, ", ".join(filter(None, (prior.tokenizer, encoding))), *reduction)
        for scan, encodings in prior.reductions.items()
        for encoding, reduction in encodings.items()
    ]
    reductions = pd.DataFrame(rows, columns=["scan", "measure", "reduction", "reduction_error"])
    return top1_table(measured).merge(reductions, on="scan")


def compressibility_figure(results: Sequence[Result], priors: Sequence[Prior]) -> Figure | None:
    """Top-1 of fixed scans against how well they compress, a panel for each dataset, prior and encoding.

    Of the runs, those on a prior's data and grid are shown.
    """
    points = pd.concat([_points(results, prior) for prior in priors]) if priors else pd.DataFrame()
    if points.empty:
        return None
    shown = points.groupby(["data", "measure"], sort=False)
    figure, panels = panels_of(len(shown), 4.6, 3.8, most=2)
    for axes, ((data, measure), found) in zip(panels, shown, strict=True):
        for number, model in enumerate(points.model.unique()):
            here = found[found.model == model]
            style: dict[str, Any] = {
                "fmt": MARKERS[number % len(MARKERS)],
                "color": INKS[number % len(INKS)],
                "label": model,
            }
            errors = (here.error, here.reduction_error)
            axes.errorbar(here.reduction, here.top1, *errors, capsize=2, markersize=5, **style)
        axes.margins(y=0.18)
        _name_scans(axes, {row.reduction: row.scan for row in found.itertuples()})
        axes.set(xlabel=f"percentage reduction (LZMA, {measure})", ylabel="top-1 (%)", title=data)
    legend(figure)
    return figure


def _name_scans(axes: Axes, scans: dict[float, str]) -> None:
    """A line at the reduction of each scan with its name, higher up where the one before is near."""
    places = sorted(scans)
    for before, place in zip([-math.inf, *places], places, strict=False):
        near = place - before < 0.03 * (places[-1] - places[0])
        axes.axvline(place, color="#eeeeee", zorder=0)
        where: dict[str, Any] = {
            "xycoords": axes.get_xaxis_transform(),
            "rotation": 90,
            "fontsize": 7,
            "ha": "right",
        }
        axes.annotate(f"{scans[place]} ", (place, 0.12 if near else 0.01), color="#555555", **where)
