"""A short run, what it leaves, and a signal that stops it."""

import os
import signal

import numpy as np
import torch
from safetensors.torch import load_file

from reorder.config import Data, Experiment, Model, Order, Train
from reorder.data.progress import Display
from reorder.training import loop as training

QUIET = Display(quiet=True)
TIMES = ("images_per_second", "seconds", "wall_seconds")  # of a line or summary: no two runs share them


def experiment(**changes):
    return Experiment(
        model=Model(name="transformer_xl", size="mini", image_size=8, patch_size=4, options={"dropout": 0.0}),
        data=Data(augment="flip"),
        train=Train(
            **({"epochs": 3, "batch_size": 256, "learning_rate": 2e-3, "warmup_epochs": 0.5} | changes)
        ),
        order=Order(scan="column", policy="global", estimator="scaled", learning_rate=0.05),
    )


OVERRIDES = [
    "model.patch_size=4",
    "model.options.dropout=0.0",
    "data.augment=flip",
    "train.epochs=3",
    "train.batch_size=256",
    "train.learning_rate=2e-3",
    "train.warmup_epochs=0.5",
    "train.compare=false",
    "order.scan=column",
    "order.estimator=scaled",
    "order.learning_rate=0.05",
]


def weights(directory):
    newest = (directory.path / "checkpoints" / "latest").read_text()
    return load_file(directory.path / "checkpoints" / newest / "weights.safetensors")


def without_times(lines):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def assert_same(directory, whole):
    ours, theirs = weights(directory), weights(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(directory.policy().logits, whole.policy().logits)
    assert without_times(directory.metrics()) == without_times(whole.metrics())
    (ours,), (theirs,) = without_times([directory.summary()]), without_times([whole.summary()])
    assert ours == theirs
    assert np.array_equal(np.load(directory.path / "correct.npy"), np.load(whole.path / "correct.npy"))


def stop_after(monkeypatch, steps):
    """Have a signal come when so many steps are done."""
    step = training.train_step

    def signalled(run, images, labels):
        step(run, images, labels)
        if run.step == steps:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(training, "train_step", signalled)


def on_pictures(root, *more):
    """The arguments of a short run on images that are decoded from the disk."""
    data = ["data.name=image_folder", f"data.root={root}", "model.image_size=16", "model.patch_size=8"]
    length = ["train.epochs=4", "train.batch_size=8", "train.compare=false", "data.workers=2"]
    return ["train", "digits", *data, *length, *more]
