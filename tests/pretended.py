"""Runs that are not trained: what they would leave, from how good their order is said to be."""

import torch

from reorder.orders.named import starting_order

IMAGES = 200


def pretend(quality, own=None):
    """A way to train that counts the runs, by name and epochs; `quality` of an order (N,) is its top-1.

    `own` is that of runs in which each image has its own order.
    """
    calls = []

    def train(tasks):
        for task in tasks:
            if not task.finished:
                calls.append((task.experiment.order.scan.split("/")[-1], task.experiment.train.epochs))
                has_own = task.experiment.order.policy == "image"
                write(task, (lambda order: own) if has_own else quality)

    train.calls = calls
    return train


def write(task, quality):
    """The small files of a finished run; the policy of one that learns ends with row-major turned around."""
    experiment, directory = task.experiment, task.directory
    grid = tuple(side // experiment.model.patch_size for side in experiment.model.image_shape)
    order = starting_order(experiment.order.scan, grid, experiment.train.seed)
    if experiment.order.policy == "global":
        order = torch.arange(grid[0] * grid[1]).flip(0)
    correct = torch.arange(experiment.data.held_out or IMAGES) < round(
        quality(order) * (experiment.data.held_out or IMAGES)
    )
    directory.create(experiment)
    directory.write_correct(correct)
    directory.write_policy([(0.0, "before training", 0.0, torch.empty(0))], order)
    line = {"epoch": 1, "validation_top1": 0.5, "validation_loss": 1.0}
    directory.write_metrics([line | {"epoch": e + 1} for e in range(experiment.train.epochs)])
    (directory.path / "checkpoints").mkdir(exist_ok=True)
    directory.write_summary(
        {
            "model": experiment.model.name,
            "size": experiment.model.size,
            "data": experiment.data.name,
            "grid": list(grid),
            "scan": experiment.order.scan,
            "policy": experiment.order.policy,
            "epochs": experiment.train.epochs,
            "seed": experiment.train.seed,
            "top1": correct.double().mean().item(),
            "top1_sem": 0.03,
            "top5": 1.0,
            "loss": 2.0 - correct.double().mean().item(),
            "validation_images": len(correct),
            "parameters": 1000,
            "images_per_second": 100.0,
            "seconds": 1.0,
            "order": order.tolist(),
        }
    )
