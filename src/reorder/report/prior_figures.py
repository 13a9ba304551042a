"""Figures of the prior: reduction by order, and the paper's scatter of accuracy against reduction."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from reorder.config import Data, images_of
from reorder.prior.compressibility import ENCODINGS
from reorder.prior.ranking import FLOOR, MEASURES, value
from reorder.runs.directory import RunDir

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


def match_run(
    run: RunDir, measured: Data, grid: tuple[int, int], named: dict[str, np.ndarray]
) -> tuple[str, dict[str, Any]]:
    """The name of the fixed order (N,) that a finished run on the measured data reads in, and its summary."""
    data, summary = run.experiment().data, run.summary()
    if summary is None:
        raise ValueError(f"{run.path} is not finished; train it with: reorder train --resume {run.path}")
    if summary["policy"] != "none":
        raise ValueError(f"{run.path} is of order.policy={summary['policy']}; --runs takes fixed orders")
    if (data.name, images_of(data)) != (measured.name, images_of(measured)):
        names = [" ".join(filter(None, (each.name, each.root))) for each in (data, measured)]
        raise ValueError(f"{run.path} was trained on {names[0]}, but {names[1]} is measured")
    if tuple(summary["grid"]) != grid:
        grids = ["x".join(map(str, each)) for each in (summary["grid"], grid)]
        raise ValueError(f"{run.path} reads a {grids[0]} grid, but a {grids[1]} grid is measured")
    same = [name for name, order in named.items() if summary["order"] == order.tolist()]
    if not same:
        raise ValueError(
            f"{run.path} reads in an order that is not measured; add --order {run.path}/order.json"
        )
    return summary["scan"] if summary["scan"] in same else same[0], summary


def points_of(
    prior: dict[str, Any], matched: list[tuple[str, dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """For each model, a point per matched run: its accuracy, and the reduction of its order."""
    points: dict[str, list[dict[str, Any]]] = {}
    for name, summary in matched:
        found = prior["orders"][name]["unigram"]
        point = {
            "name": name,
            "seed": summary["seed"],
            "top1": summary["top1"],
            "top1_sem": summary["top1_sem"],
        }
        point |= {key: found[key] for key in ("reduction", "reduction_sem")}
        points.setdefault(f"{summary['model']} {summary['size']}", []).append(point)
    return points


def scatter_figure(points: dict[str, list[dict[str, Any]]]) -> Figure:
    """Top-1 against percentage reduction, a panel per model (the paper's figure on compression)."""
    figure = Figure(figsize=(max(4.5, 3.6 * len(points)), 3.8), layout="constrained")
    for axes, (model, found) in zip(
        figure.subplots(1, len(points), squeeze=False)[0], points.items(), strict=True
    ):
        for point in found:
            at = point["reduction"], 100 * point["top1"]
            axes.errorbar(
                *at,
                100 * point["top1_sem"],
                point["reduction_sem"],
                fmt="o",
                color=INK,
                capsize=2,
                elinewidth=1,
            )
            axes.annotate(point["name"], at, (4, 4), textcoords="offset points", fontsize=9)
        axes.set(xlabel="percentage reduction (LZMA unigram)", ylabel="top-1 (%)", title=model)
        axes.grid(alpha=0.3)
        axes.margins(x=0.35, y=0.15)  # room for the names
    return figure
