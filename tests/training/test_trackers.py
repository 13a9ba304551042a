"""Trackers: that what we send arrives, read back from TensorBoard's files or seen by a stand-in service."""

import importlib.machinery
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from reorder.config import Experiment, Train
from reorder.training import trackers as track

pytestmark = pytest.mark.slow  # it trains, or starts processes


LINE = {"epoch": 2, "step": 20, "stage": "policy", "loss": 1.5, "top1": 0.25, "baseline": None}
NUMBERS = {"epoch": 2, "loss": 1.5, "top1": 0.25}
LOGITS = torch.tensor([0.0, -1.0, -0.5, -0.25, -0.75, -0.1])


def experiment(name):
    return Experiment(train=Train(track=name, seed=7))


def test_maps_are_coloured_from_dark_to_light_and_enlarged_without_blurring():
    drawn = track.pixels(np.array([[0.0, -1.0, -0.5]]))
    assert (drawn.dtype, drawn.shape) == (np.uint8, (224, 672, 3))
    cividis = [(253, 231, 55), (0, 34, 77), (124, 123, 120)]  # its ends and middle, as published
    for column, colour in enumerate(cividis):
        block = drawn[:, 224 * column : 224 * (column + 1)].reshape(-1, 3)
        assert (block == block[0]).all()
        assert np.abs(block[0].astype(int) - colour).max() <= 16
    assert len(np.unique(track.pixels(np.ones((300, 2))))) <= 3  # a flat map does not divide by zero


def test_a_missing_tracker_names_the_install_command(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("tensorboard", "wandb", "trackio"):
        with pytest.raises(ValueError, match=rf"{name} needs {name}: pip install 'reorder\[track\]'"):
            track.start(experiment(name), tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="unknown tracker 'mlflow'; choose from none, tensorboard"):
        track.check("mlflow")
    with pytest.raises(ValueError, match=r"train.track: unknown value 'mlflow'; choose from none, tensor"):
        Train(track="mlflow")


def test_every_name_that_the_configuration_accepts_is_a_tracker():
    for name in track.TRACKERS:
        assert Train(track=name).track == name


def test_none_tracks_nothing(tmp_path):
    tracker = track.start(experiment("none"), tmp_path)
    track.track_epoch(tracker, LINE, LOGITS, (2, 3))
    tracker.close()
    assert not list(tmp_path.iterdir())


def test_tensorboard_files_hold_what_was_sent(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for first_step, loss in ((0, 1.5), (20, 1.25)):  # killed, and resumed before step 20
        tracker = track.start(experiment("tensorboard"), tmp_path, first_step)
        if first_step == 0:
            track.track_epoch(tracker, LINE | {"step": 10}, LOGITS[:0], (2, 3))
        track.track_epoch(tracker, LINE | {"loss": loss}, LOGITS, (2, 3))
        tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == set(NUMBERS)
    assert sorted((event.step, event.value) for event in events.Scalars("loss")) == [(10, 1.5), (20, 1.25)]
    (image,) = events.Images("logits")
    assert (image.step, image.height, image.width) == (20, 224, 336)


class StandIn(types.ModuleType):
    """What Weights & Biases and trackio have in common, as far as we call it."""

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.started, self.sent, self.finished = [], [], 0

    def init(self, **settings):
        self.started.append(settings)

    def log(self, metrics, step):
        self.sent.append((metrics, step))

    def Image(self, value):
        return value

    def finish(self):
        self.finished += 1


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_services_are_sent_numbers_and_images_and_resume_under_one_identity(name, monkeypatch, tmp_path):
    service = StandIn(name)
    monkeypatch.setitem(sys.modules, name, service)
    run, other = tmp_path / "run", tmp_path / "other"
    for directory in (run, run, other):
        directory.mkdir(exist_ok=True)
        tracker = track.start(experiment(name), directory)
        track.track_epoch(tracker, LINE, LOGITS, (2, 3))
        tracker.close()
    assert service.finished == 3
    first, again, another = service.started
    assert first == again
    assert first["name"].startswith("run-")
    assert first["name"] != another["name"]
    assert first["config"]["train"]["seed"] == 7
    assert first["resume"] == "allow"
    if name == "wandb":
        assert first["name"] == f"run-{first['id']}"
    (metrics, step), (image, image_step) = service.sent[:2]
    assert (metrics, step, image_step) == (NUMBERS, 20, 20)
    assert image["logits"].shape == (224, 336, 3)


SEND = """
import sys, torch
from pathlib import Path
from reorder.training import trackers as track
from reorder.config import Experiment, Train
for step in (10, 20):  # stopped and resumed
    tracker = track.start(Experiment(train=Train(track=sys.argv[1])), Path(sys.argv[2]), step - 10)
    track.track_epoch(tracker, {"step": step, "stage": "policy", "loss": 1.5}, torch.arange(6.0), (2, 3))
    tracker.close()
"""


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_the_real_services_keep_what_was_sent_without_a_network(name, tmp_path):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    source = str(Path(track.__file__).parents[2])
    away = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    env = os.environ | away | {"PYTHONPATH": source}
    subprocess.run([sys.executable, "-c", SEND, name, str(tmp_path)], env=env, check=True, timeout=120)
    if name == "trackio":
        with sqlite3.connect(tmp_path / "trackio" / "reorder.db") as database:
            rows = database.execute("select step, metrics from metrics").fetchall()
        sent = [(step, json.loads(metrics)) for step, metrics in rows]
        assert [each for each in sent if "logits" not in each[1]] == [
            (10, {"loss": 1.5}),
            (20, {"loss": 1.5}),
        ]
    else:
        records = [path.read_bytes() for path in sorted(tmp_path.rglob("*.wandb"))]
        assert len(records) == 2
        assert all(b"loss" in record and b"1.5" in record for record in records)
    assert len(list(tmp_path.rglob("*.png"))) == 2


def test_metrics_that_are_no_numbers_are_left_out():
    metrics = {"loss": 1.5, "epoch": 2, "stage": "policy", "baseline": None, "done": True}
    assert track.numbers(metrics) == {"loss": 1.5, "epoch": 2}
