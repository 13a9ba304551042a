"""Evaluating a run's checkpoint, and one run against another."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reorder import create_model
from reorder.config import Data, Experiment, Model, Order, Train
from reorder.data.datasets import DATASETS, Memory, load_dataset
from reorder.data.progress import Display, Progress
from reorder.orders.distances import kendall_tau
from reorder.orders.files import save_order
from reorder.orders.scans import SCANS
from reorder.report import evaluation
from reorder.report.evaluation import (
    compare_runs,
    describe_difference,
    describe_evaluation,
    evaluate_run,
    order_sensitivity,
)
from reorder.runs.directory import Checkpoint, RunDir
from reorder.runs.trained import load_trained
from reorder.training import loop as training
from reorder.training.signals import StopSignals

pytestmark = pytest.mark.slow  # it trains, or starts processes


MODEL = Model(name="transformer_xl", size="mini", image_size=8, patch_size=4)


def experiment(epochs=2, **order):
    return Experiment(
        model=MODEL,
        data=Data(augment="none"),
        train=Train(epochs=epochs, batch_size=256, learning_rate=2e-3, warmup_epochs=0.5, seed=3),
        order=Order(**({"estimator": "scaled"} | order)),
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two finished runs: a learned order, and a fixed one."""
    where = tmp_path_factory.mktemp("runs")
    runs = RunDir(where / "learned"), RunDir(where / "row")
    quiet = Display(quiet=True)
    training.train(experiment(scan="column", policy="global", learning_rate=0.05), runs[0], quiet)
    training.train(experiment(epochs=1), runs[1], quiet)
    return runs


@pytest.fixture
def learned(trained, tmp_path):
    """A copy of the learned run to write into."""
    return RunDir(shutil.copytree(trained[0].path, tmp_path / "learned"))


@pytest.fixture
def row(trained, tmp_path):
    return RunDir(shutil.copytree(trained[1].path, tmp_path / "row"))


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_finished_run_evaluates_to_its_own_summary_and_its_files_stay(learned):
    before = contents(learned.path)
    where, result = evaluate_run(learned, None, [])
    summary = learned.summary()
    for key in ("top1", "top1_sem", "top5", "loss", "order"):
        assert result[key] == summary[key]
    assert result["top1_interval"][0] < result["top1"] < result["top1_interval"][1]
    assert result["images"] == 360
    assert where.parent == learned.path / "evaluations"
    assert (np.load(where / "correct.npy") == np.load(learned.path / "correct.npy")).all()
    assert json.loads((where / "result.json").read_text()) == result
    after = contents(learned.path)
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) == {where / "correct.npy", where / "result.json"}


def test_an_evaluation_that_exists_is_read_and_not_written(learned):
    where, result = evaluate_run(learned, None, [])
    (where / "result.json").write_text(json.dumps(result | {"top1": 0.125}))
    assert evaluate_run(learned, None, []) == (where, result | {"top1": 0.125})
    (where / "result.json").write_text("{")
    with pytest.raises(ValueError, match=r"result\.json is damaged: .*; remove"):
        evaluate_run(learned, None, [])


def test_two_evaluations_at_once_both_end_and_leave_one_result(learned, monkeypatch):
    shutil.rmtree(learned.path / "evaluations", ignore_errors=True)
    measure, others = evaluation._measure, []

    def slow(run, order):
        if not others:
            others.append(None)
            others.append(evaluate_run(learned, None, []))  # another process, that is quicker
        return measure(run, order)

    monkeypatch.setattr(evaluation, "_measure", slow)
    where, result = evaluate_run(learned, None, [])
    assert others[1] == (where, result)
    assert list((learned.path / "evaluations").iterdir()) == [where]


def test_another_order_is_what_the_model_is_read_in(learned, tmp_path):
    order = torch.tensor([3, 1, 0, 2])
    save_order(tmp_path / "mine.json", order, (2, 2), {})
    where, result = evaluate_run(learned, tmp_path / "mine.json", [])
    assert result["order"] == [3, 1, 0, 2]
    assert where != evaluate_run(learned, None, [])[0]
    model = create_model("transformer_xl", "mini", 8, 4, 1, 10).eval()
    newest = (learned.path / "checkpoints" / "latest").read_text()
    file = learned.path / "checkpoints" / newest / "weights.safetensors"
    model.load_state_dict(
        {k.removeprefix("model."): v for k, v in load_file(file).items() if k.startswith("model.")}
    )
    data = load_dataset(Data(), (8, 8))
    images = (data.validation.images / 255 - data.mean[:, None, None]) / data.deviation[:, None, None]
    with torch.no_grad():
        literal = model(images, order).argmax(1) == data.validation.labels
    assert (np.load(where / "correct.npy") == literal.numpy()).all()


@pytest.mark.parametrize("epochs", [1, 3])
def test_an_unfinished_run_is_read_as_its_metrics_say(tmp_path, epochs):
    directory = RunDir(tmp_path / "run")
    plan = experiment(epochs=10, scan="spiral", policy="global", learning_rate=0.05)
    run = training.setup(plan)
    directory.create(plan)
    for _ in range(epochs):
        training.train_epoch(run, directory, Progress(), StopSignals())
    _, result = evaluate_run(directory, None, [])
    assert result["step"] == 5 * epochs
    assert result["loss"] == directory.metrics()[-1]["validation_loss"]
    assert run.metrics[-1]["stage"] == ("warm-up" if epochs == 1 else "policy")
    assert (result["order"] == [0, 1, 2, 3]) == (epochs == 1)


@pytest.mark.parametrize("kind", ["new", "old", "old, in its first epoch"])
def test_the_stages_of_a_run_do_not_move_with_the_data_it_is_evaluated_on(tmp_path, kind):
    # 24 steps: warm-up up to step 4, policy up to step 11. By 1,400 images there would be 522 steps, and
    # the last checkpoint would seem to be of the warm-up, in which every run reads row-major.
    plan = experiment(epochs=6, scan="spiral", policy="global", learning_rate=0.05)
    plan.data.train_images, plan.train.batch_size = 64, 16
    directory = RunDir(tmp_path / "run")
    summary = training.train(plan, directory, Display(quiet=True))
    if kind != "new":
        (tensors, state), _ = directory.load_checkpoint()
        del state["start_step"], state["stop_step"]
        if kind != "old":
            state["metrics"] = []
        directory.save_checkpoint(state["step"], Checkpoint(tensors, state), keep=1)
    assert summary["order"] != [0, 1, 2, 3]
    _, result = evaluate_run(directory, None, ["train_images=1400"])
    assert result["order"] == summary["order"]
    assert result["top1"] == summary["top1"]
    assert order_sensitivity(directory, ["train_images=1400"]).rows[0][2].value == 100 * summary["top1"]


def test_a_fixed_order_needs_nothing_of_the_data_that_it_was_trained_on(row):
    (tensors, state), _ = row.load_checkpoint()
    row.save_checkpoint(state["step"], Checkpoint(tensors, state | {"metrics": []}), keep=1)
    config = (row.path / "config.yaml").read_text().replace("name: digits", "name: image_folder")
    (row.path / "config.yaml").write_text(config.replace("root: null", "root: /on/another/machine"))
    _, result = evaluate_run(row, None, ["name=digits", "root=null"])
    assert result["top1"] == row.summary()["top1"]


def test_other_data_need_the_channels_and_classes_of_the_model(learned, monkeypatch):
    digits = load_dataset(Data(), (8, 8))
    first = Memory(digits.validation.images[:100], digits.validation.labels[:100], (8, 8))
    half = digits._replace(validation=first)
    monkeypatch.setitem(DATASETS, "half", lambda settings, shape: half)
    where, result = evaluate_run(learned, None, ["name=half"])
    assert (result["images"], result["data"]["name"]) == (100, "half")
    assert (np.load(where / "correct.npy") == np.load(learned.path / "correct.npy")[:100]).all()
    assert evaluate_run(learned, None, ["data.name=half"]) == (where, result)
    monkeypatch.setitem(
        DATASETS, "more", lambda settings, shape: digits._replace(classes=list("abcdefghijk"))
    )
    with pytest.raises(ValueError, match=r"more has 11 classes and 1 channels; .* knows 10 and 1"):
        evaluate_run(learned, None, ["name=more"])


def test_a_run_without_a_checkpoint_or_a_wrong_order_is_refused(learned, tmp_path):
    save_order(tmp_path / "long.json", torch.arange(9), (3, 3), {})
    with pytest.raises(ValueError, match="is for a 3x3 grid, but a 2x2 grid is read"):
        evaluate_run(learned, tmp_path / "long.json", [])
    for bad, said in (
        ("name", "--data takes key=value"),
        ("nme=digits", "unknown key 'data.nme'"),
        ("name=mnist", "unknown dataset 'mnist'"),
    ):
        with pytest.raises(ValueError, match=said):
            evaluate_run(learned, None, [bad])
    shutil.rmtree(learned.path / "checkpoints")
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        load_trained(learned)


def test_two_runs_are_compared_image_by_image(learned, row):
    a, b = (np.load(run.path / "correct.npy").astype(int) for run in (learned, row))
    paired = compare_runs(learned, row)
    assert paired.difference == pytest.approx((a - b).mean())
    assert (paired.only_a, paired.only_b) == ((a > b).sum(), (b > a).sum())
    assert paired == compare_runs(learned, row)
    text = describe_difference(learned, row, paired)
    assert f"{100 * (a - b).mean():+.2f} ± " in text
    assert paired.test in text
    _, result = evaluate_run(learned, None, [])
    assert f"top-1 {100 * a.mean():.2f} ± " in describe_evaluation(result)


def test_runs_that_are_unfinished_or_have_other_validation_images_are_not_compared(learned, row):
    config = (row.path / "config.yaml").read_text()
    (row.path / "config.yaml").write_text(config.replace("augment: none", "augment: flip"))
    compare_runs(learned, row)  # flips concern training only
    (row.path / "config.yaml").write_text(config.replace("root: null", "root: /elsewhere"))
    compare_runs(learned, row)  # nor does it matter where the digits lie
    own = (learned.path / "config.yaml").read_text()
    for run, text, root in ((learned, own, "/here/ants"), (row, config, "/here/bees")):
        text = text.replace("name: digits", "name: image_folder").replace("root: null", f"root: {root}")
        (run.path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"different validation sets: their data\.root is ants and bees"):
        compare_runs(learned, row)
    for run, text, images in ((learned, own, 1000), (row, config, 900)):
        text = text.replace("train_images: null", f"train_images: {images}")
        (run.path / "config.yaml").write_text(text)
    compare_runs(learned, row)
    for run in (learned, row):
        text = (run.path / "config.yaml").read_text().replace("held_out: null", "held_out: 360")
        (run.path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"their data\.train_images is 1000 and 900"):
        compare_runs(learned, row)
    (learned.path / "config.yaml").write_text(own)
    (row.path / "config.yaml").write_text(config)
    np.save(row.path / "correct.npy", np.ones(359, dtype=bool))
    with pytest.raises(ValueError, match="different validation sets: their number of images is 360 and 359"):
        compare_runs(learned, row)
    (row.path / "correct.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"correct\.npy is damaged"):
        compare_runs(learned, row)
    (row.path / "summary.json").unlink()
    with pytest.raises(ValueError, match="row is not finished; continue it with"):
        compare_runs(learned, row)


def test_sensitivity_is_what_each_order_alone_evaluates_to(learned, tmp_path):
    table = order_sensitivity(learned, [])
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == ["own", *SCANS, "own-reversed", "random"]
    own = torch.tensor(learned.summary()["order"])
    assert rows["own"][2].value == pytest.approx(100 * learned.summary()["top1"])
    for name, order in (("spiral", SCANS["spiral"](2, 2)), ("own-reversed", own.flip(0))):
        save_order(tmp_path / "other.json", order, (2, 2), {})
        where, result = evaluate_run(learned, tmp_path / "other.json", [])
        assert rows[name][2].value == pytest.approx(100 * result["top1"])
        difference = np.load(where / "correct.npy").mean() - np.load(learned.path / "correct.npy").mean()
        assert rows[name][3].value == pytest.approx(100 * difference)
    assert rows["own-reversed"][1].value == pytest.approx(-1)
    other = torch.randperm(4, generator=torch.Generator().manual_seed(4))  # the run's own seed is 3
    assert rows["random"][1].value == pytest.approx(kendall_tau(other, own))
    assert {row[5].value for row in table.rows} == {learned.metrics()[-1]["step"]}
    written = (learned.path / "evaluations" / "sensitivity.csv").read_text()
    assert order_sensitivity(learned, ["validation_images=20"]).name == "sensitivity-digits"
    assert (learned.path / "evaluations" / "sensitivity.csv").read_text() == written  # of the run's own data


def test_several_ranks_evaluate_together_and_one_writes_and_speaks(learned):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "reorder", "evaluate", str(learned.path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved:") == 1
    (where,) = (learned.path / "evaluations").iterdir()
    result = json.loads((where / "result.json").read_text())
    assert (result["images"], result["top1"]) == (360, learned.summary()["top1"])
