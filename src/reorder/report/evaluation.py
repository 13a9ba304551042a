"""How good a run is: its last checkpoint on validation images, and one run against another."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reorder.config import build, images_of
from reorder.data.ranks import World, wait_for_all
from reorder.orders.disk import replace_file, replacing, temporary_name
from reorder.orders.distances import kendall_tau
from reorder.orders.files import load_order
from reorder.orders.image_policy import OwnOrders
from reorder.orders.named import random_order
from reorder.orders.scans import SCANS
from reorder.report.tables import Cell, Number, PValue, Table, write_table
from reorder.runs.directory import RunDir
from reorder.runs.schemas import read
from reorder.runs.statistics import PairedDifference, bootstrap, paired_difference
from reorder.runs.trained import Trained, load_trained

# N patches, n images


def evaluate_run(
    directory: RunDir, order_file: Path | None, overrides: list[str], world: World | None = None
) -> tuple[Path, dict[str, Any]]:
    """Evaluate a run's last checkpoint, in its own order and on its own data unless others are given.

    The result and the correctness of each image go to a directory in the run's evaluations, named after what
    was evaluated; one that exists is read, not written. Returns that directory and the result.
    """
    run = _load_with_data(directory, overrides, world)
    if order_file is None:
        return _evaluate(directory, run, run.reading, "own")
    return _evaluate(directory, run, load_order(order_file, run.model.grid).order, order_file.stem)


def _load_with_data(directory: RunDir, overrides: list[str], world: World | None) -> Trained:
    """A run's last checkpoint, with other data if there are overrides."""
    for override in overrides:
        if "=" not in override:
            raise ValueError(f"--data takes key=value, such as root=DIR, got {override!r}")
    changes = [f"data.{override.removeprefix('data.')}" for override in overrides]
    return load_trained(directory, build(directory.experiment(), overrides=changes).data, world)


def _evaluate(
    directory: RunDir, run: Trained, order: Tensor | OwnOrders, name: str
) -> tuple[Path, dict[str, Any]]:
    """The directory and result of a named order (N,), or of the images' own, measured unless it is there."""
    about = {
        "data": dataclasses.asdict(run.experiment.data),
        "step": run.step,
        "order": (order if isinstance(order, Tensor) else run.order).tolist(),
        **({} if isinstance(order, Tensor) else {"own_orders": True}),
    }
    label = f"{run.experiment.data.name}-{name}-step-{run.step}"
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    where = directory.path / "evaluations" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', label)}-{digest}"
    known = where.exists()
    wait_for_all()  # until every rank has looked
    if not known:
        measured = _measure(run, order)
        if run.world.first:
            _write(where, *measured, about)
        wait_for_all()
    return where, read(where / "result.json")


def _measure(run: Trained, order: Tensor | OwnOrders) -> tuple[Tensor, dict[str, Any]]:
    """Correctness (n,) of the validation images read in an order, and what it amounts to."""
    result = run.evaluate(order)
    numbers: dict[str, Any] = {
        "images": len(result.correct),
        "loss": result.loss,
        "loss_sem": result.loss_sem,
    }
    for name, correct in (("top1", result.correct), ("top5", result.correct5)):
        generator = torch.Generator().manual_seed(run.experiment.train.seed)
        spread = bootstrap(correct, generator=generator)
        numbers[name] = correct.double().mean().item()
        numbers[f"{name}_sem"], numbers[f"{name}_interval"] = spread.sem, [spread.low, spread.high]
    return result.correct, numbers


def _write(where: Path, correct: Tensor, numbers: dict[str, Any], about: dict[str, Any]) -> None:
    """Both files of an evaluation, whole or not at all.

    If another process has written them meanwhile, they are kept: the name says that it evaluated the same.
    """
    temporary = temporary_name(where)
    temporary.mkdir(parents=True)
    try:
        with replacing(temporary / "correct.npy") as file:
            np.save(file, correct.cpu().numpy())
        replace_file(temporary / "result.json", json.dumps(numbers | about, indent=1) + "\n")
        try:
            os.replace(temporary, where)
        except OSError:
            if not where.exists():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def order_sensitivity(directory: RunDir, overrides: list[str], world: World | None = None) -> Table:
    """How well a trained model reads in other orders than its own: the scans, its own reversed, a random one.

    Each is an evaluation like any other; the table goes to the run's evaluations as well, where reports find
    it, unless it is of other data.
    """
    run = _load_with_data(directory, overrides, world)
    grid = run.model.grid
    own = run.order
    tried: dict[str, Tensor | OwnOrders] = {
        "own": run.reading,
        **{name: scan(*grid) for name, scan in SCANS.items()},
    }
    # Not of the seed itself: order.scan=random has trained in that one.
    other = random_order(grid, run.experiment.train.seed + 1)
    tried |= {"own-reversed": own.flip(0), "random": other}
    found = {name: _evaluate(directory, run, order, name) for name, order in tried.items()}
    correct = {name: torch.from_numpy(read(where / "correct.npy")) for name, (where, _) in found.items()}
    rows: list[tuple[Cell, ...]] = []
    for name, (_, result) in found.items():
        generator = torch.Generator().manual_seed(0)
        paired = paired_difference(correct[name], correct["own"], generator=generator)
        change = Number(100 * paired.difference, 100 * paired.spread.sem)
        other_order = tried[name]
        tau = Number(kendall_tau(other_order, own) if isinstance(other_order, Tensor) else 1.0)
        accuracy = Number(100 * result["top1"], 100 * result["top1_sem"])
        step = Number(run.step, digits=0)
        rows.append((name, tau, accuracy, change, PValue(paired.p_value), step))
    table = Table(
        f"sensitivity-{images_of(run.experiment.data)}" if overrides else "sensitivity",
        f"Top-1 of {directory.path.name} after step {run.step} in other orders than its own. After ± stands "
        "the bootstrap standard error over the images, paired for differences; p is McNemar's.",
        ("order", "tau with own", "top-1 (%)", "against own (points)", "p", "step"),
        rows,
        ["tau is Kendall's: 1 for the same order, -1 for its reverse."],
    )
    if run.world.first:
        write_table(table, directory.path / "evaluations")
    return table


def describe_evaluation(result: dict[str, Any]) -> str:
    """The lines of text that a result amounts to."""
    lines = [f"{result['data']['name']}, {result['images']} images, after step {result['step']}"]
    for name, key in (("top-1", "top1"), ("top-5", "top5")):
        low, high = result[f"{key}_interval"]
        lines.append(
            f"{name} {100 * result[key]:.2f} ± {100 * result[f'{key}_sem']:.2f} % "
            f"(95% interval {100 * low:.2f} to {100 * high:.2f})"
        )
    return "\n".join([*lines, f"loss  {result['loss']:.4f} ± {result['loss_sem']:.4f}"])


# Keys that change nothing about which images a run is validated on.
TRAINING_ONLY = (
    "data.augment",
    "data.workers",
    "data.max_broken",
    "data.train_images",
    "data.train_list",
    "data.stream",
)


def compare_runs(a: RunDir, b: RunDir) -> PairedDifference:
    """The paired difference in top-1 of two finished runs that were validated on the same images."""
    ours, theirs = a.experiment().data, b.experiment().data
    found = {f"data.{key}": (value, getattr(theirs, key)) for key, value in dataclasses.asdict(ours).items()}
    found["data.root"] = images_of(ours), images_of(theirs)  # wherever they lie
    correct_a, correct_b = _correct(a), _correct(b)
    found["number of images"] = len(correct_a), len(correct_b)
    # Images that are held out of the training images depend on which these are.
    chosen = ("data.train_images", "data.train_list") if ours.held_out is not None else ()
    for key, (first, second) in found.items():
        if first != second and (key not in TRAINING_ONLY or key in chosen):
            raise ValueError(
                f"{a.path} and {b.path} have different validation sets: their {key} is {first} and {second}"
            )
    return paired_difference(correct_a, correct_b, generator=torch.Generator().manual_seed(0))


def _correct(run: RunDir) -> Tensor:
    """Correctness (n,) of a finished run's validation images."""
    if run.summary() is None:
        raise ValueError(f"{run.path} is not finished; continue it with: reorder train --resume {run.path}")
    return torch.from_numpy(run.correct())


def describe_difference(a: RunDir, b: RunDir, paired: PairedDifference) -> str:
    """The lines of text that a paired difference amounts to."""
    spread = paired.spread
    return (
        f"{a.path} minus {b.path}, top-1: {100 * paired.difference:+.2f} ± {100 * spread.sem:.2f} points "
        f"(95% interval {100 * spread.low:+.2f} to {100 * spread.high:+.2f})\n"
        f"only the first is right on {paired.only_a} images, only the second on {paired.only_b}\n"
        f"McNemar's test: p = {paired.p_value:.3g} ({paired.test})"
    )
