"""Is an order for each image worth more than one for all? Things that are anywhere, and a short memory.

digits       a digit anywhere in clutter, 8x8 patches of which a Transformer-XL sees 16
garments     Fashion-MNIST scaled and anywhere on a canvas of 8x8 patches, of which it sees 16
garments, mamba   the same read by one scan of Mamba, whose memory fades

row, random  one order for all images, fixed; another random one for every seed
global       one order for all, learned
image        each image's own, learned; `class by the order alone` is how often a random forest tells the
             class by the slots of an image's patches, without their content: what an order gives away
oracle       each image's own, with the digit's patches last, as nobody could know them

No order for all images can show more of the digit than `bound`: of an image's 9 digit patches, those that the
best set of as many patches as the model sees holds on average; oracle and bound are of the digits. Runs are
kept in runs/images.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from benchmarks.learners import clutter, cut_short, shown, task_of, with_seed
from reorder.config import Experiment
from reorder.data.clutter import SIDE, TRAIN, VALIDATION, Clutter
from reorder.data.datasets import digit_splits, load_dataset
from reorder.data.progress import Display
from reorder.experiments.grids import tasks_of
from reorder.experiments.presets import with_order
from reorder.experiments.rungs import summary_of
from reorder.experiments.studies import PLAIN_MAMBA, Planned, stream
from reorder.experiments.trainers import on_this_machine
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
    """The digit anywhere; with the LayerNorm of pixels, without which the network hardly finds it."""
    base = clutter()
    model = replace(base.model, options=base.model.options | {"pixel_norm": True})
    train = replace(base.train, epochs=EPOCHS, compare=False)
    return replace(base, model=model, data=replace(base.data, place="anywhere"), train=train)


def garments() -> Experiment:
    """Fashion-MNIST scaled and anywhere on a canvas of twice its size."""
    base = stream(7, SEEN // 2)
    return replace(
        base,
        model=replace(base.model, image_size=56, patch_size=7),
        data=replace(base.data, move="shift"),
        train=replace(base.train, epochs=EPOCHS),
    )


def garments_mamba() -> Experiment:
    base = garments()
    return replace(base, model=replace(base.model, name="mamba", options=dict(PLAIN_MAMBA)))


PROBLEMS = {"digits": anywhere, "garments": garments, "garments, mamba": garments_mamba}


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


Runs = dict[tuple[str, int], RunDir]  # by arm and seed


def trained(base: Experiment, seeds: range, out: Path) -> Runs:
    """The runs of a problem; those that are finished are not trained again."""
    plans = {
        (arm, seed): with_seed(Planned(with_order(base, *how)), seed)
        for arm, how in ARMS.items()
        for seed in seeds
    }
    with on_this_machine(None, Display(), "reorder bench images") as (train, _):
        train(tasks_of(list(plans.values()), out))
    return {key: task_of(plan, out).directory for key, plan in plans.items()}


def table(tiny: bool = False) -> Table:
    seeds, problems = (SEEDS[:1], {"digits": anywhere}) if tiny else (SEEDS, PROBLEMS)
    table = Table(
        *("problem", "order", "top-1 (%)", "against row", "against global"), title=f"{len(seeds)} seeds"
    )
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) if tiny else Path("runs/images").absolute()
        for problem, make in problems.items():
            base = cut_short(make()) if tiny else make()
            runs = trained(base, seeds, out)
            found = {arm: [100 * summary_of(runs[arm, seed])["top1"] for seed in seeds] for arm in ARMS}
            if problem == "digits":
                found["oracle"] = [
                    oracle(replace(base, train=replace(base.train, seed=seed)), 64 if tiny else None)
                    for seed in seeds
                ]
            for arm, values in found.items():
                against = (shown(np.subtract(values, found[other])) for other in ("row", "global"))
                table.add_row(problem, arm, shown(values), *against)
            alone = [told_by_the_order(runs["image", seed]) for seed in seeds]
            table.add_row(problem, "class by the order alone", shown(alone), "", "")
    base = anywhere()
    most = bound(*(side // base.model.patch_size for side in base.model.image_shape), SEEN)
    table.caption = f"one order shows at most {most:.1f} of a digit's {SIDE * SIDE} patches on average"
    return table
