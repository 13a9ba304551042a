"""The figure of a prior: reduction by order."""

from typing import Any

from matplotlib.figure import Figure

from reorder.prior.compressibility import ENCODINGS
from reorder.prior.ranking import FLOOR, MEASURES, value

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
