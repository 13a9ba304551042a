"""What `reorder order` says about order files: when each patch is read, and how far orders are apart."""

from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from reorder.orders.distances import footrule, kendall_tau, largest_footrule
from reorder.orders.files import OrderFile
from reorder.orders.order import invert
from reorder.orders.scans import SCANS
from reorder.report.figures import draw_path, draw_slots
from reorder.report.tables import Cell, Number, Table

WIDEST = 120  # columns of text that a map of slots may have


def describe_order(path: Path, found: OrderFile) -> str:
    """Lines about an order: its grid, the scan it is nearest to, where it came from, and its slots."""
    rows, columns = found.grid
    tau = {name: kendall_tau(found.order, scan(rows, columns)) for name, scan in SCANS.items()}
    tau |= {f"{name} reversed": -value for name, value in tau.items()}
    nearest = max(tau, key=lambda name: tau[name])
    lines = [f"{path}: {rows}x{columns} patches, nearest to {nearest} (Kendall's tau {tau[nearest]:.3f})"]
    if found.provenance:
        lines.append(", ".join(f"{key}: {value}" for key, value in found.provenance.items()))
    width = len(str(rows * columns - 1)) + 1
    if width * columns <= WIDEST:
        slots = invert(found.order).view(rows, columns).tolist()
        lines += ["".join(f"{slot:{width}}" for slot in row) for row in slots]
    else:
        lines.append("its map of slots is too wide to print; draw it with --out FILE.png")
    return "\n".join(lines)


def orders_figure(files: dict[str, OrderFile]) -> Figure:
    """The path of each order over its grid, and a map of its slots."""
    heights = [max(2.0, min(12.0, 4 * rows / columns)) for _, (rows, columns), _ in files.values()]
    figure = Figure(figsize=(8, sum(heights) + 0.5 * len(files)), layout="constrained")
    axes = figure.subplots(len(files), 2, squeeze=False, height_ratios=heights)
    for (path_axes, map_axes), (name, (order, grid, _)) in zip(axes, files.items(), strict=True):
        draw_path(path_axes, order.numpy(), grid, name)
        draw_slots(map_axes, order.numpy(), grid, "slot of each patch")
    return figure


def comparison_table(files: dict[str, OrderFile]) -> Table:
    """Kendall's tau and the footrule of every two of several orders of one grid."""
    (first, (_, grid, _)), *_ = files.items()
    for name, (_, other, _) in files.items():
        if other != grid:
            one, two = ("{}x{}".format(*each) for each in (grid, other))
            raise ValueError(
                f"{first} is for a {one} grid, {name} for a {two} one; bring it to the other grid first: "
                f"reorder order convert {name} --to {one} -o FILE.json"
            )
    largest = max(1, largest_footrule(grid[0] * grid[1]))
    rows: list[tuple[Cell, ...]] = []
    for (name, a), (other_name, b) in combinations(files.items(), 2):
        moved = footrule(np.asarray(a.order), np.asarray(b.order))
        tau = Number(kendall_tau(a.order, b.order), digits=3)
        share = Number(100 * moved / largest)
        rows.append((name, other_name, tau, Number(moved, digits=0), share))
    headings = ("order", "other", "Kendall's tau", "footrule (slots)", "footrule (% of the largest)")
    return Table("orders", "How far orders are apart.", headings, rows, [])
