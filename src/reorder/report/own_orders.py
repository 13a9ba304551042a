"""The orders that images have of their own: drawn over the images, and as order files."""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from reorder.data.inputs import pixels_of
from reorder.models.accuracy import own_orders
from reorder.orders.distances import agreement
from reorder.orders.files import save_order
from reorder.orders.order import invert
from reorder.report.figures import STOP, draw_tail, save_figure
from reorder.runs.directory import RunDir
from reorder.runs.trained import load_trained

# n images, C channels, H x W pixels, N patches

COLUMNS = 4


def write_own_orders(directory: RunDir, count: int) -> tuple[Path, float]:
    """Draw the first validation images with their paths, and write their orders, into RUN/evaluations/orders.

    Returns that directory, and the mean Kendall's tau between two of the images.
    """
    run = load_trained(directory)
    if run.own is None:
        raise ValueError(
            f"{directory.path} reads all images in one order; see: reorder order show "
            f"{directory.path / 'order.json'}"
        )
    images, _, orders = own_orders(run.model, run.loader, run.own, run.world.device, count, kept=count)
    where = directory.path / "evaluations" / "orders"
    where.mkdir(parents=True, exist_ok=True)
    for number, order in enumerate(orders):
        about = {"run": directory.path.name, "validation_image": number}
        save_order(where / f"image-{number}.json", order, run.model.grid, about)
    shown = pixels_of(images, run.loader.dataset.mean, run.loader.dataset.deviation) / 255
    save_figure(paths_figure(shown, orders, run.model.grid), where / "orders.png")
    return where, agreement(orders)


def paths_figure(images: Tensor, orders: Tensor, grid: tuple[int, int]) -> Figure:
    """Images (n, C, H, W), of values 0..1: pale where they are read (n, N) early, with the way at the end."""
    rows, columns = math.ceil(len(images) / COLUMNS), min(COLUMNS, len(images))
    size = 2.6
    figure = Figure(figsize=(size * columns, (size * grid[0] / grid[1] + 0.3) * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    extent = (-0.5, grid[1] - 0.5, grid[0] - 0.5, -0.5)
    for place, image, order in zip(axes, images, orders, strict=False):
        place.imshow(np.moveaxis(image.numpy(), 0, 2).squeeze(), cmap="gray", vmin=0, vmax=1, extent=extent)
        pale = np.ones((*grid, 4))
        pale[..., 3] = 0.85 * (1 - invert(order).view(grid).numpy() / max(1, len(order) - 1))
        place.imshow(pale, extent=extent)
        draw_tail(place, order.numpy(), grid[1], width=1.5)
        last = divmod(int(order[-1]), grid[1])
        place.scatter(last[1], last[0], s=40, color=STOP, marker="s", edgecolor="white", zorder=3)
        place.set(xticks=[], yticks=[])
    for number, place in enumerate(axes):
        place.set_title(f"image {number}", fontsize=11) if number < len(images) else place.axis("off")
    return figure
