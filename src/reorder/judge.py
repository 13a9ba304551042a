"""Judging finished work: a run's last checkpoint on validation images, and one run against another."""

import dataclasses
import hashlib
import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reorder import order as orders
from reorder.config import Experiment, build, images_of
from reorder.distributed import World, wait_for_all
from reorder.evaluate import PairedDifference, bootstrap, paired_difference
from reorder.files import replace_file, replacing, temporary_name
from reorder.learner import OrderLearner, random_order
from reorder.run import Run, learner_of, load_tensors, restore_stages, setup, unwrapped
from reorder.run_dir import RunDir, fitting
from reorder.scans import SCANS
from reorder.schemas import read
from reorder.tables import Cell, Number, PValue, Table, write_table
from reorder.train import validate

# N patches, n images

logger = logging.getLogger(__name__)


def load_run(directory: RunDir, experiment: Experiment | None = None, world: World | None = None) -> Run:
    """A run's model and learner as its last checkpoint left them; an experiment with other data may be given.

    Other data are prepared as they would be for training.
    """
    own = directory.experiment()
    checkpoint, damaged = directory.load_checkpoint()
    for name in damaged:
        logger.warning("%s/checkpoints/%s is damaged; using the one before", directory.path, name)
    if checkpoint is None:
        raise ValueError(
            f"{directory.path} has no checkpoint yet; train it with: reorder train --resume {directory.path}"
        )
    tensors, state = checkpoint
    experiment = experiment or own
    if experiment.train.precision == "float16" and (world is None or world.device.type == "cpu"):
        experiment = dataclasses.replace(
            experiment, train=dataclasses.replace(experiment.train, precision="float32")
        )
    run = setup(experiment, world, directory.prior())
    model = unwrapped(run.model)
    with fitting(directory):
        classes, channels = len(tensors["model.head.bias"]), model.tokens.image_shape[0]
        pixels = tensors["model.tokens.patch_embed.proj.weight"].shape[1]
    trained_channels = pixels // own.model.patch_size**2
    if (classes, trained_channels) != (model.head.out_features, channels):
        raise ValueError(
            f"data.name={run.experiment.data.name} has {model.head.out_features} classes and {channels} "
            f"channels; the model of {directory.path} knows {classes} and {trained_channels}"
        )
    if isinstance(run.learner, OrderLearner) and "start_step" not in state:
        run.learner = learner_of(own, model.grid, run.initial, _total_steps(run, own, state))
    with fitting(directory):
        load_tensors(run, tensors)
    restore_stages(run.learner, state)
    run.step = state["step"]
    return run


def _total_steps(run: Run, own: Experiment, state: dict[str, Any]) -> int:
    """The steps of the whole run, by its own data, for an older checkpoint that does not say its stages."""
    if state["metrics"]:
        last = state["metrics"][-1]
        return own.train.epochs * (last["step"] // last["epoch"])
    return setup(dataclasses.replace(run.experiment, data=own.data), run.world, run.prior).total_steps


def evaluate_run(
    directory: RunDir, order_file: Path | None, overrides: list[str], world: World | None = None
) -> tuple[Path, dict[str, Any]]:
    """Evaluate a run's last checkpoint, in its own order and on its own data unless others are given.

    The result and the correctness of each image go to a directory in the run's evaluations, named after what
    was evaluated; one that exists is read, not written. Returns that directory and the result.
    """
    run = _load_with_data(directory, overrides, world)
    if order_file is None:
        return _evaluate(directory, run, run.learner.order(run.step - 1), "own")
    return _evaluate(
        directory, run, orders.load(order_file, unwrapped(run.model).grid).order, order_file.stem
    )


def _load_with_data(directory: RunDir, overrides: list[str], world: World | None) -> Run:
    """A run's last checkpoint, with other data if there are overrides."""
    for override in overrides:
        if "=" not in override:
            raise ValueError(f"--data takes key=value, such as root=DIR, got {override!r}")
    changes = [f"data.{override.removeprefix('data.')}" for override in overrides]
    return load_run(directory, build(directory.experiment(), overrides=changes), world)


def _evaluate(directory: RunDir, run: Run, order: Tensor, name: str) -> tuple[Path, dict[str, Any]]:
    """The directory and result of a named order (N,), measured unless it was before."""
    about = {
        "data": dataclasses.asdict(run.experiment.data),
        "step": run.step,
        "order": order.tolist(),
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


def _measure(run: Run, order: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """Correctness (n,) of the validation images read in an order (N,), and what it amounts to."""
    result = validate(run, order)
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

    If another process has written them meanwhile, they stand: the name says that it has evaluated the same.
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
    grid = unwrapped(run.model).grid
    own = run.learner.order(run.step - 1).cpu()
    tried = {"own": own, **{name: scan(*grid) for name, scan in SCANS.items()}}
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
        tau = Number(orders.kendall_tau(tried[name], own))
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
    for key, (first, second) in found.items():
        if first != second and key not in TRAINING_ONLY:
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
