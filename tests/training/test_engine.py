"""The engine: several processes are one, steps add up, averages of weights, numbers not finite."""

import functools
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from short_runs import OVERRIDES, QUIET, experiment, on_pictures, weights

from reorder.config import Model, Order
from reorder.data.ranks import World
from reorder.models.backbones import BACKBONES
from reorder.runs.directory import RunDir
from reorder.training import loop as training
from reorder.training import setup as running
from reorder.training import step
from reorder.training.state import unwrapped

pytestmark = pytest.mark.slow  # it trains, or starts processes


def test_two_processes_equal_one_with_the_same_global_batch(whole, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "reorder", "train", "digits", *OVERRIDES, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    directory = RunDir(tmp_path / "run")
    assert directory.summary()["order"] == whole.summary()["order"]
    np.testing.assert_allclose(directory.policy().logits, whole.policy().logits, atol=1e-4)
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(directory)[name], tensor, atol=2e-3, rtol=1e-2)
    for ours, theirs in zip(directory.metrics(), whole.metrics(), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-3)
        assert ours["stage"] == theirs["stage"]
    assert len(np.load(directory.path / "correct.npy")) == 360  # every validation image once
    assert done.stdout.count("epoch 3/3") == 1  # one rank speaks


def test_a_step_that_is_not_finite_is_skipped_and_ten_stop_the_run(tmp_path, monkeypatch):
    backward = step.read_batch
    bad = {2, 6}

    def poisoned(run, images, labels, order):
        losses, right = backward(run, images, labels, order)
        return (losses * float("nan") if run.step in bad else losses), right

    monkeypatch.setattr(step, "read_batch", poisoned)
    summary = training.train(experiment(), RunDir(tmp_path / "few"), QUIET)
    assert summary["skipped_steps"] == 2
    assert all(np.isfinite(line["loss"]) for line in RunDir(tmp_path / "few").metrics())
    bad.update(range(3, 40))
    with pytest.raises(ValueError, match="10 steps in a row had a loss or gradient that is not finite"):
        training.train(experiment(epochs=20), RunDir(tmp_path / "many"), QUIET)
    assert (tmp_path / "many" / "checkpoints" / "latest").read_text() == "step-000000012"


def test_a_loss_that_is_not_finite_is_skipped_with_scaled_gradients_too(monkeypatch):
    run = running.setup(experiment())
    run.scaler = torch.amp.GradScaler("cpu", enabled=True)
    images, labels = next(iter(run.loader.epoch(0)))
    training.train_step(run, images * float("nan"), labels)
    assert (run.skipped, run.step) == (1, 1)
    before = run.model.head.weight.clone()
    training.train_step(run, images, labels)
    assert (run.skipped, run.skipped_in_a_row, run.step) == (1, 0, 2)
    assert not torch.equal(before, run.model.head.weight)


def test_the_baseline_has_no_part_of_a_step_that_is_skipped(monkeypatch):
    run = running.setup(experiment())
    backward, rewards = step.read_batch, {}

    def overflowing(run, images, labels, order):
        losses, right = backward(run, images, labels, order)
        rewards[run.step] = -losses.mean().item()
        if run.step in (3, 5):  # the loss is finite, its gradient is not
            run.model.head.bias.grad[0] = float("inf")
        return losses, right

    monkeypatch.setattr(step, "read_batch", overflowing)
    baseline, seen = run.learner.estimator.baseline, []
    for epoch in (0, 1):
        for images, labels in run.loader.epoch(epoch):
            training.train_step(run, images, labels)
            seen.append((bool(baseline.started), baseline.value.item(), baseline.advantage.item()))
    # 15 steps, of which 2 up to 7 are the policy's, the first without noise: rewards come from step 3 on.
    by_hand = 0.99 * rewards[4] + 0.01 * rewards[6]
    assert run.skipped == 2
    assert seen[3] == (False, 0.0, 0.0)
    assert seen[4] == seen[5] == (True, pytest.approx(rewards[4]), pytest.approx(0, abs=1e-6))
    assert seen[6] == (True, pytest.approx(by_hand), pytest.approx(rewards[6] - by_hand, abs=1e-6))


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulation_adds_up_to_the_same_step(parts):
    runs = [running.setup(experiment(accumulate=n)) for n in (1, parts)]
    for run in runs:
        images, labels = next(iter(run.loader.epoch(0)))
        training.train_step(run, images, labels)
    for ours, theirs in zip(runs[0].model.parameters(), runs[1].model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-4)


def test_validation_takes_no_more_images_at_a_time_than_a_part_of_a_step():
    sizes, results = [], []
    for parts in (1, 4):
        run = running.setup(experiment(accumulate=parts))
        hook = run.model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
        results.append(training.validate(run, run.learner.order()))
        hook.remove()
    assert (max(sizes[:2]), sum(sizes[:2])) == (256, 360)
    assert (max(sizes[2:]), sum(sizes[2:])) == (64, 360)
    assert torch.equal(results[0].correct, results[1].correct)


def test_bfloat16_and_an_average_of_weights_train(tmp_path):
    run = running.setup(experiment(precision="bfloat16", ema=0.9))
    first = [parameter.clone() for parameter in run.model.parameters()]
    expected = None
    for images, labels in run.loader.epoch(0):
        training.train_step(run, images, labels)
        now = run.model.head.weight.detach()
        # The first update copies, the following average.
        expected = now.clone() if expected is None else 0.9 * expected + 0.1 * now
    torch.testing.assert_close(run.ema.module.head.weight, expected)
    assert not all(torch.equal(a, b) for a, b in zip(first, run.model.parameters(), strict=True))
    summary = training.train(experiment(precision="bfloat16", ema=0.9), RunDir(tmp_path / "run"), QUIET)
    assert summary["top1"] > 0.1
    assert any(name.startswith("ema.") for name in weights(RunDir(tmp_path / "run")))


def test_the_averaged_weights_are_those_that_are_evaluated(tmp_path):
    averaged, directory = experiment(ema=0.9), RunDir(tmp_path / "run")
    summary = training.train(averaged, directory, QUIET)
    run, saved = running.setup(averaged), weights(directory)
    model, order = run.model.eval(), torch.tensor(summary["order"])

    @torch.no_grad()
    def top1(prefix):
        model.load_state_dict(
            {name.removeprefix(prefix): t for name, t in saved.items() if name.startswith(prefix)}
        )
        right = [model(images, order).argmax(1) == labels for _, images, labels in run.loader.validate()]
        return torch.cat(right).double().mean().item()

    assert summary["top1"] == pytest.approx(top1("ema.module."), abs=1e-9)
    assert summary["top1"] != pytest.approx(top1("model."), abs=1e-9)


def test_norms_biases_and_positions_can_be_spared_from_decay():
    run = running.setup(experiment(decay_all=False))
    spared = {id(p) for p in run.optimizer.param_groups[1]["params"]}
    names = {name for name, p in run.model.named_parameters() if id(p) in spared}
    assert run.optimizer.param_groups[1]["weight_decay"] == 0
    assert {"tokens.pos_embed", "tokens.cls_token", "norm.weight", "head.bias"} <= names
    assert "head.weight" not in names
    assert "backbone.blocks.0.attn.qkv.weight" not in names


def test_what_a_machine_cannot_do_is_named():
    with pytest.raises(ValueError, match=r"train.precision=float16 needs a GPU"):
        running.setup(experiment(precision="float16"))
    world = World(0, 3, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"train.batch_size=256 is not divisible by 3 processes"):
        running.setup(experiment(), world)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_compiled_model_trains_as_a_plain_one_does(name, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    model = Model(name=name, size="mini", image_size=8, patch_size=4, options={"dropout": 0.0})
    runs = [
        running.setup(replace(experiment(compile=compiled), model=model, order=Order(policy="global")))
        for compiled in (False, True)
    ]
    assert unwrapped(runs[1].model) is not runs[1].model
    for run in runs:
        for images, labels in run.loader.epoch(0):
            training.train_step(run, images, labels)
    plain, compiled = (run.so_far.loss for run in runs)
    assert compiled == pytest.approx(plain, rel=1e-4)
    plain, compiled = (training.validate(run, run.learner.order()).loss for run in runs)
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_broken_images_are_counted_over_all_ranks_and_too_many_stop_them_together(pictures, tmp_path):
    root = tmp_path / "pictures"
    shutil.copytree(pictures, root)
    for index in range(4):
        (root / "train" / "dark" / f"{index}.png").write_bytes(b"no image")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    few, many = (tmp_path / "few", 4), (tmp_path / "many", 3)  # no rank finds more than 3 in its half
    for out, limit in (few, many):
        arguments = on_pictures(root, "train.epochs=1", f"data.max_broken={limit}", "data.workers=0")
        done = subprocess.run(
            [*torchrun, "-m", "reorder", *arguments, "--out", str(out)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode == 0) == (limit == 4), done.stderr
    assert RunDir(few[0]).summary()["broken_images"] == 4
    assert RunDir(few[0]).metrics()[0]["broken_images"] == 4
    assert done.stderr.count("more than data.max_broken=3 images are broken") == 2
    assert RunDir(many[0]).summary() is None
