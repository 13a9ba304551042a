"""Figures, drawn off-screen with matplotlib."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reorder.scans import SCANS

# N patches, E epochs

INK, START, STOP = "#2b4fab", "#d62728", "#000000"
STAGE_SHADES = {"warm-up": "#f3e9d2", "policy": "#dbe7f5", "frozen": "#ececec"}


class Picture(NamedTuple):
    name: str  # a file's name without its ending
    caption: str
    figure: Figure


def draw_path(axes: Axes, order: np.ndarray, grid: tuple[int, int], title: str) -> None:
    """The path of an order (N,) over its grid, from the red dot to the black dot."""
    rows, columns = grid
    y, x = np.divmod(np.asarray(order), columns)
    width = max(0.4, min(1.8, 25 / max(grid)))
    axes.plot(x, y, color=INK, linewidth=width, zorder=1, solid_joinstyle="round")
    dot = max(6.0, min(50.0, 600 / max(grid)))
    axes.scatter(x[:1], y[:1], s=dot, color=START, zorder=3)
    axes.scatter(x[-1:], y[-1:], s=dot, color=STOP, zorder=2)
    axes.set(xlim=(-0.8, columns - 0.2), ylim=(rows - 0.2, -0.8), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, fontsize=11)


def draw_slots(axes: Axes, order: np.ndarray, grid: tuple[int, int], title: str) -> None:
    """A map of when each patch is read: light first, dark last."""
    slot_of = np.argsort(order).reshape(grid)
    axes.imshow(slot_of, cmap="cividis_r")
    if max(grid) <= 16:
        for (row, column), slot in np.ndenumerate(slot_of):
            shade = "white" if slot > 0.5 * len(order) else "black"
            axes.text(column, row, str(slot), ha="center", va="center", fontsize=7, color=shade)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=11)


def _height(drawn: float) -> float:
    """Inches for what is drawn and its titles, within reason for very tall and very flat grids."""
    return min(24.0, max(2.0, drawn + 0.8))


def scan_figure(rows: int, columns: int) -> Figure:
    """The six scans of a grid (the paper's first figure)."""
    figure = Figure(figsize=(9, _height(9 * rows / columns * 2 / 3)), layout="constrained")
    for axes, (name, scan) in zip(figure.subplots(2, 3).flat, SCANS.items(), strict=True):
        draw_path(axes, scan(rows, columns).numpy(), (rows, columns), name)
    return figure


def order_figure(initial: np.ndarray, found: np.ndarray, grid: tuple[int, int]) -> Figure:
    """Where a policy started and where it ended: paths, and maps of slots."""
    figure = Figure(figsize=(8, _height(8 * grid[0] / grid[1])), layout="constrained")
    (path0, path1), (map0, map1) = figure.subplots(2, 2)
    draw_path(path0, initial, grid, "initial order")
    draw_path(path1, found, grid, "learned order")
    draw_slots(map0, initial, grid, "slot of each patch, initial")
    draw_slots(map1, found, grid, "slot of each patch, learned")
    return figure


def policy_figure(logits: np.ndarray, initial: np.ndarray) -> Figure:
    """Logits (E + 1, N) by epoch, one line per patch, coloured by its slot in the initial order."""
    from matplotlib import colormaps

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for slot, patch in enumerate(initial):
        axes.plot(
            logits[:, patch], color=colormaps["cividis_r"](slot / max(1, len(initial) - 1)), linewidth=0.9
        )
    axes.set(
        xlabel="epoch", ylabel="logit (higher is read earlier)", title="The policy's logits, a line per patch"
    )
    return figure


class Curve(NamedTuple):
    """Validation top-1 by epoch, and how to draw it."""

    name: str
    epochs: list[int]
    top1: list[float]
    stages: list[str]
    colour: str | None = None
    style: str | None = None


def curve_of(name: str, lines: list[dict[str, Any]]) -> Curve:
    """The curve of one run's metrics."""
    columns = zip(*((line["epoch"], line["validation_top1"], line["stage"]) for line in lines), strict=True)
    epochs, top1, stages = map(list, columns) if lines else ([], [], [])
    return Curve(name, epochs, top1, stages)


def draw_curves(axes: Axes, curves: list[Curve]) -> None:
    """Curves on one pair of axes, with the stages of the first that learns as shades."""
    learns = [curve for curve in curves if set(curve.stages) & set(STAGE_SHADES)]
    for curve in learns[:1]:
        for epoch, stage in zip(curve.epochs, curve.stages, strict=True):
            axes.axvspan(epoch - 0.5, epoch + 0.5, color=STAGE_SHADES[stage], lw=0)
    for style, curve in zip(("-", "--", ":", "-.") * len(curves), curves, strict=False):
        percent = [100 * value for value in curve.top1]
        axes.plot(
            curve.epochs,
            percent,
            linestyle=curve.style or style,
            color=curve.colour,
            label=curve.name,
            linewidth=1.4,
        )
    shaded = " (shaded: warm-up, policy, frozen)" if learns else ""
    axes.set(xlabel=f"epoch{shaded}", ylabel="validation top-1 (%)")


def curve_figure(curves: list[Curve]) -> Figure:
    """Validation top-1 by epoch of a few runs."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    draw_curves(axes, curves)
    axes.legend(loc="lower right")
    return figure


def coverage_figure(result: dict[str, Any]) -> Figure:
    """How many tokens attend to each patch, a map for each model (the paper's appendix on attention)."""
    models = result["models"]
    most = max(found["class_token"] for found in models.values())
    figure = Figure(figsize=(3.2 * len(models) + 0.8, 3.8), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, len(models)), models.items(), strict=True):
        counts = np.array(found["patches"])
        picture = axes.imshow(counts, cmap="cividis", vmin=0, vmax=most)
        if max(counts.shape) <= 16:
            for (row, column), count in np.ndenumerate(counts):
                shade = "white" if count < most / 2 else "black"
                axes.text(column, row, str(count), ha="center", va="center", fontsize=8, color=shade)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{name}\nclass token {found['class_token']}", fontsize=11)
    figure.colorbar(picture, ax=figure.axes, label="tokens that attend", shrink=0.8)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format of the path's ending."""
    path = Path(path)
    accepted = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in accepted:
        raise ValueError(f"cannot draw {str(path)!r}; choose an ending from {', '.join(sorted(accepted))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
