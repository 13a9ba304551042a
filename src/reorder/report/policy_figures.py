"""Drawings of how a policy moved: a sequence of maps, and tracked patches."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from reorder.report.evolution import Evolution, cell_name

# N patches, M moments of a run

# The first two as the page's player marks them.
TRACKED = (("#00609c", "o", "-"), ("#b34700", "s", "--"), ("#009E73", "^", ":"), ("#CC79A7", "D", "-."))


def chosen_moments(logits: np.ndarray, most: int) -> list[int]:
    """At most so many moments of logits (M, N), evenly from the last unchanged one to the last change."""
    last = len(logits) - 1
    moved = np.flatnonzero((logits[1:] != logits[:-1]).any(axis=1))
    begin, end = (int(moved[0]), int(moved[-1]) + 1) if len(moved) else (0, last)
    return sorted({round(moment) for moment in np.linspace(begin, end, min(most, end - begin + 1))})


def when(found: Evolution, moment: int) -> str:
    return f"epoch {round(float(found.epochs[moment]), 2):g}"


def evolution_figure(found: Evolution, patches: list[int]) -> Figure:
    """Maps of logits and slots through a run, the tracked patches' slots, and distances from the start.

    The paper's figure of a policy's evolution.
    """
    moments = chosen_moments(found.logits, 6)
    rows, columns = found.grid
    tall = min(2.2, max(0.7, 1.6 * rows / columns))
    figure = Figure(figsize=(10, 2 * tall + 3.9), layout="constrained")
    top, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[2 * tall + 0.9, 3.0]).flat
    grid = top.subplots(2, len(moments), squeeze=False)
    for column, moment in enumerate(moments):
        logits = _map(grid[0, column], found.logits[moment], found, found.logits.min(), found.logits.max())
        slots = _map(grid[1, column], found.slot_of[moment], found, 0, rows * columns - 1, "cividis_r")
        grid[0, column].set_title(when(found, moment), fontsize=10)
        for axes in grid[:, column]:
            _mark(axes, found, patches)
    top.colorbar(logits, ax=list(grid[0]), label="logit")
    top.colorbar(slots, ax=list(grid[1]), label="slot")
    tracks, distances = below.subplots(1, 2)
    _draw_tracks(tracks, found, patches)
    tracks.legend(fontsize=8)
    distances.plot(found.epochs, found.tau, color="#000000", linestyle="-", label="Kendall's tau")
    distances.plot(
        found.epochs,
        found.footrule_share,
        color="#E69F00",
        linestyle="--",
        label="footrule, share of largest",
    )
    distances.set(xlabel="epoch", title="from the initial order")
    distances.xaxis.set_major_locator(MaxNLocator(integer=True))
    distances.legend(fontsize=8)
    return figure


def _map(
    axes: Axes, values: np.ndarray, found: Evolution, low: float, high: float, colours: str = "cividis"
) -> AxesImage:
    """A map of one value per patch (N,)."""
    axes.set(xticks=[], yticks=[])
    return axes.imshow(values.reshape(found.grid), cmap=colours, vmin=low, vmax=high)


def _mark(axes: Axes, found: Evolution, patches: list[int]) -> None:
    """The tracked patches on a map."""
    size = max(12.0, min(90.0, 700 / max(found.grid)))
    for number, patch in enumerate(patches):
        row, column = divmod(patch, found.grid[1])
        colour, marker, _ = TRACKED[number % len(TRACKED)]
        axes.scatter([column], [row], s=size, color=colour, marker=marker, edgecolor="white", linewidth=1)


def _draw_tracks(axes: Axes, found: Evolution, patches: list[int]) -> None:
    """The slot of each tracked patch through the run."""
    for number, patch in enumerate(patches):
        colour, marker, style = TRACKED[number % len(TRACKED)]
        slots, label = found.slot_of[:, patch], f"{chr(65 + number)}: {cell_name(patch, found.grid)}"
        (line,) = axes.plot(found.epochs, slots, color=colour, linestyle=style, label=label)
        line.set(marker=marker, markevery=0.1, markersize=4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    last = found.slot_of.shape[1] - 1
    axes.set(
        xlabel="epoch",
        ylabel="slot",
        title="slots of the tracked patches",
        ylim=(-0.04 * last - 0.5, 1.04 * last + 0.5),
    )
