"""Learners in the engine: batches in parts, what a run refuses, and why the demo's row-major is at chance."""

import shutil
from dataclasses import replace

import pytest
import torch
from short_runs import QUIET, experiment, stop_after, weights

import reorder
from reorder.config import Order, build
from reorder.data.datasets import load_dataset
from reorder.experiments.presets import demo, digits
from reorder.models.classifier import model_of
from reorder.orders.distances import kendall_tau
from reorder.orders.files import load_order
from reorder.report.evaluation import evaluate_run
from reorder.report.own_orders import write_own_orders
from reorder.report.write import write_report
from reorder.runs.directory import RunDir
from reorder.training.loop import train
from reorder.training.setup import setup
from reorder.training.signals import Stopped
from reorder.training.step import train_step


def policy_run(*overrides):
    """A run that is in its policy stage, and a batch for it."""
    changes = ["order.warmup_fraction=0", "train.compare=false", "model.options.dropout=0", *overrides]
    run = setup(build(digits(), overrides=changes))
    run.step = 1
    return run, next(run.loader.epoch(0))


@pytest.mark.parametrize("policy", ["global", "image"])
@pytest.mark.parametrize("estimator", ["straight-through", "paired"])
def test_a_batch_in_parts_teaches_a_policy_the_same(estimator, policy):
    gradients = []
    for parts in (1, 2):
        changes = [f"order.estimator={estimator}", f"order.policy={policy}"]
        run, batch = policy_run(f"train.accumulate={parts}", *changes)
        train_step(run, *batch)
        gradients.append([parameter.grad for parameter in run.learner.policy.parameters()])
        assert gradients[-1][0].abs().max() > 0
        assert gradients[-1][-1].abs().max() > 0  # of the network: its last bias
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_step_moves_the_policy_by_its_learning_rate_and_a_frozen_one_does_not():
    run, batch = policy_run()
    before = run.learner.policy.logits.detach().clone()
    train_step(run, *batch)
    moved = (run.learner.policy.logits - before).abs().max().item()
    assert moved == pytest.approx(run.learner.learning_rate, rel=0.05)  # Adam's first step
    run.step, after = run.learner.stop_step, run.learner.policy.logits.detach().clone()
    train_step(run, *batch)
    assert torch.equal(run.learner.policy.logits, after)


def test_equal_noise_never_moves():
    run, batch = policy_run("order.policy=noise")
    before = run.learner.policy.logits.detach().clone()
    train_step(run, *batch)
    assert torch.equal(run.learner.policy.logits, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "estimator"),
    [("global", "straight-through"), ("image", "straight-through"), ("image", "paired")],
)
def test_a_run_that_was_stopped_while_it_learned_goes_on_to_the_bit(tmp_path, monkeypatch, policy, estimator):
    order = Order(
        scan="random", policy=policy, estimator=estimator, warmup_fraction=0.05, policy_fraction=0.4
    )
    plan = replace(experiment(ema=0.9), order=order)
    whole, stopped = RunDir(tmp_path / "whole"), RunDir(tmp_path / "stopped")
    train(plan, whole, QUIET)
    with monkeypatch.context() as patch:
        stop_after(patch, 4)  # of 15 steps, of which 1 up to 6 are the policy's
        with pytest.raises(Stopped):
            train(plan, stopped, QUIET)
    train(plan, stopped, QUIET)
    first, second = weights(whole), weights(stopped)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert whole.summary()["order"] == stopped.summary()["order"]


@pytest.mark.slow
def test_until_it_learns_a_run_of_own_orders_is_that_of_one_order_to_the_bit(tmp_path):
    found = []
    for policy in ("global", "image"):
        order = Order(scan="random", policy=policy, warmup_fraction=0.7, policy_fraction=0.2)
        directory = RunDir(tmp_path / policy)
        train(replace(experiment(), order=order), directory, QUIET)
        found.append([(line["loss"], line["validation_loss"]) for line in directory.metrics()[:2]])
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run whose images have their own orders."""
    directory = RunDir(tmp_path_factory.mktemp("own") / "run")
    order = Order(scan="random", policy="image", warmup_fraction=0, policy_fraction=0.8, learning_rate=0.05)
    base = experiment(ema=0.7)
    train(replace(base, order=order, model=replace(base.model, patch_size=2)), directory, QUIET)
    return directory


@pytest.mark.slow
def test_own_orders_are_loaded_predicted_with_evaluated_and_drawn(own, tmp_path):
    """A model whose images have their own orders is right where its run was, wherever it goes."""
    directory = RunDir(shutil.copytree(own.path, tmp_path / "run"))
    summary = directory.summary()
    assert -1 <= summary["own_orders_tau"] < 0.99
    assert -0.1 < summary["own_orders_by_class"] < 1
    model, truth = reorder.load(directory.path), load_dataset(experiment().data, (8, 8)).validation
    pixels = torch.stack([truth.read(index) for index in range(len(truth))]).expand(-1, 3, -1, -1)
    right = model.probabilities(pixels).argmax(1) == truth.labels
    assert right.numpy().tolist() == directory.correct().tolist()
    model.save_pretrained(tmp_path / "hub")
    again = reorder.load(tmp_path / "hub")
    assert torch.equal(again.probabilities(pixels), model.probabilities(pixels))
    _, evaluated = evaluate_run(directory, None, [])
    assert evaluated["top1"] == summary["top1"]
    where, tau = write_own_orders(directory, 5)
    orders = [load_order(where / f"image-{number}.json", (4, 4)).order for number in range(5)]
    assert len({tuple(order.tolist()) for order in orders}) > 1
    pairs = [kendall_tau(a, b) for number, a in enumerate(orders) for b in orders[number + 1 :]]
    assert tau == pytest.approx(sum(pairs) / 10)
    assert (where / "orders.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_run_keeps_its_first_images_with_the_orders_that_its_model_reads_them_in(own, tmp_path):
    kept = own.own_orders()
    truth = load_dataset(experiment().data, (8, 8)).validation
    assert kept.images.tolist() == [truth.read(index)[0].tolist() for index in range(12)]
    copy = RunDir(shutil.copytree(own.path, tmp_path / "run"))
    where, _ = write_own_orders(copy, 12)  # by the model of the checkpoint
    orders = [load_order(where / f"image-{number}.json").order.tolist() for number in range(12)]
    assert kept.orders.tolist() == orders
    assert len({tuple(order) for order in orders}) > 1


@pytest.mark.slow
def test_damaged_own_orders_are_named_in_a_report_that_goes_on_without_them(own, tmp_path):
    copy = RunDir(shutil.copytree(own.path, tmp_path / "run"))
    whole = (copy.path / "own_orders.npz").read_bytes()
    (copy.path / "own_orders.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"own_orders\.npz is damaged: [^\n]*; remove summary\.json and"):
        copy.own_orders()
    report = write_report([copy], tmp_path / "report")
    (note,) = (note for note in report.notes if "own_orders.npz" in note)
    assert note.startswith(f"{copy.path}: without the orders of its images: ")
    assert report.page.exists()
    (copy.path / "summary.json").unlink()
    train(copy.experiment(), copy, QUIET)  # as the note says
    assert (copy.path / "own_orders.npz").read_bytes() == whole


@pytest.mark.slow
def test_one_order_is_neither_kept_nor_drawn_for_every_image(tmp_path):
    directory = RunDir(tmp_path / "run")
    train(experiment(epochs=1), directory, QUIET)
    assert directory.own_orders() is None
    with pytest.raises(ValueError, match="reads all images in one order; see: reorder order show"):
        write_own_orders(directory, 2)


def test_images_that_cannot_be_shared_by_orders_are_refused_before_training():
    with pytest.raises(ValueError, match="orders_per_image=3 does not divide the 64 images"):
        policy_run("order.estimator=paired", "order.orders_per_image=3")


def test_row_major_cannot_see_the_digit_of_the_demo_and_an_order_that_ends_with_it_can():
    experiment = build(demo(), overrides=["data.train_images=4", "data.validation_images=20"])
    data = load_dataset(experiment.data, experiment.model.image_shape)
    torch.manual_seed(0)
    model = model_of(experiment.model, data.channels, len(data.classes)).eval()
    images = data.train.images.float() / 255
    others = images.clone()
    others[:, :, 4:16, 4:16] = torch.rand(4, 1, 12, 12)  # another digit
    row = reorder.scan("row", *model.grid)
    digit = torch.tensor([r * 12 + c for r in (1, 2, 3) for c in (1, 2, 3)])
    rest = torch.tensor([patch for patch in row.tolist() if patch not in digit.tolist()])
    with torch.no_grad():
        assert torch.equal(model(images, row), model(others, row))
        assert not torch.allclose(
            model(images, torch.cat([rest, digit])), model(others, torch.cat([rest, digit]))
        )
