"""Does a classifier that others have trained care in which order it reads its patches?"""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.config import Data, Experiment, build, images_of
from reorder.data.datasets import load_dataset
from reorder.data.loader import Loader
from reorder.data.ranks import accelerator
from reorder.models.attach import attach
from reorder.models.indifference import FLOAT_TOLERANCE, logits_of
from reorder.models.places import find_place
from reorder.models.pretrained import Pretrained, load_pretrained
from reorder.orders.distances import kendall_tau
from reorder.orders.fixed import FixedOrder
from reorder.orders.named import random_order
from reorder.orders.scans import SCANS
from reorder.report.tables import Cell, Number, PValue, Table
from reorder.runs.statistics import bootstrap, paired_difference

# n images, N patches, K classes

NOISE = 32  # images, where none are given
BATCH = 32


class Images(NamedTuple):
    batches: Iterable[tuple[Tensor, Tensor | None]]  # (b, 3, H, W), normalised for the model, and labels (b,)
    classes: int  # of the labels
    words: str  # what they are


def pretrained_sensitivity(name: str, overrides: list[str]) -> Table:
    """How the answers of a trained classifier change when it reads in other orders than row by row.

    Positions move with the patches. The images are noise, unless there is data; if that has as many classes
    as the model, the table also says how many answers are right.
    """
    loaded = load_pretrained(name)
    place = find_place(loaded.model)
    if place.grid is None:
        raise ValueError(f"{name} does not say into how many patches it cuts an image")
    grid = place.grid
    row = SCANS["row"](*grid)
    tried = {scan: order(*grid) for scan, order in SCANS.items()}
    tried |= {"row-reversed": row.flip(0), "random": random_order(grid, 0)}
    images = _images(loaded, overrides)
    logits, labels = _answers(loaded.model, tried, grid, images.batches)
    if logits["row"].shape[1] != images.classes:
        labels = None
    rows = [_line(scan, tried[scan], row, logits, labels) for scan in tried]
    return Table(
        "sensitivity",
        f"{name} on {images.words} in other orders than row by row. {_verdict(logits)}",
        ("order", "tau with row", "change of logits", "same answer (%)", *ACCURACY[: len(rows[0]) - 4]),
        rows,
        ["The change is the largest of a logit, in standard deviations of the logits of an image."],
    )


ACCURACY = ("top-1 (%)", "against row (points)", "p")


def _line(
    scan: str, order: Tensor, row: Tensor, logits: dict[str, Tensor], labels: Tensor | None
) -> tuple[Cell, ...]:
    """What reading in an order does to the answers, next to reading row by row."""
    own, other = logits["row"], logits[scan]
    change = ((other - own).abs().amax(1) / own.std(1)).max().item()
    same = 100 * (other.argmax(1) == own.argmax(1)).double().mean().item()
    start = (scan, Number(kendall_tau(order, row)), Number(change, digits=4), Number(same))
    if labels is None:
        return start
    correct, before = other.argmax(1) == labels, own.argmax(1) == labels
    error = bootstrap(correct, generator=torch.Generator().manual_seed(0)).sem
    paired = paired_difference(correct, before, generator=torch.Generator().manual_seed(0))
    top1 = Number(100 * correct.double().mean().item(), 100 * error)
    return (
        *start,
        top1,
        Number(100 * paired.difference, 100 * paired.spread.sem),
        PValue(paired.p_value),
    )


def _verdict(logits: dict[str, Tensor]) -> str:
    own = logits["row"]
    most = max((other - own).abs().max().item() for other in logits.values())
    if most <= FLOAT_TOLERANCE * own.abs().max().item():
        return "It does not care: its logits are the same in every order, up to rounding."
    return "It cares: its logits depend on the order."


@torch.no_grad()
def _answers(
    model: nn.Module,
    orders: dict[str, Tensor],
    grid: tuple[int, int],
    batches: Iterable[tuple[Tensor, Tensor | None]],
) -> tuple[dict[str, Tensor], Tensor | None]:
    """The logits (n, K) of images in each order, and their labels (n,) if there are some."""
    device, reading = accelerator(), FixedOrder(grid, orders["row"].clone())
    model = model.to(device)
    found: dict[str, list[Tensor]] = {name: [] for name in orders}
    known = []
    handle = attach(model, reading)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it is indifferent is said in the table
            for images, labels in batches:
                known.append(labels)
                for name, order in orders.items():
                    reading.fixed.copy_(order)
                    found[name].append(_checked(logits_of(model(images.to(device))), model))
    finally:
        handle.remove()
    labels = None if any(part is None for part in known) else torch.cat([p for p in known if p is not None])
    return {name: torch.cat(parts) for name, parts in found.items()}, labels


def _checked(logits: Tensor | None, model: nn.Module) -> Tensor:
    if logits is None or logits.dim() != 2:
        raise ValueError(f"a {type(model).__name__} gives no logits (B, classes)")
    return logits.double().cpu()


def _images(loaded: Pretrained, overrides: list[str]) -> Images:
    """Validation images of the data that are asked for, or else noise."""
    if not overrides:
        coarse = torch.randn(NOISE, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        noise = F.interpolate(coarse, loaded.image_shape, mode="bilinear")
        return Images([(noise, None)], 0, f"{NOISE} images of noise")
    changes = [f"data.{override.removeprefix('data.')}" for override in overrides]
    settings = build(Experiment(data=Data(name="image_folder")), overrides=changes).data
    dataset = load_dataset(settings, loaded.image_shape)
    plain = dataset._replace(mean=torch.zeros(dataset.channels), deviation=torch.ones(dataset.channels))
    loader = Loader(plain, settings, min(BATCH, len(dataset.train)), seed=0)
    mean, deviation = (torch.tensor(value)[:, None, None] for value in (loaded.mean, loaded.deviation))
    batches = (
        ((pixels.expand(-1, 3, -1, -1) - mean) / deviation, labels) for _, pixels, labels in loader.validate()
    )
    words = f"{len(dataset.validation)} images of {images_of(settings)}"
    return Images(batches, len(dataset.classes), words)
