"""Made-up run directories in the real format, written in milliseconds."""

import numpy as np
import pytest
import torch

from reorder.config import Data, Experiment, Model, Order, Train
from reorder.orders.scans import scan
from reorder.runs.directory import RunDir
from reorder.runs.read_images import ReadImages


def stages_of(epochs):
    """Two epochs of warm-up, then policy until the last fifth, then frozen."""
    stop = epochs - epochs // 5
    return ["warm-up" if e < 2 else "policy" if e < stop else "frozen" for e in range(epochs)]


def moments_of(stages, looks):
    """When policies are kept, and the stage before: after every epoch, or `looks` times while they learn."""
    return [(0.0, "before training")] + [
        (epoch + part, stage)
        for epoch, stage in enumerate(stages)
        for part in ((np.arange(looks) + 1) / looks if stage == "policy" else (1.0,))
    ]


def made_up_images(grid, seed, count=3):
    """Images, the same for all seeds, and an order of each."""
    rows, columns = grid
    images = torch.arange(count * 4 * rows * columns).view(count, 1, 2 * rows, 2 * columns).to(torch.uint8)
    noise = np.random.default_rng(seed)
    orders = np.stack([noise.permutation(rows * columns) for _ in range(count)])
    return ReadImages.of(images, torch.from_numpy(orders))


def made_up_logits(initial, stages, seed, learns):
    """Logits (E + 1, N) that start at the initial order and move, if at all, in the policy stage."""
    noise = np.random.default_rng(seed)
    logits = np.empty(len(initial), np.float32)
    logits[initial] = np.linspace(0, -1, len(initial))
    steps = [noise.normal(0, 0.1 * (learns and stage == "policy"), len(initial)) for stage in stages]
    return (logits + np.concatenate([np.zeros((1, len(initial))), np.cumsum(steps, 0)])).astype(np.float32)


@pytest.fixture(scope="session")
def make_run():
    """A function that writes a finished run directory."""

    def write(path, policy="global", order="spiral", epochs=10, grid=(4, 5), seed=0, sample=False, looks=2):
        rows, columns = grid
        experiment = Experiment(
            Model("vit", "mini", [2 * rows, 2 * columns], 2),
            Data("digits"),
            Train(epochs=epochs, seed=seed),
            Order(
                scan=order,
                policy=policy,
                warmup_fraction=min(2, epochs) / epochs,
                policy_fraction=max(0, epochs - epochs // 5 - 2) / epochs,
            ),
        )
        run, initial = RunDir(path), scan(order, rows, columns)
        draws = policy in ("global", "image", "noise")
        fixed = "random" if policy == "random" else "fixed"
        stages = stages_of(epochs) if draws else [fixed] * epochs
        moments = moments_of(stages, looks)
        logits = np.empty((len(moments), 0))
        if draws:
            before = [stage for _, stage in moments[1:]]
            logits = made_up_logits(initial.numpy(), before, seed, learns=policy != "noise")
        run.create(experiment)
        run.write_metrics(
            [
                {
                    "epoch": epoch + 1,
                    "stage": stage,
                    "temperature": 0.1 * (stage == "policy"),
                    "validation_top1": 0.1 + 0.08 * epoch / epochs + seed / 1000,
                    "validation_loss": 2.5 - epoch / epochs,
                }
                for epoch, stage in enumerate(stages)
            ]
        )
        run.write_policy(
            [
                (epoch, stage, 0.1 * (stage == "policy"), torch.from_numpy(values))
                for (epoch, stage), values in zip(moments, logits, strict=True)
            ],
            initial,
        )
        run.write_summary(
            {
                "model": "vit",
                "size": "mini",
                "grid": list(grid),
                "scan": order,
                "policy": policy,
                "epochs": epochs,
                "seed": seed,
                "top1": 0.2,
                "top1_sem": 0.01,
                "top5": 0.6,
                "images_per_second": 100.0,
                "parameters": 1000,
                "seconds": 60.0,
                "order": np.argsort(-logits[-1], kind="stable").tolist() if logits.size else initial.tolist(),
            }
        )
        if policy == "image":
            run.write_own_orders(made_up_images(grid, seed))
        if sample:
            run.write_sample(
                torch.arange(4 * rows * columns, dtype=torch.uint8).view(1, 2 * rows, 2 * columns)
            )
        return run

    return write
