"""The drop-in of the README with its defaults, in a loop of one's own: what it gains, and what it costs.

leaky   16 patches, of which the 4 in the middle tell the class; the memory of a patch fades by a third with
        every slot, so that the best order reads these four last; 1,000 to 4,000 steps
gru     a GRU reads Fashion-MNIST in 7x7 patches; it remembers the whole image: there is little to gain

`row` and `best` are fixed orders, `learned` is the default learner in its run; `share` is what it reaches of
the way from row to best.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import reorder
from benchmarks.learners import shown
from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.orders.curriculum import learning_rate
from reorder.orders.read import Reading

# B images, N patches, D width

SEEDS = range(5)
STEPS = (1_000, 2_000, 4_000)
BATCH, TEST = 32, 4_000
CLASSES, WIDTH, MIDDLE = 10, 8, (5, 6, 9, 10)
CONTRAST = 0.7  # of what tells the class, where noise is 1
Batches = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]  # so many images and their labels


class LeakyMemory(nn.Module):
    """Images are tokens (B, N, WIDTH) already; the memory is a sum that fades by a third with every slot."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.1 * torch.randn(16, 64))
        self.embed, self.mix, self.head = nn.Linear(WIDTH, 64), nn.Linear(64, 64), nn.Linear(64, CLASSES)
        self.register_buffer("leak", (2 / 3) ** torch.arange(15, -1, -1.0)[:, None])

    def forward(self, images: Tensor, order: Reading) -> Tensor:
        tokens = F.gelu(self.embed(images) + self.positions)
        remembered = (self.leak * reorder.read(tokens, order)).sum(1)
        return self.head(F.gelu(self.mix(remembered)))


def middle_tells(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise, in whose four middle patches each class has its own pattern."""
    patterns = torch.randn(CLASSES, 4, WIDTH, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(CLASSES, (count,), generator=generator)
    images = torch.randn(count, 16, WIDTH, generator=generator)
    images[:, MIDDLE] += CONTRAST * patterns[labels]
    return images, labels


def garments(tiny: bool) -> tuple[Batches, tuple[Tensor, Tensor]]:
    """Batches of 10,000 training images, and the validation images."""
    settings = Data(name="idx", augment="none", train_images=10_000, validation_images=TEST)
    data = load_dataset(Data() if tiny else settings, (28, 28))
    images, tests = (
        data.inputs.prepare(torch.stack([split.read(n) for n in range(len(split))]).expand(-1, 3, -1, -1))
        for split in (data.train, data.validation)
    )

    def batch(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = torch.randint(len(images), (count,), generator=generator)
        return images[drawn], data.train.labels[drawn]

    return batch, (tests, data.validation.labels)


def gru() -> nn.Module:
    module = nn.GRU(48, 48, batch_first=True)
    return reorder.create_model(module, None, 28, 4, 1, CLASSES, pixel_norm=False)


def trained(
    model: nn.Module, reading: Tensor | reorder.OrderLearner, batches: Batches, steps: int, rate: float
) -> nn.Module:
    """The loop of the README, in a fixed order or with a learner, the model's rate on a cosine."""
    learner = reading if isinstance(reading, reorder.OrderLearner) else None
    groups: list[dict[str, object]] = [{"params": model.parameters()}]
    if learner is not None:
        groups.append({"params": learner.parameters(), "lr": learner.learning_rate})
    optimizer = torch.optim.AdamW(groups, lr=rate)
    generator = torch.Generator().manual_seed(torch.initial_seed() + 1)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate(step, steps // 20, steps, rate)
        images, labels = batches(BATCH, generator)
        order = reading if learner is None else learner.sample(step)
        losses = F.cross_entropy(model(images, order), labels, reduction="none")
        loss = losses.mean() + (0.0 if learner is None else learner.loss(losses))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def top1(model: nn.Module, order: Tensor, tests: tuple[Tensor, Tensor]) -> float:
    """In points."""
    images, labels = tests
    with torch.no_grad():
        right = [model(part, order).argmax(1) for part in images.split(500)]
    return 100 * (torch.cat(right) == labels).float().mean().item()


def compared(
    make: Callable[[], nn.Module], batches: Batches, tests: tuple[Tensor, Tensor],
    orders: dict[str, Tensor], steps: int, seed: int,
) -> dict[str, float]:  # fmt: skip
    """Top-1 of fixed orders, and of the default learner, with one seed."""
    side = round(len(orders["row"]) ** 0.5)
    learner = reorder.OrderLearner((side, side), total_steps=steps, seed=seed)
    found = {}
    for name, reading in {**orders, "learned": learner}.items():
        torch.manual_seed(seed)
        model = trained(make(), reading, batches, steps, rate=2e-3)
        found[name] = top1(model, learner.order() if name == "learned" else orders[name], tests)
    return found


def table(tiny: bool = False) -> Table:
    seeds, lengths = (SEEDS[:1], (20,)) if tiny else (SEEDS, STEPS)
    best = torch.tensor([patch for patch in range(16) if patch not in MIDDLE] + list(MIDDLE))
    leaky = {"row": torch.arange(16), "best": best}
    tests = middle_tells(TEST, torch.Generator().manual_seed(999))
    batches, garment_tests = garments(tiny)
    random = torch.randperm(49, generator=torch.Generator().manual_seed(1))
    fixed = {"row": torch.arange(49), "random": random}
    rows: dict[str, tuple] = {
        f"leaky, {steps:,} steps": (LeakyMemory, middle_tells, tests, leaky, steps) for steps in lengths
    }
    rows[f"gru, {lengths[0]:,} steps"] = gru, batches, garment_tests, fixed, lengths[0]
    table = Table("problem", "order", "top-1 (%)", "against row", "share", title=f"{len(seeds)} seeds")
    for problem, arguments in track(rows.items(), description="own loop", transient=True):
        runs = [compared(*arguments, seed) for seed in seeds]
        for name in runs[0]:
            gains = np.array([run[name] - run["row"] for run in runs])
            possible = np.array([run["best"] - run["row"] for run in runs]) if "best" in runs[0] else None
            share = "" if possible is None or name != "learned" else shown(gains / possible, 2)
            table.add_row(problem, name, shown([run[name] for run in runs]), shown(gains), share)
    return table
