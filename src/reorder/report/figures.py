"""Figures, drawn off-screen with matplotlib."""

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from reorder.orders.curriculum import FROZEN, POLICY, STAGES, WARM_UP
from reorder.orders.disk import check_writable, replacing
from reorder.orders.scans import SCANS

# N patches, E epochs, M moments

INK, START, STOP = "#6a00a8", "#0d0887", "#e8763f"  # as in the page's player
READABLE, TAIL = 100, 16  # as in the page's player: patches of a path that can be read, slots drawn of others
FADING = np.linspace(0.15, 1, TAIL)
STAGE_SHADES = {WARM_UP: "#f3e9d2", POLICY: "#dbe7f5", FROZEN: "#ececec"}


@dataclass(frozen=True)
class Picture:
    name: str  # a file's name without its ending
    caption: str
    figure: Figure

    @cached_property
    def drawn(self) -> dict[str, bytes]:
        """The content of its files, by their ending; the same figure is the same bytes."""
        content = {}
        with rc_context({"svg.hashsalt": self.name}):
            for ending, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 160})):
                buffer = io.BytesIO()
                self.figure.savefig(buffer, format=ending, **options)
                content[ending] = buffer.getvalue()
        small = io.BytesIO()  # a palette is enough for lines and text, and a third of the size
        with Image.open(io.BytesIO(content["png"])) as drawn:
            drawn.convert("RGB").quantize(128).save(small, "PNG", optimize=True)
        return content | {"png": small.getvalue()}


def draw_path(axes: Axes, order: np.ndarray, grid: tuple[int, int], title: str) -> None:
    """The path of an order (N,) over its grid, from the dark dot to the orange square.

    One that jumps about on many patches would be a tangle: of it the last slots are drawn, fading backwards.
    """
    rows, columns = grid
    y, x = np.divmod(np.asarray(order), columns)
    jumps = np.hypot(np.diff(x), np.diff(y))
    width = max(0.4, min(1.8, 25 / max(grid)))
    dot = max(6.0, min(50.0, 600 / max(grid)))
    if len(order) <= READABLE or jumps.mean() < 2:
        axes.plot(x, y, color=INK, linewidth=width, zorder=1, solid_joinstyle="round")
        axes.scatter(x[:1], y[:1], s=dot, color=START, edgecolor="white", linewidth=0.6, zorder=3)
    else:
        draw_tail(axes, order, columns, width)
        axes.set_facecolor("#f6f6f6")
        title = f"{title}, its last {TAIL} of {len(order)} slots"
    axes.scatter(x[-1:], y[-1:], s=dot, color=STOP, marker="s", edgecolor="white", linewidth=0.6, zorder=2)
    axes.set(xlim=(-0.8, columns - 0.2), ylim=(rows - 0.2, -0.8), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, fontsize=11)


def draw_tail(axes: Axes, order: np.ndarray, columns: int, width: float) -> None:
    """The way through the last slots of an order (N,), fading backwards."""
    y, x = np.divmod(np.asarray(order)[-TAIL - 1 :], columns)
    ends = np.stack([x, y], 1)
    steps = np.stack([ends[:-1], ends[1:]], 1)
    fading = FADING[-len(steps) :]
    axes.add_collection(LineCollection(list(steps), colors=INK, linewidths=width, alpha=fading))


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


def policy_figure(epochs: np.ndarray, logits: np.ndarray, initial: np.ndarray) -> Figure:
    """Logits (M, N) by epochs (M,), one line per patch, coloured by its slot in the initial order."""
    from matplotlib import colormaps

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for slot, patch in enumerate(initial):
        colour = colormaps["cividis_r"](slot / max(1, len(initial) - 1))
        axes.plot(epochs, logits[:, patch], color=colour, linewidth=0.9)
    axes.set(
        xlabel="epoch", ylabel="logit (higher is read earlier)", title="The policy's logits, a line per patch"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


class Span(NamedTuple):
    """A stage of a run, from some epoch to another; 0 is before training, e is after e epochs."""

    stage: str
    start: float
    stop: float


def stage_spans(keys: dict[str, Any]) -> list[Span]:
    """The stages of a run with these keys of its configuration; none if it has no policy."""
    if "order.policy_fraction" not in keys:
        return []
    warm = keys["order.warmup_fraction"]
    limits = [0, warm, warm + keys["order.policy_fraction"], 1]
    spans = [
        Span(stage, keys["train.epochs"] * start, keys["train.epochs"] * stop)
        for stage, start, stop in zip(STAGES, limits, limits[1:], strict=False)
    ]
    return [span for span in spans if span.stop - span.start > 1e-6]


def curve_figure(name: str, top1: np.ndarray, spans: list[Span]) -> Figure:
    """Validation top-1 (E,), a fraction, by epoch of one run, over its stages."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for span in spans:
        axes.axvspan(span.start, span.stop, color=STAGE_SHADES[span.stage], lw=0)
    marker = "." if len(top1) == 1 else ""  # a single epoch is no line
    axes.plot(np.arange(1, len(top1) + 1), 100 * top1, color=INK, linewidth=1.4, marker=marker)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    shaded = " (shaded: warm-up, policy, frozen)" if spans else ""
    axes.set(xlabel=f"epoch{shaded}", ylabel="validation top-1 (%)")
    axes.set_title(name, fontsize=11)
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


def check_drawable(path: Path) -> None:
    """Refuse a path that no figure can be written to, before the work that is drawn."""
    accepted = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in accepted:
        raise ValueError(f"cannot draw {str(path)!r}; choose an ending from {', '.join(sorted(accepted))}")
    check_writable(path.parent)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format of the path's ending."""
    path = Path(path)
    check_drawable(path)
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)
