"""Is an order for each image worth more than one for all? Clutter with the digit anywhere, a short memory.

row, random  one order for all images, fixed; another random one for every seed
global       one order for all, learned
image        each image's own, learned; `class by the order alone` is how often a random forest tells the
             class by the slots of an image's patches, without their content: what an order gives away
oracle       each image's own, with the digit's patches last, as nobody could know them

No order for all images can show more of the digit than `bound`: of an image's 9 digit patches, those that the
best set of as many patches as the model sees holds on average. Runs are kept in runs/images.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from benchmarks.learners import clutter, cut_short, shown, task_of, with_seed
from reorder.config import Experiment
from reorder.data.clutter import SIDE, TRAIN, VALIDATION, Clutter
from reorder.data.datasets import digit_splits, load_dataset
from reorder.experiments.grids import tasks_of
from reorder.experiments.here import Machine, run_here
from reorder.experiments.presets import with_order
from reorder.experiments.rungs import summary_of
from reorder.experiments.studies import Planned
from reorder.models.accuracy import own_orders
from reorder.models.classifier import model_of
from reorder.orders.curriculum import learning_rate
from reorder.orders.order import invert
from reorder.runs.directory import RunDir
from reorder.runs.trained import load_trained

# n images, B in a batch, N patches

SEEDS = range(5)
EPOCHS = 12  # three times those of the digit at one place
SEEN = 16  # of 64 patches
ARMS = {  # where each starts, and its policy
    "row": ("row", "none"),
    "random": ("random", "none"),
    "global": ("random", "global"),
    "image": ("random", "image"),
}


def anywhere() -> Experiment:
    base = clutter()
    train = replace(base.train, epochs=EPOCHS, compare=False)
    return replace(base, data=replace(base.data, place="anywhere"), train=train)


def digits_last(split: Clutter, index: Tensor) -> Tensor:
    """Orders (B, N) that end with the digit's patches, both parts row by row."""
    rows, columns = split.grid
    found = torch.zeros(len(index), rows, columns, dtype=torch.long)
    for image, number in zip(found, index.tolist(), strict=True):
        random = np.random.default_rng([1, number])
        random.integers(split.cells.shape[0] * SIDE * SIDE, size=rows * columns)  # the clutter comes first
        top, left = split.place(random)
        image[top : top + SIDE, left : left + SIDE] = 1
    return found.flatten(1).argsort(dim=1, stable=True)


def oracle(experiment: Experiment, most: int | None) -> float:
    """Top-1 in points of a model that reads every image with its digit last; of so many images at most."""
    settings, shape = experiment.train, experiment.model.image_shape
    data = load_dataset(replace(experiment.data, train_images=None, validation_images=None), shape)
    counts, prepare = (TRAIN, VALIDATION), data.inputs.prepare
    splits = [Clutter(*digits, n, shape, True) for digits, n in zip(digit_splits(), counts, strict=True)]
    torch.manual_seed(settings.seed)
    model = model_of(experiment.model, data.channels, len(data.classes))
    images, labels, orders = whole(splits[0], prepare, most)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=settings.weight_decay)
    epoch_steps = len(images) // settings.batch_size
    for step in range(settings.epochs * epoch_steps):
        if step % epoch_steps == 0:
            batches = torch.randperm(len(images)).split(settings.batch_size)
        now = batches[step % epoch_steps]
        warmup, total = round(settings.warmup_epochs * epoch_steps), settings.epochs * epoch_steps
        optimizer.param_groups[0]["lr"] = learning_rate(step, warmup, total, settings.learning_rate)
        loss = F.cross_entropy(model(images[now], orders[now]), labels[now])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
    images, labels, orders = whole(splits[1], prepare, most)
    with torch.no_grad():
        found = torch.cat(
            [model.eval()(*some) for some in zip(images.split(500), orders.split(500), strict=True)]
        )
    return 100 * (found.argmax(1) == labels).double().mean().item()


def whole(
    split: Clutter, prepare: Callable[[Tensor], Tensor], most: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The images of a split, ready for a model, their labels, and the orders that have the digit last."""
    index = torch.arange(len(split))[:most]
    pixels = torch.stack([split.read(number) for number in index.tolist()])
    return prepare(pixels.expand(-1, 3, -1, -1)), split.labels[index], digits_last(split, index)


def told_by_the_order(run: RunDir) -> float:
    """How often a forest tells the class of a validation image by its order alone, in points."""
    trained = load_trained(run)
    assert trained.own is not None
    model, loader, device = trained.model, trained.loader, trained.world.device
    _, labels, orders = own_orders(model, loader, trained.own, device, VALIDATION)
    x, y = invert(orders).numpy(), labels.numpy()
    half = len(x) // 2
    forest = RandomForestClassifier(300, random_state=0).fit(x[:half], y[:half])
    return 100 * float(forest.score(x[half:], y[half:]))


def bound(rows: int, columns: int, seen: int) -> float:
    """The most of a digit's patches that one set of patches can hold on average, over all its places."""
    places = [(top, left) for top in range(rows - SIDE + 1) for left in range(columns - SIDE + 1)]
    covers = torch.zeros(rows, columns)
    for top, left in places:
        covers[top : top + SIDE, left : left + SIDE] += 1 / len(places)
    return covers.flatten().topk(seen).values.sum().item()


def table(tiny: bool = False) -> Table:
    seeds, base = (SEEDS[:1], cut_short(anywhere())) if tiny else (SEEDS, anywhere())
    table = Table("order", "top-1 (%)", "against row", title=f"the digit anywhere, {len(seeds)} seeds")
    plans = {
        (arm, seed): with_seed(Planned(with_order(base, *how)), seed)
        for arm, how in ARMS.items()
        for seed in seeds
    }
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) if tiny else Path("runs/images").absolute()
        tasks = tasks_of(list(plans.values()), out)
        run_here(tasks, Machine(None, len(tasks)), Console(stderr=True), "reorder bench images")
        runs = {key: task_of(plan, out).directory for key, plan in plans.items()}
        found = {arm: [100 * summary_of(runs[arm, seed])["top1"] for seed in seeds] for arm in ARMS}
        alone = [told_by_the_order(runs["image", seed]) for seed in seeds]
    found["oracle"] = [
        oracle(replace(base, train=replace(base.train, seed=seed)), 64 if tiny else None) for seed in seeds
    ]
    for arm, values in found.items():
        gains = [value - row for value, row in zip(values, found["row"], strict=True)]
        table.add_row(arm, shown(values), shown(gains))
    table.add_row("class by the order alone", shown(alone), "")
    most = bound(*(side // base.model.patch_size for side in base.model.image_shape), SEEN)
    table.caption = f"one order shows at most {most:.1f} of a digit's {SIDE * SIDE} patches on average"
    return table
