"""Which learner finds a good order, and what does it gain? All estimators, with equal image-forwards.

hidden     a hidden order of 49 or 196 patches, without a model: a loss is what the order costs, an image's
           own difficulty, 50 times as much, and its own preferences, 5 times as much; Kendall's tau with
           the hidden order. A learner by reward sees the losses, straight-through their gradient
clutter    a digit in clutter, of which the model sees 16 of 64 patches; top-1
R of N     Fashion-MNIST in 7x7 or 14x14 patches, of which R can reach the answer; top-1
mamba      the same, read by one scan of Mamba, whose memory fades; top-1
no gain    models that see every patch, whatever the order: a ViT, and the paper's Transformer-XL; top-1

`row`, the inward spiral, random orders and equal noise are the controls. A learner is measured in its run
and, as `+`, by its order read from the first step on; `searched` is the order that `reorder search` finds for
the cost of four trainings. All estimators are compared in clutter and on 14 of 49 patches, elsewhere the
default alone. Each seed has its own random order; there are 5 seeds, or 3 where only the default is tried on
models that see more than 6 patches and can gain.
Trained runs are kept in runs/laptop, beside those of `reorder sweep laptop/memory`, and searches in
runs/searches, so that the benchmark goes on where it was stopped; it takes hours. It draws build/memory.png:
top-1 against how much is seen.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.progress import track
from rich.table import Table

import reorder
from reorder.config import ESTIMATORS, PAPERS, Experiment
from reorder.data.progress import Display
from reorder.experiments.final import FOUND
from reorder.experiments.grids import Task, tasks_of
from reorder.experiments.here import Machine
from reorder.experiments.presets import demo, with_order
from reorder.experiments.rungs import Asked, Train, summary_of
from reorder.experiments.search import run_search
from reorder.experiments.studies import MEMORIES, Planned, plain_mamba, stream
from reorder.experiments.trainers import on_this_machine
from reorder.orders.distances import kendall_tau
from reorder.orders.order import invert
from reorder.runs.directory import RunDir

# K orders, N patches

SEEDS, FEW_SEEDS = range(5), range(3)
BUDGET = 4.0  # full trainings that a search may cost
IMAGES = 32  # in a step
BLOCKS = 2  # of the models that read a stream
FIGURE = Path("build/memory.png")
DRAWN = {"row": "row-major", "spiral": "inward spiral", "random": "a random order",
         "straight-through +": "learned, from the first step on", "searched": "searched"}  # fmt: skip
HIDDEN = {7: (300, 3_000), 14: (1_000,)}  # steps by the side of the grid
NOISE = 50  # an image's difficulty, in units of what a random order does
TASTE = 5  # how much more an image's own preferences do, which no order for all can follow


def hidden_order(estimator: str, side: int, steps: int, seed: int) -> float:
    """Kendall's tau with a hidden order after so many steps, from a row-major start."""
    patches, generator = side * side, torch.Generator().manual_seed(1000 + seed)
    target = torch.randperm(patches, generator=generator)
    # How far each patch is from its slot, 1 on average for a random order.
    cost = (torch.arange(patches)[:, None] - invert(target)).abs() / ((patches**2 - 1) / 3)
    shuffled = torch.stack([torch.randperm(patches, generator=generator) for _ in range(500)])
    unit = cost[torch.arange(patches), shuffled].sum(1).std()
    learner = reorder.OrderLearner(
        (side, side),
        "row",
        total_steps=steps,
        estimator=estimator,
        warmup_fraction=0,
        policy_fraction=1,
        seed=seed,
    )
    optimizer = torch.optim.AdamW(learner.parameters(), lr=learner.learning_rate, weight_decay=0)
    patch = torch.eye(patches)[None]  # a token names its patch
    for step in range(steps):
        orders = learner.sample(step)
        count = len(orders) if isinstance(orders, torch.Tensor) and orders.dim() == 2 else 1
        images = IMAGES // count
        taste = torch.randn(images, patches, patches, generator=generator) / patches**0.5
        read = reorder.read(patch.expand(count, -1, -1), orders)  # (K, slots, patches)
        effect = torch.einsum("kij,bij->kb", read, cost + TASTE * unit * taste)
        losses = effect + NOISE * unit * torch.randn(images, generator=generator)
        loss = losses.mean() + learner.loss(losses.squeeze(0))
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
    return kendall_tau(learner.order(), target)


def sees_all(name: str) -> Experiment:
    """A model of the paper, which sees every patch whatever the order."""
    base = stream(7, None)
    return replace(base, model=replace(base.model, name=name, options={"dropout": 0.0}))


def clutter() -> Experiment:
    """The demo on a smaller canvas, for a smaller model."""
    base = stream(7, 8)
    model = replace(base.model, image_size=32, patch_size=4)
    return replace(base, model=model, data=demo().data)


def reach_of(side: int, memory: int | None) -> int:
    """How many slots can reach the answer of two blocks that remember so many each."""
    return side * side if memory is None else BLOCKS * memory


class Problem(NamedTuple):
    make: Callable[[], Experiment]
    seeds: range = FEW_SEEDS
    estimators: tuple[str, ...] = ("straight-through",)
    search: bool = False


PROBLEMS = {
    "clutter": Problem(clutter, SEEDS, tuple(ESTIMATORS)),
    "6 of 49": Problem(partial(stream, 7, 3), SEEDS, search=True),
    "14 of 49": Problem(partial(stream, 7, 7), SEEDS, tuple(ESTIMATORS), search=True),
    "30 of 49": Problem(partial(stream, 7, 15), search=True),
    "49 of 49": Problem(partial(stream, 7, None)),
    "28 of 196": Problem(partial(stream, 14, 14), search=True),
    "60 of 196": Problem(partial(stream, 14, 30)),
    "120 of 196": Problem(partial(stream, 14, 60)),
    "196 of 196": Problem(partial(stream, 14, None)),
    "mamba, 49": Problem(partial(plain_mamba, 7), search=True),
    "mamba, 196": Problem(partial(plain_mamba, 14)),
    "no gain, vit": Problem(partial(sees_all, "vit"), SEEDS),
    "no gain, xl": Problem(partial(sees_all, "transformer_xl"), SEEDS),
}


def arms(problem: Problem) -> dict[str, Planned]:
    """The runs of a problem by what they read; `random` is another order for every seed."""
    base = replace(problem.make(), train=replace(problem.make().train, compare=False))
    found = {scan: Planned(with_order(base, scan)) for scan in ("row", "spiral", "random")}
    found["equal noise"] = Planned(with_order(base, "random", "noise"))
    if len(problem.estimators) > 1:
        found["straight-through from row"] = Planned(with_order(base, "row", "global"))
    for estimator in problem.estimators:
        start = "row" if ESTIMATORS[estimator] is PAPERS else "random"
        order = replace(base.order, scan=start, policy="global", estimator=estimator)
        learner = replace(base, order=order)
        found[estimator] = Planned(learner)
        found[f"{estimator} +"] = Planned(with_order(base, "row"), learned_from=learner)
    return found


def with_seed(plan: Planned, seed: int) -> Planned:
    return plan.changed(lambda run: replace(run, train=replace(run.train, seed=seed)))


Found = dict[str, dict[str, list[float]]]  # top-1 in points by problem, arm and seed


def trained(problems: dict[str, Problem], out: Path, change: Callable[[Experiment], Experiment]) -> Found:
    """What the runs of all problems and seeds reach; those that are finished are not trained again."""
    plans = {
        (name, arm, seed): with_seed(plan.changed(change), seed)
        for name, problem in problems.items()
        for arm, plan in arms(problem).items()
        for seed in problem.seeds
    }
    found: Found = {}
    with on_this_machine(None, Display(), "reorder bench learners") as (train, machine):
        train(tasks_of(list(plans.values()), out))
        for (name, arm, _), plan in plans.items():
            summary = task_of(plan, out).directory.summary()
            if summary is not None:
                found.setdefault(name, {}).setdefault(arm, []).append(100 * summary["top1"])
        for name, problem in problems.items():
            if problem.search:
                where = out.parent / "searches" / name.replace(" ", "-").replace(",", "")
                found[name]["searched"] = searched(change(problem.make()), where, train, machine)
    return found


def searched(base: Experiment, where: Path, train: Train, machine: Machine | None) -> list[float]:
    """What the order reaches that a search finds, trained as the others, by seed."""
    search = run_search(Asked(base, where, BUDGET, len(FEW_SEEDS), {}), train, machine, Display())
    runs = next(arm for arm in search.arms if arm.name == FOUND).runs
    return [100 * summary_of(RunDir(where / run))["top1"] for run in runs]


def task_of(plan: Planned, out: Path) -> Task:
    """A plan's own run, which stands behind what it needs."""
    return tasks_of([plan], out)[-1]


def shown(values: Sequence[float] | np.ndarray, digits: int = 1) -> str:
    """The mean over seeds and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"


def table(tiny: bool = False) -> Table:
    seeds = SEEDS[:1] if tiny else SEEDS
    table = Table("problem", "order", "tau or top-1", "against row", title=f"learners, {len(seeds)} seeds")
    hidden = [
        (side, steps, name) for side, lengths in HIDDEN.items() for steps in lengths for name in ESTIMATORS
    ]
    for side, steps, name in track(hidden, description="hidden orders", transient=True):
        taus = [hidden_order(name, side, 20 if tiny else steps, seed) for seed in seeds]
        table.add_row(f"hidden, {side}x{side}, {steps:,} steps", name, shown(taus, 2), "")
    with tempfile.TemporaryDirectory() as temporary:
        if tiny:
            some = Problem(clutter, seeds, estimators=("straight-through",))
            reached = trained({"clutter": some}, Path(temporary), cut_short)
        else:
            reached = trained(PROBLEMS, Path("runs/laptop").absolute(), lambda run: run)
            FIGURE.parent.mkdir(exist_ok=True)
            memory_figure(reached).savefig(FIGURE, dpi=150, bbox_inches="tight")
    for problem, found in reached.items():
        for arm, values in found.items():
            gains = [value - row for value, row in zip(values, found["row"], strict=False)]
            table.add_row(problem, arm, shown(values), shown(gains))
    return table


def memory_figure(found: Found) -> Figure:
    """Top-1 against how many slots can reach the answer, a line for each way to an order, grid by grid."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (side, memories) in zip(figure.subplots(1, 2), MEMORIES.items(), strict=True):
        for arm, label in DRAWN.items():
            reaches = [reach_of(side, memory) for memory in memories]
            points = [(reach, found.get(f"{reach} of {side * side}", {}).get(arm)) for reach in reaches]
            points = [(reach, np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values)))
                      for reach, values in points if values and len(values) > 1]  # fmt: skip
            if points:
                x, y, error = zip(*points, strict=True)
                axes.errorbar(x, y, error, marker="o", markersize=4, capsize=2, label=label)
        axes.set(title=f"{side} x {side} patches", xlabel="patches that are seen", xscale="log")
        axes.set_xticks(reaches, reaches)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("top-1 (%)")
    figure.axes[0].legend(frameon=False, loc="lower right")
    return figure


def cut_short(run: Experiment) -> Experiment:
    """An epoch of a few images."""
    data = replace(run.data, train_images=64, validation_images=20)
    return replace(run, data=data, train=replace(run.train, epochs=1, warmup_epochs=0.0))
