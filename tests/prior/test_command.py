"""`reorder prior` as a user meets it, and training runs that start from what it finds."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from short_runs import QUIET

from reorder.cli import main
from reorder.config import Data, Experiment, Model, Order, Train
from reorder.data.ranks import ALONE
from reorder.experiments.comparison import compared_tasks, train_in_turn
from reorder.orders.files import save_order
from reorder.orders.scans import SCANS
from reorder.report.evaluation import evaluate_run
from reorder.report.results import order_name
from reorder.runs.directory import RunDir
from reorder.training import loop as training
from reorder.training import prior_choice as choice
from reorder.training.continuing import continued

pytestmark = pytest.mark.slow  # it trains, or starts processes


def experiment(**order):
    return Experiment(
        model=Model(name="transformer_xl", size="mini", image_size=8, patch_size=4),
        data=Data(augment="none"),
        train=Train(epochs=1, batch_size=512, warmup_epochs=0.5, learning_rate=2e-3),
        order=Order(**({"scan": "prior", "policy": "none"} | order)),
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["reorder", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


def test_the_command_writes_a_table_figures_and_names_the_scan(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_order("mine.json", SCANS["snake"](2, 2), (2, 2), {})
    options = ("prior", "digits", "model.patch_size=4", "--order", "mine.json")
    options = (*options, "--images", 200, "--codebook", 16, "--cache", "cache", "--out")
    assert not run(monkeypatch, *options, "found")
    shown = capsys.readouterr().out
    prior = json.loads((tmp_path / "found" / "prior.json").read_text())
    assert (prior["images"], prior["codebook_size"], prior["grid"]) == (200, 16, [2, 2])
    assert prior["orders"]["mine"] == prior["orders"]["snake"]
    assert f"least compressible: {prior['chosen']['scan']}, " in shown
    assert all(name in shown for name in (*SCANS, "random", "mine"))
    assert (tmp_path / "found" / "prior.png").read_bytes().startswith(b"\x89PNG")
    assert not run(monkeypatch, *options, "again")
    assert (tmp_path / "again" / "prior.json").read_text() == (tmp_path / "found" / "prior.json").read_text()


def test_a_run_starts_from_the_least_compressible_scan_and_never_measures_again(tmp_path, monkeypatch):
    directory = RunDir(tmp_path / "run")
    one = experiment(policy="global")
    summary = training.train(one, directory, QUIET)
    prior = json.loads((tmp_path / "run" / "prior.json").read_text())
    found = min(SCANS, key=lambda name: prior["orders"][name]["unigram"]["reduction"])
    assert (summary["scan"], summary["prior_scan"]) == ("prior", found)
    assert directory.policy().initial.tolist() == SCANS[found](2, 2).tolist()
    assert order_name(summary) == f"learned from prior ({found})"
    assert order_name({**summary, "policy": "none"}) == f"prior ({found}), fixed"

    def measured_again(*arguments, **options):
        raise AssertionError

    monkeypatch.setattr(choice, "encode_dataset", measured_again)
    other = next(name for name in SCANS if name != found)
    prior["chosen"]["scan"] = other  # what is recorded counts
    directory.write_prior(prior)
    longer = continued(one, ["train.epochs=2"])
    directory.reopen(longer)
    assert training.train(longer, directory, QUIET)["prior_scan"] == other
    assert evaluate_run(directory, None, [])[1]["top1"] >= 0


def test_the_runs_it_is_compared_with_take_the_same_scan(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        choice,
        "encode_dataset",
        lambda *a, encode=choice.encode_dataset, **k: made.append(1) or encode(*a, **k),
    )
    one = experiment(policy="global")
    one.train.compare = True
    tasks = compared_tasks(one, RunDir(tmp_path / "run"))
    train_in_turn(tasks, QUIET, ALONE)
    assert [task.name for task in tasks] == ["run", "run/fixed-prior", "run/fixed-row"]
    assert len(made) == 1
    chosen = {task.directory.summary()["prior_scan"] for task in tasks[:2]}
    assert len(chosen) == 1
    assert (tmp_path / "run" / "fixed-prior" / "prior.json").exists()


def test_two_processes_start_from_one_measurement(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    settings = [
        "model.patch_size=4",
        "train.epochs=1",
        "train.batch_size=512",
        "order.scan=prior",
        "order.policy=none",
    ]
    done = subprocess.run(
        [*command, "-m", "reorder", "train", "digits", *settings, "order.scan=prior", "--out", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    directory = RunDir(tmp_path / "run")
    summary = directory.summary()
    assert summary["order"] == SCANS[summary["prior_scan"]](2, 2).tolist()
    assert done.stdout.count("least compressible: ") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scope", "world"], "unknown scope 'world'; choose from image, corpus"),
        (["--tokenizer", "bpe"], "unknown tokenizer 'bpe'; choose from kmeans"),
        (["--images", "1"], "the prior needs at least 2 images for a standard error, got 1"),
        (["--order", "absent.json"], "absent.json: No such file"),
        (["--order", "other.json"], "is for a 2x2 grid, but a 4x4 grid is read"),
        (["--out", "other.json"], "cannot write to other.json: other.json is not a directory"),
        (["--out", "other.json/a/b"], "other.json is not a directory"),
        (["--out", "run"], "run is a run directory, which has a prior of its own; choose another --out"),
        (["model.image_size=4", "model.patch_size=4"], "a 1x1 grid has no order to speak of"),
        (["model.patch_size=16"], "patch size 16"),
        (["data.name=image_folder", "data.root=empty"], "empty"),
        (
            ["data.name=image_folder", "data.root=broken", "data.workers=0"],
            "none of the 3 images could be read",
        ),
        (["preset"], "unknown preset 'preset'"),
    ],
)
def test_bad_input_is_one_line_with_status_2(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    save_order("other.json", SCANS["row"](2, 2), (2, 2), {})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    for number in range(3):
        (tmp_path / "broken" / f"{number}.png").write_bytes(b"no image")
    assert run(monkeypatch, "prior", *arguments, "--cache", tmp_path / "cache") == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("reorder: ")
    assert printed.err.count("\n") == 1
    assert said in printed.err
    assert not (tmp_path / "prior").exists()
    if "--out" in arguments:
        assert not (tmp_path / "cache").exists()  # nothing was measured


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_directory_that_is_closed_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert run(monkeypatch, "prior", "--out", tmp_path / "closed" / "new", "--cache", tmp_path / "cache") == 2
    assert "closed is not yours to write to" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_a_flat_folder_of_photographs_can_be_measured(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(8):
        pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    data = (
        "data.name=image_folder",
        f"data.root={tmp_path / 'photos'}",
        "data.workers=0",
        "model.image_size=32",
    )
    assert not run(monkeypatch, "prior", *data, "model.patch_size=8", "-o", tmp_path / "out", "--codebook", 4)
    assert json.loads((tmp_path / "out" / "prior.json").read_text())["images"] == 8


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("order.tokenizer=bpe", "order.tokenizer: unknown value 'bpe'"),
        ("order.scan=priors", "unknown scan 'priors'"),
    ],
)
def test_bad_keys_of_training_are_named(tmp_path, monkeypatch, capsys, override, said):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "train", override) == 2
    assert said in capsys.readouterr().err
