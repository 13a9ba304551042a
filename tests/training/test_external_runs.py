"""Runs of somebody else's model: a step, a stop and a continuation, names, an evaluation and a search."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from short_runs import QUIET, assert_same, experiment, stop_after, weights
from tiny_sweeps import TINY, tasks

from reorder.cli import app
from reorder.config import Model
from reorder.report.results import collect
from reorder.runs.directory import RunDir
from reorder.runs.searches import read_search
from reorder.runs.trained import load_trained
from reorder.training import loop as training
from reorder.training.setup import setup
from reorder.training.signals import Stopped
from reorder.training.step import train_step

pytestmark = pytest.mark.slow  # it trains, or starts processes


def of_gpt2(**changes):
    model = Model("hf:gpt2", "16/1/2", 8, 4, {"readout": "last", "resid_pdrop": 0.0})
    return dataclasses.replace(experiment(**changes), model=model)


@pytest.mark.parametrize("kind", ["gpt2", "mamba"])
def test_a_step_changes_every_weight_that_learns_and_no_other(kind):
    run = setup(dataclasses.replace(of_gpt2(), model=Model(f"hf:{kind}", "16/1/2", 8, 4)))
    before = {name: value.clone() for name, value in run.model.named_parameters()}
    images, labels = next(iter(run.loader.epoch(0)))
    for _ in range(3):  # the learning rate starts at zero
        train_step(run, images, labels)
    moved = {name for name, value in run.model.named_parameters() if not torch.equal(value, before[name])}
    learns = {name for name, value in run.model.named_parameters() if value.requires_grad}
    assert moved == learns
    assert len(learns) > 10
    assert len(learns) < len(before)  # words are not read


def test_a_stopped_run_continues_to_the_bit_and_is_evaluated(tmp_path, monkeypatch):
    whole, stopped = RunDir(tmp_path / "whole"), RunDir(tmp_path / "stopped")
    training.train(of_gpt2(), whole, QUIET)
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        with pytest.raises(Stopped):
            training.train(of_gpt2(), stopped, QUIET)
    training.train(of_gpt2(), stopped, QUIET)
    assert_same(stopped, whole)
    trained = load_trained(whole)
    found = trained.model.state_dict()
    kept = {name.removeprefix("model."): value for name, value in weights(whole).items()}
    assert all(torch.equal(value, kept[name]) for name, value in found.items())
    assert trained.evaluate(trained.order).top1 == whole.summary()["top1"]
    (result,) = collect([whole]).results
    assert result.model == "hf:gpt2 16/1/2 readout=last resid_pdrop=0.0"


def test_runs_of_a_configuration_file_are_named_after_what_it_says(tmp_path):
    settings = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 9}
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "config.json").write_text(json.dumps(settings))
    named = [f"model.name=hf:{tmp_path}/{place}" for place in ("here", "there/config.json")]
    (here,), (there,) = (tasks([*TINY, name], tmp_path / "sweep") for name in named)
    assert here.name.rpartition("-")[2] == there.name.rpartition("-")[2]
    assert (here.name.split("-")[:2], there.name.split("-")[:2]) == (["hf", "here"], ["hf", "there"])
    (tmp_path / "here" / "config.json").write_text(json.dumps(settings | {"n_head": 4}))
    (other,) = tasks([*TINY, named[0]], tmp_path / "sweep")
    assert other.name != here.name


def test_a_relative_path_is_that_of_the_directory_it_was_typed_in(tmp_path, monkeypatch):
    (tmp_path / "mine.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert Model("hf:mine.json").name == f"hf:{tmp_path}/mine.json"
    assert (Model("hf:mine.json").label, Model("hf:gpt2").label) == ("hf:mine", "hf:gpt2")
    Path("gpt2").mkdir()
    assert Model("hf:gpt2").name == "hf:gpt2"  # a type, not the directory


def test_a_sweep_refuses_settings_that_do_not_exist_before_anything_starts(tmp_path):
    with pytest.raises(ValueError, match="unknown option 'window'"):
        tasks([*TINY, "model.name=hf:mamba", "model.options.window=4"], tmp_path)


def test_a_search_finds_an_order_for_somebody_elses_model(tmp_path):
    tiny = ["model.name=hf:gpt2", "model.size=16/1/2", "model.patch_size=4", "train.epochs=2"]
    data = ["data.train_images=64", "data.validation_images=20", "train.batch_size=32", "train.threads=1"]
    asked = ["--budget", "3", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path / "s")]
    app(["search", "digits", *tiny, *data, *asked], standalone_mode=False)
    search = read_search(tmp_path / "s")
    assert sorted(search.order_of(search.chosen)) == [0, 1, 2, 3]
    assert search.verdict
    assert all(line["model"] == "hf:gpt2" for line in _summaries(tmp_path))


def _summaries(root):
    return [json.loads(path.read_text()) for path in root.glob("s/**/summary.json")]
