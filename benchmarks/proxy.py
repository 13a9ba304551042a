"""Does an order that wins in a small model, trained for a short time, win in a larger one trained longer?

A search is affordable at scale if it does: candidates are then ranked by a proxy. Twelve orders of
Fashion-MNIST in 7x7 patches, of which 14 can reach the answer, each trained in a model of width 64 for one
epoch and in one of width 192 for four, with other seeds; memory and data are alike. Spearman's correlation
of the two top-1, with a 95% interval over resampled orders. Runs are kept in runs/proxy, so that it goes on
where it was stopped.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks.learners import cut_short, task_of
from reorder.config import Data, Experiment
from reorder.data.progress import Display
from reorder.experiments.grids import tasks_of
from reorder.experiments.presets import with_order
from reorder.experiments.rungs import summary_of
from reorder.experiments.studies import Planned, stream
from reorder.experiments.trainers import on_this_machine
from reorder.orders.candidates import candidates
from reorder.orders.files import save_order

GRID = (7, 7)
ORDERS = 12
SMALL, LARGE = ("64/2/4", 1, 0), ("192/2/4", 4, 1)  # size, epochs, seed
RESAMPLES = 2000


def of_size(size: str, epochs: int, seed: int) -> Experiment:
    base = stream(7, 7, seed)
    rate = base.train.learning_rate if size == SMALL[0] else base.train.learning_rate / 2
    train = replace(base.train, epochs=epochs, learning_rate=rate)
    return replace(base, model=replace(base.model, size=size), train=train)


def interval(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The middle 95% of Spearman's correlation over resampled orders; a resample of one order has none."""
    random, found = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        drawn = random.integers(len(one), size=len(one))
        if len(set(drawn.tolist())) > 2:
            found.append(spearmanr(one[drawn], other[drawn]).statistic)
    low, high = np.nanquantile(found, [0.025, 0.975])
    return float(low), float(high)


def table(tiny: bool = False) -> Table:
    orders = candidates(GRID, 4 if tiny else ORDERS, seed=0)
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) if tiny else Path("runs/proxy").absolute()
        (out / "orders").mkdir(parents=True, exist_ok=True)
        plans = {}
        for name, order in orders.items():
            file = out / "orders" / f"{name}.json"
            save_order(file, order, GRID, {"candidate": name})
            for size in (SMALL, LARGE):
                base = cut_short(replace(of_size(*size), data=Data())) if tiny else of_size(*size)
                plans[name, size] = Planned(with_order(base, str(file)))
        with on_this_machine(None, Display(), "reorder bench proxy") as (train, _):
            train(tasks_of(list(plans.values()), out))
        found = {key: 100 * summary_of(task_of(plan, out).directory)["top1"] for key, plan in plans.items()}
    small, large = (np.array([found[name, size] for name in orders]) for size in (SMALL, LARGE))
    table = Table(
        "order", *(f"width {size[0].partition('/')[0]}, {size[1]} epochs" for size in (SMALL, LARGE))
    )
    for name, one, other in sorted(zip(orders, small, large, strict=True), key=lambda row: -row[2]):
        table.add_row(name, f"{one:.1f}", f"{other:.1f}")
    low, high = interval(small, large)
    rank = spearmanr(small, large).statistic
    table.caption = f"Spearman's correlation {rank:.2f}, 95% interval {low:.2f} to {high:.2f}"
    return table
