"""Learners in the engine: batches in parts, what a run refuses, and why the demo's row-major is at chance."""

from dataclasses import replace

import pytest
import torch
from short_runs import QUIET, experiment, stop_after, weights

import reorder
from reorder.config import Order, build
from reorder.data.datasets import load_dataset
from reorder.experiments.presets import demo, digits
from reorder.models.classifier import model_of
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


@pytest.mark.parametrize("estimator", ["straight-through", "paired"])
def test_a_batch_in_parts_teaches_a_policy_the_same(estimator):
    gradients = []
    for parts in (1, 2):
        run, batch = policy_run(f"train.accumulate={parts}", f"order.estimator={estimator}")
        train_step(run, *batch)
        gradients.append(run.learner.policy.logits.grad)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-7)


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
def test_a_straight_through_run_that_was_stopped_goes_on_to_the_bit(tmp_path, monkeypatch):
    plan = replace(experiment(), order=Order(scan="random", policy="global"))
    whole, stopped = RunDir(tmp_path / "whole"), RunDir(tmp_path / "stopped")
    train(plan, whole, QUIET)
    with monkeypatch.context() as patch:
        stop_after(patch, 3)  # of 15 steps, of which 1 up to 4 are the policy's
        with pytest.raises(Stopped):
            train(plan, stopped, QUIET)
    train(plan, stopped, QUIET)
    first, second = weights(whole), weights(stopped)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert whole.summary()["order"] == stopped.summary()["order"]


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
