"""Training runs: what they leave behind, that they repeat, and that they continue."""

import io
import json
import math
import os
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file
from short_runs import QUIET
from sklearn.datasets import load_digits

import reorder
from reorder.config import Data, Experiment, Model, Order, Train
from reorder.data.progress import Display
from reorder.orders.estimators import SCORES
from reorder.orders.files import load_order, save_order
from reorder.report.write import write_report
from reorder.runs.directory import RunDir
from reorder.training import guards
from reorder.training import loop as training
from reorder.training.signals import Stopped
from reorder.training.step import set_learning_rate

pytestmark = pytest.mark.slow  # it trains, or starts processes


def experiment(**order):
    return Experiment(
        model=Model(name="transformer_xl", size="mini", image_size=8, patch_size=4),
        data=Data(augment="none"),
        train=Train(epochs=4, batch_size=256, learning_rate=2e-3, warmup_epochs=0.5),
        order=Order(
            **({"scan": "column", "policy": "global", "estimator": "scaled", "learning_rate": 0.05} | order)
        ),
    )


def weights(directory):
    newest = (directory.path / "checkpoints" / "latest").read_text()
    return load_file(directory.path / "checkpoints" / newest / "weights.safetensors")


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
    theory = math.sqrt(correct.mean() * (1 - correct.mean()) / 360)
    assert summary["top1_sem"] == pytest.approx(theory, rel=0.06)  # four errors of 2,000 resamples
    assert summary["top1"] <= summary["top5"] <= 1
    assert summary["parameters"] == sum(p.numel() for p in training.setup(experiment()).model.parameters())
    assert summary["images_per_second"] > 0
    assert finished.experiment() == experiment()
    lines = finished.metrics()
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["step"] for line in lines] == [5, 10, 15, 20]
    # 20 steps: warm-up up to step 3, policy from 3 up to 9, then frozen; a line speaks of its last step.
    assert [line["stage"] for line in lines] == ["policy", "frozen", "frozen", "frozen"]
    epochs, stages, temperatures, logits, initial = finished.policy()
    assert initial.tolist() == [0, 2, 1, 3]
    assert np.argsort(-logits[0], kind="stable").tolist() == [0, 2, 1, 3]
    assert np.argsort(-logits[-1], kind="stable").tolist() == summary["order"]
    # Kept: before training, every step from the warm-up's end to the policy's, and every epoch's end.
    assert (5 * epochs).round(9).tolist() == [0, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20]
    assert stages == ["before training", "warm-up", *["policy"] * 6, *["frozen"] * 3]
    # The first policy step has no noise, and nothing is learned from it; then up to 0.2 midway, and down.
    assert temperatures == pytest.approx([0, 0, 0, 1 / 15, 2 / 15, 0.2, 2 / 15, 1 / 15, 0, 0, 0])
    moved = (logits[1:] != logits[:-1]).any(1)
    assert moved.tolist() == [False, False, True, True, True, True, True, False, False, False]
    shared = load_order(finished.path / "order.json", grid=(2, 2))
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
    step = training.train_step

    def interrupted(run, images, labels):
        if run.step == 7:  # in the middle of the second epoch and of the policy stage
            os.kill(os.getpid(), signal.SIGTERM)
        step(run, images, labels)

    monkeypatch.setattr(training, "train_step", interrupted)
    with pytest.raises(Stopped) as stopped:
        training.train(experiment(), directory, QUIET)
    assert stopped.value.status == 143
    assert directory.summary() is None
    assert (directory.path / "checkpoints" / "latest").read_text() == "step-000000008"
    monkeypatch.setattr(training, "train_step", step)
    training.train(experiment(), directory, QUIET)
    ours, theirs = weights(finished), weights(directory)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(directory.policy().logits, finished.policy().logits)
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
    save_order(tmp_path / "mine.json", order, (2, 2), {})
    run = training.setup(experiment(scan=str(tmp_path / "mine.json"), policy="none"))
    assert torch.equal(run.learner.sample(0), order)
    save_order(tmp_path / "other.json", torch.arange(6).flip(0), (2, 3), {})  # of another grid: resampled
    run = training.setup(experiment(scan=str(tmp_path / "other.json"), policy="none"))
    assert run.learner.sample(0).tolist() == [3, 2, 1, 0]


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


def test_models_are_evaluated_in_the_order_that_was_learned(finished):
    run = training.setup(experiment())
    run.model.load_state_dict(
        {k.removeprefix("model."): v for k, v in weights(finished).items() if k.startswith("model.")}
    )
    run.model.eval()
    order = load_order(finished.path / "order.json").order
    assert order.tolist() != list(range(4))  # else this test would say nothing
    with torch.no_grad():
        _, images, labels = (torch.cat(parts) for parts in zip(*run.loader.validate(), strict=True))
        right, wrong = ((run.model(images, o).argmax(1) == labels).numpy() for o in (order, order.flip(0)))
    assert np.array_equal(np.load(finished.path / "correct.npy"), right)
    assert not np.array_equal(right, wrong)
    # The last epoch is evaluated in the same order, the first, which ends in the policy stage, in its mode.
    assert finished.metrics()[-1]["validation_top1"] == pytest.approx(right.mean())


def test_a_run_that_ends_in_warm_up_is_evaluated_as_it_was_trained(tmp_path):
    summary = training.train(
        experiment(warmup_fraction=1.0, policy_fraction=0.0), RunDir(tmp_path / "run"), QUIET
    )
    assert summary["order"] == [0, 1, 2, 3]


def test_the_optimizer_and_the_learner_are_set_up_as_configured():
    changed = experiment(
        estimator="paper", temperature=0.7, warmup_order="init", learning_rate=0.03, warmup_fraction=0.25
    )
    run = training.setup(replace(changed, train=replace(changed.train, seed=7)))
    model_group, spared, policy_group = run.optimizer.param_groups
    for group in (model_group, policy_group):
        assert (group["betas"], group["weight_decay"]) == ((0.9, 0.999), 0.03)
    assert not spared["params"]  # all weights decay, as in the paper
    assert policy_group["lr"] == 0.03
    assert policy_group["params"] == [run.learner.policy.logits]
    assert run.learner.estimator.score is SCORES["paper"]
    assert (run.learner.peak_temperature, run.learner.seed) == (0.7, 7)
    assert (run.learner.start_step, run.learner.stop_step) == (5, 11)
    assert run.learner.first.tolist() == [0, 2, 1, 3]


def test_learning_rate_and_clipping_are_applied_at_every_step(monkeypatch):
    run = training.setup(experiment())
    rates, of_policy, norms = [], [], []

    def spy(parameters, largest):
        rates.append([group["lr"] for group in run.optimizer.param_groups[:2]])
        of_policy.append(run.optimizer.param_groups[2]["lr"])
        norm = torch.nn.utils.clip_grad_norm_(parameters, largest)
        norms.append((norm, largest))
        return norm

    monkeypatch.setattr(guards, "clip_grad_norm_", spy)
    for images, labels in run.loader.epoch(0):
        training.train_step(run, images, labels)
    # 5 steps an epoch, 2.5 of warm-up rounded to 2; then a cosine over 18 steps.
    expected = [1e-3, 2e-3, *(1e-3 * (1 + math.cos(math.pi * k / 18)) for k in range(3))]
    assert [rate for rate, _ in rates] == [rate for _, rate in rates] == pytest.approx(expected)
    assert of_policy == [0.05] * 5  # the policy has a constant one
    assert [largest for _, largest in norms] == [5.0] * 5


def test_the_rate_can_be_held_and_end_above_zero():
    base = experiment()
    run = training.setup(replace(base, train=replace(base.train, hold_epochs=1, learning_rate_floor=0.5)))
    rates = []
    for run.step in range(20):
        set_learning_rate(run)
        rates.append(run.optimizer.param_groups[0]["lr"])
    # 2 steps of warm-up, 5 at the peak of 2e-3, then a cosine of 13 steps down to half of it.
    falling = [1e-3 + 0.5e-3 * (1 + math.cos(math.pi * k / 13)) for k in range(13)]
    assert rates == pytest.approx([1e-3, *[2e-3] * 6, *falling])


def test_the_policys_gradient_is_clipped_if_asked_for():
    norms = {}
    for clip in (None, 1e-3):
        run = training.setup(
            experiment(estimator="paper", warmup_fraction=0.0, baseline_start="zero", clip=clip)
        )
        run.step = 1  # the policy stage; at its first step the temperature is zero
        images, labels = next(iter(run.loader.epoch(0)))
        training.train_step(run, images, labels)
        norms[clip] = run.learner.policy.logits.grad.norm().item()
    assert norms[None] > 0.1
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-2)


def test_what_is_dropped_is_a_function_of_the_step():
    dropping = replace(experiment(), model=replace(experiment().model, options={"dropout": 0.5}))

    def losses(steps):
        """The loss of each step on one batch, by a model that does not learn."""
        run = training.setup(replace(dropping, train=replace(dropping.train, learning_rate=0.0)))
        batch, found = next(iter(run.loader.epoch(0))), []
        for run.step in steps:
            before = run.so_far.loss
            training.train_step(run, *batch)
            found.append(run.so_far.loss - before)
        return found

    first, second, again = losses([0, 1, 0])  # all in the warm-up, so in one order
    assert again == pytest.approx(first, abs=1e-6) != pytest.approx(second, abs=1e-6)
    assert losses([1]) == pytest.approx([second], abs=1e-6)


@pytest.mark.parametrize("estimator", SCORES)
@pytest.mark.parametrize(("expected_reward", "likelier"), [(-1.0, False), (-5.0, True)])
def test_an_order_with_more_reward_than_expected_becomes_likelier(estimator, expected_reward, likelier):
    run = training.setup(experiment(estimator=estimator, learning_rate=1e-4, scan="row"))
    baseline = run.learner.estimator.baseline
    baseline.value.fill_(expected_reward)  # untrained, ten classes have a reward of about -2.3
    baseline.started.fill_(True)
    run.step = 6  # midway through the policy stage
    order = run.learner.sample(6)
    before = run.learner.policy.log_prob(order).item()
    training.train_step(run, *next(iter(run.loader.epoch(0))))
    assert -5 < baseline.value < -1
    assert (run.learner.policy.log_prob(order).item() > before) == likelier


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("summary.json", b"{", r"summary.json is damaged"),
        ("summary.json", b"[1]", r"summary.json is damaged"),
        ("metrics.jsonl", b"{\n", r"metrics.jsonl is damaged"),
        ("policy.npz", b"junk", r"policy.npz is damaged"),
        ("policy.npz", None, r"policy.npz is missing"),
    ],
)
def test_damaged_files_are_named(finished, tmp_path, name, content, said):
    copy = RunDir(shutil.copytree(finished.path, tmp_path / "copy"))
    if content is None:
        (copy.path / name).unlink()
    else:
        (copy.path / name).write_bytes(content)
    if name == "summary.json":
        with pytest.raises(ValueError, match=said):
            write_report([copy], tmp_path / "report")
    else:  # the rest can be reported
        made = write_report([copy], tmp_path / "report").tables
        assert any(re.search(said, note) for table in made for note in table.notes)


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt"])
def test_a_damaged_checkpoint_is_named(finished, tmp_path, name):
    copy = RunDir(shutil.copytree(finished.path, tmp_path / "copy"))
    (copy.path / "summary.json").unlink()
    _, newest = sorted(copy.path.glob(f"checkpoints/*/{name}"))
    newest.write_bytes(newest.read_bytes()[:-1])
    screen = io.StringIO()
    training.train(experiment(), copy, Display(console=Console(file=screen, width=300)))
    assert "step-000000020 is damaged; using the one before" in screen.getvalue()
    assert all(
        torch.equal(a, b) for a, b in zip(weights(copy).values(), weights(finished).values(), strict=True)
    )
    (copy.path / "summary.json").unlink()
    for file in copy.path.glob(f"checkpoints/*/{name}"):
        file.write_bytes(b"junk")
    with pytest.raises(ValueError, match="no sound checkpoint in"):
        training.train(experiment(), copy, QUIET)


def test_options_that_belong_elsewhere_or_do_not_fit_are_named():
    for options, said in [
        ({"classes": 5}, "model.options.classes is no option of a backbone"),
        ({"dropout": "high"}, "option 'dropout' of model transformer_xl must be float, got 'high'"),
        ({"drop_path": 2}, r"must be in \[0, 1\), got 2"),
        ({"checkpointing": "maybe"}, "must be bool, got 'maybe'"),
        ({"segment": 2.5}, "must be int or none, got 2.5"),
    ]:
        bad = replace(experiment(), model=replace(experiment().model, options=options))
        with pytest.raises(ValueError, match=said):
            training.setup(bad)


def test_equal_noise_without_learning_never_moves_the_order(tmp_path):
    noisy = replace(experiment(), order=replace(experiment().order, policy="noise"))
    directory = RunDir(tmp_path / "run")
    summary = training.train(noisy, directory, QUIET)
    history = directory.policy()
    assert (history.logits == history.logits[0]).all()
    assert summary["order"] == history.initial.tolist() == reorder.scan("column", 2, 2).tolist()
    fixed = training.train(
        replace(noisy, order=replace(noisy.order, policy="none")), RunDir(tmp_path / "fixed"), QUIET
    )
    assert summary["loss"] != fixed["loss"]  # the noise was there


def test_a_sample_of_the_images_is_kept_for_drawings(tmp_path):
    directory = RunDir(tmp_path / "run")
    training.train(experiment(), directory, QUIET)
    first = (load_digits().images[0] / 16 * 255).round()
    assert (np.asarray(Image.open(directory.path / "sample.png")) == first).all()


@pytest.mark.parametrize("order", [{"scan": "random", "policy": "none"}, {"scan": "row", "policy": "random"}])
def test_random_orders_train_and_report(tmp_path, order):
    short = experiment(**order)
    short = replace(short, train=replace(short.train, epochs=1, seed=3))
    directory = RunDir(tmp_path / "run")
    summary = training.train(short, directory, QUIET)
    # On a 2 x 2 grid: what seed 3 draws once, or row-major to be tested in.
    once = torch.randperm(4, generator=torch.Generator().manual_seed(3)).tolist()
    assert summary["order"] == (once if order["scan"] == "random" else [0, 1, 2, 3])
    assert write_report([directory], tmp_path / "report")[0].exists()
