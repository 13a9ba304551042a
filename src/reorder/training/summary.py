"""What a finished run amounts to, and the files that say so."""

from typing import Any

import torch
from torch import Tensor

from reorder.data.inputs import pixels_of
from reorder.models.accuracy import Evaluation, Seen, own_orders
from reorder.orders.distances import agreement, kendall_tau, share_by_class
from reorder.orders.files import load_order, save_order
from reorder.runs.directory import RunDir
from reorder.runs.read_images import ReadImages
from reorder.runs.statistics import bootstrap_sem
from reorder.training.state import Run, unwrapped
from reorder.training.validation import validate

MOST_IMAGES = 1_000  # of one process, whose own orders are compared
MOST_KEPT = 12  # of these, for a page to show


def finish(run: Run, directory: RunDir) -> dict[str, Any]:
    """Evaluate with the order found and write the results."""
    order = run.learner.order(run.total_steps - 1)
    # A run that was stopped at its end has to look again.
    result = run.validation or validate(run, run.learner.reading(run.total_steps - 1))
    seen = images_seen(run)
    summary = summarise(run, result, order, seen)
    if run.world.first:
        directory.write_correct(result.correct)
        directory.write_sample(run.loader.sample())
        directory.write_metrics(run.metrics)
        directory.write_policy(run.moments, run.initial)
        if seen is not None:
            data = run.loader.dataset
            kept = pixels_of(seen.images, data.mean, data.deviation)
            directory.write_own_orders(ReadImages.of(kept, seen.orders[: len(kept)]))
        keys = ("model", "data", "scan", "policy", "epochs", "seed", "top1")
        save_order(
            directory.path / "order.json", order, unwrapped(run.model).grid, {k: summary[k] for k in keys}
        )
        directory.write_summary(summary)
    return summary


def images_seen(run: Run) -> Seen | None:
    """Of a run whose images have their own orders, some of them with these."""
    own = run.learner.reading(run.total_steps - 1)
    if isinstance(own, Tensor):
        return None
    model: Any = run.ema.module if run.ema is not None else unwrapped(run.model)
    return own_orders(model, run.loader, own, run.world.device, MOST_IMAGES, MOST_KEPT)


def between_images(seen: Seen) -> dict[str, float]:
    """How far the orders of images agree, and what classes explain of them."""
    return {
        "own_orders_tau": agreement(seen.orders),
        "own_orders_by_class": share_by_class(seen.orders, seen.labels),
    }


def summarise(run: Run, result: Evaluation, order: Tensor, seen: Seen | None) -> dict[str, Any]:
    experiment, scan = run.experiment, run.experiment.order.scan
    trained = run.step * experiment.train.batch_size
    return {
        "model": experiment.model.name,
        "size": experiment.model.size,
        "data": experiment.data.name,
        "grid": list(unwrapped(run.model).grid),
        "scan": scan,
        **({"order_file": load_order(scan).provenance} if scan.endswith(".json") else {}),
        **({"prior_scan": run.prior["chosen"]["scan"]} if run.prior else {}),
        "policy": experiment.order.policy,
        "epochs": experiment.train.epochs,
        "seed": experiment.train.seed,
        "top1": result.top1,
        "top1_sem": bootstrap_sem(
            result.correct, generator=torch.Generator().manual_seed(experiment.train.seed)
        ),
        "top5": result.top5,
        "loss": result.loss,
        "validation_images": len(result.correct),
        "kendall_tau_from_start": kendall_tau(order, run.initial),
        **(between_images(seen) if seen is not None else {}),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "skipped_steps": run.skipped,
        "broken_images": len(run.loader.broken),
        "images_per_second": trained / run.seconds,
        "seconds": run.seconds,
        "wall_seconds": run.wall_seconds,
        "order": order.tolist(),
    }
