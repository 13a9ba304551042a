"""Training runs: what they leave behind, that they repeat, and that they continue."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import reorder
from reorder import order as orders
from reorder import train as training
from reorder.config import Data, Experiment, Model, Order, Train
from reorder.display import Display
from reorder.run_dir import RunDir

QUIET = Display(quiet=True)


def experiment(**order):
    return Experiment(
        model=Model(name="transformer_xl", size="mini", image_size=8, patch_size=4),
        data=Data(augment="none"),
        train=Train(epochs=4, batch_size=256, learning_rate=2e-3, warmup_epochs=0.5),
        order=Order(**({"scan": "column", "policy": "global", "learning_rate": 0.05} | order)),
    )


def weights(directory):
    (file,) = directory.path.glob("checkpoints/*/weights.safetensors")
    return load_file(file)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = RunDir(tmp_path_factory.mktemp("runs") / "a")
    training.train(experiment(), directory, QUIET)
    return directory


def test_a_run_directory_holds_what_it_should(finished):
    summary = json.loads((finished.path / "summary.json").read_text())
    correct = np.load(finished.path / "correct.npy")
    assert correct.dtype == bool
    assert correct.shape == (360,)
    assert summary["top1"] == pytest.approx(correct.mean())
    assert (
        0.5 * summary["top1_sem"]
        < (summary["top1"] * (1 - summary["top1"]) / 360) ** 0.5
        < 2 * summary["top1_sem"]
    )
    assert summary["top1"] <= summary["top5"] <= 1
    assert summary["parameters"] == sum(p.numel() for p in training.setup(experiment()).model.parameters())
    assert summary["images_per_second"] > 0
    assert finished.experiment() == experiment()
    lines = finished.metrics()
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["step"] for line in lines] == [5, 10, 15, 20]
    # 20 steps: warm-up up to step 3, policy from 3 up to 9, then frozen; a line speaks of its last step.
    assert [line["stage"] for line in lines] == ["policy", "frozen", "frozen", "frozen"]
    logits, initial = finished.policy()
    assert logits.shape == (5, 4)
    assert initial.tolist() == [0, 2, 1, 3]
    assert np.argsort(-logits[0], kind="stable").tolist() == [0, 2, 1, 3]
    assert np.argsort(-logits[-1], kind="stable").tolist() == summary["order"]
    assert not np.array_equal(logits[0], logits[1])
    assert np.array_equal(logits[2], logits[4])
    shared = orders.load(finished.path / "order.json", grid=(2, 2))
    assert shared.order.tolist() == summary["order"]
    assert shared.provenance["scan"] == "column"


def test_training_learns_to_classify(tmp_path):
    longer = replace(experiment(), train=replace(experiment().train, epochs=25, batch_size=64))
    assert training.train(longer, RunDir(tmp_path / "run"), QUIET)["top1"] > 0.8


def test_one_seed_gives_identical_weights_and_order(finished, tmp_path):
    again = RunDir(tmp_path / "again")
    training.train(experiment(), again, QUIET)
    ours, theirs = weights(finished), weights(again)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.summary()["order"] == finished.summary()["order"]
    other = RunDir(tmp_path / "other")
    training.train(replace(experiment(), train=replace(experiment().train, seed=1)), other, QUIET)
    assert not torch.equal(weights(other)["model.head.weight"], ours["model.head.weight"])


def test_an_interrupted_run_continues_to_the_same_result(finished, tmp_path, monkeypatch):
    directory = RunDir(tmp_path / "run")
    epoch = training.train_epoch

    def interrupted(run, progress):
        if run.epoch == 2:
            raise KeyboardInterrupt
        return epoch(run, progress)

    monkeypatch.setattr(training, "train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.train(experiment(), directory, QUIET)
    assert directory.summary() is None
    monkeypatch.setattr(training, "train_epoch", epoch)
    training.train(experiment(), directory, QUIET)
    ours, theirs = weights(finished), weights(directory)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(directory.policy()[0], finished.policy()[0])
    changing = ("images_per_second",)
    for line, other in zip(directory.metrics(), finished.metrics(), strict=True):
        assert {k: v for k, v in line.items() if k not in changing} == {
            k: v for k, v in other.items() if k not in changing
        }


def test_a_finished_run_is_not_trained_again(finished):
    before = (finished.path / "summary.json").stat().st_mtime_ns
    assert training.train(experiment(), finished, QUIET) == finished.summary()
    assert (finished.path / "summary.json").stat().st_mtime_ns == before


def test_directories_of_others_are_left_alone(finished, tmp_path):
    before = sorted((p, p.stat().st_mtime_ns) for p in finished.path.rglob("*"))
    with pytest.raises(ValueError, match="holds a run of another configuration"):
        training.train(experiment(scan="row"), finished, QUIET)
    assert sorted((p, p.stat().st_mtime_ns) for p in finished.path.rglob("*")) == before
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="exists and is not a run directory"):
        training.train(experiment(), RunDir(tmp_path), QUIET)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_configuration_that_cannot_run_writes_nothing(tmp_path):
    bad = replace(experiment(), model=replace(experiment().model, patch_size=3))
    with pytest.raises(ValueError, match="image size 8x8 is not divisible by patch size 3"):
        training.train(bad, RunDir(tmp_path / "run"), QUIET)
    assert not (tmp_path / "run").exists()


def test_a_fixed_order_is_read_from_the_first_step_and_can_come_from_a_file(tmp_path):
    order = torch.tensor([3, 1, 0, 2])
    orders.save(tmp_path / "mine.json", order, (2, 2), {})
    run = training.setup(experiment(scan=str(tmp_path / "mine.json"), policy="none"))
    assert torch.equal(run.learner.sample(0), order)
    orders.save(tmp_path / "other.json", torch.arange(6), (2, 3), {})
    with pytest.raises(ValueError, match="is for a 2x3 grid, but a 2x2 grid is read"):
        training.setup(experiment(scan=str(tmp_path / "other.json")))


def test_the_model_reads_each_batch_in_the_learners_order(monkeypatch, tmp_path):
    read = []
    original = reorder.Classifier.forward

    def spy(self, images, order=None):
        if self.training:
            read.append(order.tolist())
        return original(self, images, order)

    monkeypatch.setattr(reorder.Classifier, "forward", spy)
    training.train(experiment(temperature=5.0), RunDir(tmp_path / "run"), QUIET)
    assert read[:3] == [[0, 1, 2, 3]] * 3  # warm-up: row-major
    assert read[3] == [0, 2, 1, 3]  # temperature 0: the initial column scan
    assert len(set(map(tuple, read[3:9]))) > 1
    assert read[9:] == [read[9]] * 11  # frozen


def test_the_comparison_trains_row_major_the_initial_scan_and_the_policy(tmp_path):
    short = replace(experiment(), train=replace(experiment().train, epochs=1, compare=True))
    runs = training.train_with_comparison(short, RunDir(tmp_path / "run"), QUIET)
    got = [(run.summary()["scan"], run.summary()["policy"], run.summary()["epochs"]) for run in runs]
    assert got == [("row", "none", 1), ("column", "none", 1), ("column", "global", 1)]
    assert {run.summary()["seed"] for run in runs} == {0}
    assert runs[0].summary()["order"] == [0, 1, 2, 3]
    again = training.train_with_comparison(short, RunDir(tmp_path / "run"), QUIET)
    assert [run.path for run in again] == [run.path for run in runs]
