"""Runs that several files of tests look at, made up or trained, and the end of those that a test began."""

import os
import signal
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image
from short_runs import QUIET, experiment
from tiny_sweeps import pids_of, training_in
from written_runs import GRID, make_run

from reorder.orders.files import save_order
from reorder.runs.directory import RunDir
from reorder.training import loop as training

os.environ["TRITON_INTERPRET"] = "1"  # its kernels run on the CPU; it looks at this when it is imported


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """Two fixed scans, the noise control and the learned order, with three seeds each."""
    root = tmp_path_factory.mktemp("sweep")
    for seed in range(3):
        make_run(root / "study" / f"row-{seed}", "row", "none", seed, 0.5)
        make_run(root / "study" / f"column-{seed}", "column", "none", seed, 0.9)
        make_run(root / "study" / f"noise-{seed}", "row", "noise", seed, 0.6)
        make_run(root / "study" / f"learned-{seed}", "row", "global", seed, 0.7)
    return root


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Two models with unequal seeds; of 60 images, 6 more that are right make 10 points."""
    root = tmp_path_factory.mktemp("study")
    right = {
        ("vit", "row", "none"): (30, 30, 36),
        ("vit", "column", "none"): (48, 42),  # the best, but for a seed that is missing
        ("vit", "spiral", "none"): (36, 36, 42),
        ("vit", "row", "noise"): (30, 36, 36),
        ("vit", "row", "global"): (42, 42, 42),
        ("vit", "learned", "none"): (48, 48, 48),
        ("mamba", "row", "none"): (24, 24, 24),
        ("mamba", "row", "global"): (36, 30),
    }
    for (model, start, policy), counts in right.items():
        for seed, count in enumerate(counts):
            name = str(root / f"vit-row-global-{seed}" / "order.json") if start == "learned" else start
            run = make_run(root / f"{model}-{start}-{policy}-{seed}", name, policy, seed, count, model)
            origin = {"scan": start, "policy": policy, "seed": seed}
            save_order(run.path / "order.json", torch.tensor(run.summary()["order"]), GRID, origin)
    return root


@pytest.fixture
def nothing_trains_on(tmp_path):
    """Kill what a test that fails would leave behind: trainings, and the jobs that would start them again."""
    yield
    while found := [*pids_of(f"{tmp_path}", "submitit"), *training_in(tmp_path)]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The run that nothing happened to."""
    directory = RunDir(tmp_path_factory.mktemp("whole") / "run")
    training.train(experiment(), directory, QUIET)
    return directory


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """64 training and 8 validation images of two classes, told apart by their brightness."""
    root, draw = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for split, count in (("train", 32), ("val", 4)):
        for number, name in enumerate(("dark", "light")):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                pixels = draw.integers(120 * number, 120 * number + 136, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{index}.png")
    return root
