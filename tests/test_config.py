"""Configuration: what is accepted, what is refused, and in which words."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from reorder.config import Experiment, build, difference, to_yaml
from reorder.presets import PRESETS, digits, preset


def test_defaults_are_the_papers_recipe():
    experiment = Experiment()
    assert (experiment.model.image_size, experiment.model.patch_size) == (224, 16)
    assert (experiment.train.epochs, experiment.train.warmup_epochs) == (100, 5)
    assert (experiment.train.learning_rate, experiment.train.weight_decay) == (1e-4, 0.03)
    assert (experiment.order.temperature, experiment.order.learning_rate) == (0.2, 1e-4)
    assert experiment.order.warmup_fraction * 100 == pytest.approx(15)
    assert experiment.order.policy_fraction * 100 == pytest.approx(30)


def test_overrides_and_files_change_typed_values(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("train: {epochs: 7, seed: 3}\nmodel: {image_size: [16, 32]}\n")
    experiment = build(
        digits(), file, ["train.epochs=9", "order.learning_rate=1e-3", "model.options.dropout=0.2"]
    )
    assert (experiment.train.epochs, experiment.train.seed) == (9, 3)
    assert experiment.order.learning_rate == 1e-3
    assert experiment.model.image_shape == (16, 32)
    assert experiment.model.options == {"dropout": 0.2}
    assert experiment.order.scan == "hilbert"  # untouched


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_a_round_trip_through_yaml(name, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(preset(name)))
    assert build(Experiment(), file) == preset(name)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.nmae=vit", r"unknown key 'model.nmae'; choose from model.name, model.size"),
        ("optimiser=adam", r"unknown key 'optimiser'; choose from model.\*, data.\*, train.\*, order.\*"),
        ("train.epochs=many", r"train.epochs: .*'many'"),
        ("train.epochs=1.5", r"train.epochs: .*'1.5'"),
        ("train.compare=perhaps", r"train.compare: .*'perhaps'"),
        ("train=3", "train"),
        ("train.epochs=0", "train.epochs must be a finite number of at least 1, got 0"),
        ("train.learning_rate=nan", "train.learning_rate must be a finite number of at least 0, got nan"),
        ("train.clip=0", "train.clip must be above 0, got 0"),
        ("train.warmup_epochs=inf", "train.warmup_epochs must be a finite number"),
        ("train.seed=99999999999999999999999", "train.seed must be below"),
        ("model.image_size=[8,", r"model.image_size: cannot read the value '\[8,'"),
        ("model.name=???", "model.name: no value given"),
        ("model..name=vit", "unknown key"),
        ("order.policy=local", "order.policy: unknown value 'local'; choose from none, global"),
        ("order.estimator=ppo", "order.estimator: unknown value 'ppo'; choose from paper, exact, scaled"),
        ("order.policy_fraction=0.9", r"0.15 \+ 0.9 > 1"),
        ("data.augment=cutmix", "data.augment: unknown value 'cutmix'; choose from flip, none"),
        ("model.image_size=big", "model.image_size must be N or"),
        ("model.image_size=[8]", "model.image_size must be N or"),
        ("model.image_size=-8", "model.image_size must be N or"),
        ("model.patch_size=0", "model.patch_size must be a finite number of at least 1"),
        ("epochs", "not a preset, a YAML file or a key=value override: 'epochs'"),
    ],
)
def test_bad_overrides_are_one_line_that_names_them(override, said):
    with pytest.raises(ValueError, match=said) as caught:
        build(Experiment(), overrides=[override])
    assert "\n" not in str(caught.value)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*absent.yaml"):
        build(Experiment(), tmp_path / "absent.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("train: [1, 2\n")
    with pytest.raises(ValueError, match=r"broken.yaml is not a YAML configuration"):
        build(Experiment(), broken)
    broken.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match=r"broken.yaml is not a YAML configuration"):
        build(Experiment(), broken)
    broken.write_text("train: {epoch: 3}\n")
    with pytest.raises(ValueError, match=r"unknown key 'train.epoch'; choose from train.epochs"):
        build(Experiment(), broken)


def test_the_first_difference_is_named():
    other = build(digits(), overrides=["order.scan=row", "train.seed=4"])
    assert difference(digits(), digits()) == ""
    assert difference(digits(), other) == "train.seed is 0, not 4"


def test_order_files_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert build(digits(), overrides=["order.scan=mine.json"]).order.scan == str(tmp_path / "mine.json")


def test_unknown_presets_are_named():
    with pytest.raises(ValueError, match="unknown preset 'digit'; choose from digits"):
        preset("digit")


def test_the_documents_list_every_key_with_its_default():
    text = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z_.]+)` \| (.*?) \|", text, re.MULTILINE))
    expected = {
        f"{section}.{key}": value
        for section, keys in dataclasses.asdict(Experiment()).items()
        for key, value in keys.items()
        if key != "options"
    }
    assert {key: yaml.safe_load(value) for key, value in listed.items()} == expected


def test_the_file_in_the_documents_is_accepted(tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    (file,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "birds.yaml").write_text(file)
    found = build(Experiment(), tmp_path / "birds.yaml")
    assert (found.model.name, found.train.epochs, found.order.learning_rate) == ("mamba", 30, 1e-3)
