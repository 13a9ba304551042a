"""The small files of finished runs, as training writes them."""

import numpy as np
import torch

from reorder.config import Data, Experiment, Model, Order, Train
from reorder.orders.files import load_order
from reorder.orders.scans import scan
from reorder.runs.directory import RunDir

IMAGES, GRID = 60, (4, 4)


def make_run(path, scan_name="row", policy="none", seed=0, accuracy=0.5, model="vit", epochs=3, **order):
    """The small files of a finished run, as training writes them; as many images right, or at random."""
    experiment = Experiment(
        Model(model, "mini", 8, 2),
        Data("digits"),
        Train(epochs=epochs, seed=seed),
        Order(scan=scan_name, policy=policy, **order),
    )
    run = RunDir(path)
    run.create(experiment)
    generator = torch.Generator().manual_seed(seed + 10 * len(scan_name + policy))
    correct = torch.rand(IMAGES, generator=generator) < accuracy
    if isinstance(accuracy, int):
        correct = torch.arange(IMAGES) < accuracy
    saved = load_order(scan_name) if scan_name.endswith(".json") else None
    initial = saved.order if saved else scan(scan_name, *GRID)
    start = torch.empty(16)
    start[initial] = torch.linspace(0, -1, 16)
    moved = start + 0.3 * torch.randn(16, generator=generator) * (policy == "global")
    draws = policy in ("global", "noise")
    stages = ["warm-up", "policy", "frozen"] if draws else ["random" if policy == "random" else "fixed"] * 3
    temperatures = [0.1 * (stage == "policy") for stage in stages]
    run.write_metrics(
        [
            {
                "epoch": e + 1,
                "stage": stage,
                "temperature": temperatures[e],
                "kendall_tau_from_start": 1.0,
                "validation_top1": 0.1 * e,
                "validation_loss": 2.0 - e,
            }
            for e, stage in enumerate(stages)
        ]
    )
    logits = [start, start, moved, moved] if draws else [torch.empty(0)] * 4
    when = zip(range(4), ["before training", *stages], [0.0, *temperatures], logits, strict=True)
    run.write_policy(list(when), initial)
    run.write_correct(correct)
    value = correct.double().mean().item()
    summary = {"model": model, "size": "mini", "data": "digits", "grid": GRID, "scan": scan_name}
    summary |= {
        "policy": policy,
        "epochs": epochs,
        "seed": seed,
        "top1": value,
        "top1_sem": 0.06,
        "top5": 1.0,
    }
    summary |= {"parameters": 1000, "images_per_second": 100.0, "seconds": 60.0}
    summary |= {"order_file": saved.provenance} if saved else {}
    run.write_summary(summary | {"order": moved.argsort(descending=True, stable=True).tolist()})
    return run


def correct_of(root, name):
    return np.stack([np.load(root / "study" / f"{name}-{seed}" / "correct.npy") for seed in range(3)])
