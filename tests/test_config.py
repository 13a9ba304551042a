"""Configuration: what is accepted, what is refused, and in which words."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from reorder.config import Experiment, Model, Train, build, difference, notes, to_yaml
from reorder.experiments.presets import PRESETS, digits, preset
from reorder.runs.directory import RunDir


def test_defaults_are_the_papers_recipe():
    experiment = Experiment()
    assert (experiment.model.image_size, experiment.model.patch_size) == (224, 16)
    assert (experiment.train.epochs, experiment.train.warmup_epochs) == (100, 5)
    assert (experiment.train.learning_rate, experiment.train.weight_decay) == (1e-4, 0.03)
    assert experiment.order.temperature == 0.2
    paper = build(experiment, overrides=["order.estimator=paper"]).order.curriculum
    assert (100 * paper.warmup_fraction, 100 * paper.policy_fraction) == pytest.approx((15, 30))
    assert paper.warmup_order == "row"


def test_a_curriculum_is_the_estimators_but_for_what_is_given():
    order = build(Experiment(), overrides=["order.policy_fraction=0.4"]).order
    assert order.curriculum == (0.05, 0.4, "random")
    order = build(Experiment(), overrides=["order.estimator=scaled", "order.warmup_order=init"]).order
    assert order.curriculum == (0.15, 0.3, "init")


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
        ("order.policy_fraction=0.96", r"0.05 \+ 0.96 > 1"),
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


SECRET = "${oc.env:REORDER_TEST_SECRET}"


def test_nothing_is_filled_in_from_the_environment_or_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("REORDER_TEST_SECRET", "swordfish")
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(digits()).replace("root: null", f"root: {SECRET}"))
    attempts = [
        lambda: build(Experiment(), file),
        lambda: RunDir(tmp_path).experiment(),
        lambda: build(Experiment(), overrides=[f"data.root={SECRET}"]),
        lambda: build(Experiment(), overrides=[f"model.options.a=[{{b: '{SECRET}'}}]"]),
        lambda: build(Experiment(), overrides=[f"train={SECRET}", "train.epochs=3"]),
        lambda: build(Experiment(model=Model(name=SECRET))),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="is not filled in; write the value itself") as caught:
            attempt()
        assert "swordfish" not in str(caught.value)
        assert "\n" not in str(caught.value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / SECRET.replace("/", "")).mkdir()
    monkeypatch.chdir(tmp_path / SECRET)  # a path that becomes absolute must not be filled in either
    with pytest.raises(ValueError, match="is not filled in"):
        build(Experiment(), overrides=["data.root=images"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.epochs=${.}", r"train.epochs: '\$\{.\}' has a \$\{...\}, which is not filled in"),
        ("model.image_size=" + "[" * 200 + "]" * 200, "more than 6 levels of nested values"),
        ("model.image_size=" + "[" * 3000, "model.image_size: cannot read the value"),
        (".".join("a" * 2000) + "=1", "more than 6 levels of nested values"),
        ("train.epochs=" + "9" * 400, r"train.epochs must be below 2\*\*63, got a number of 400 digits"),
        ("train.learning_rate=-" + "9" * 400, r"train.learning_rate must be below 2\*\*63"),
        ("train.epochs=" + "9" * 5000, "train.epochs: cannot read the value"),
        ("model.options={1: 2}", "model.options: 1 is not the name of a key"),
        ("model.options.a=!!binary aGk=", "model.options.a: cannot read the value b'hi'"),
        ("model.options={a: 1, a: 2}", "model.options: cannot read the value"),
        ("model.options=[&a [1], *a]", "model.options: cannot read the value"),
        ("data.root=~nobody-of-this-name/x", "data.root: cannot use the path '~nobody-of-this-name/x'"),
        (r'data.root="\0"', r"data.root: cannot use the path"),
        ("train.epochs=1:30:00", "train.epochs: .*'1:30:00'"),
        ("model.options.=5", "unknown key 'model.options.'; choose from"),
        (
            "train.epochs=" + "a" * 5000,
            "train.epochs: a text of 5000 characters; no value has more than 4096",
        ),
        ("train.decay_all=2", "train.decay_all is true or false, got 2"),
        ("train.checkpoint_steps=-1", "train.checkpoint_steps must be a finite number of at least 0, got -1"),
        ("order.baseline_start=one", "order.baseline_start: unknown value 'one'; choose from first, zero"),
        ("train.hold_epochs=-1", "train.hold_epochs must be a finite number of at least 0, got -1"),
        ("train.learning_rate_floor=1.1", r"train.learning_rate_floor must be in \[0, 1\], got 1.1"),
        ("train.learning_rate_floor=nan", r"train.learning_rate_floor must be in \[0, 1\], got nan"),
        ("order.inverse_logits=2", "order.inverse_logits is true or false, got 2"),
        ("order.clip=0", "order.clip must be above 0, got 0"),
        ("order.clip=nan", "order.clip must be above 0, got nan"),
        (
            "order.temperature_advances=day",
            "temperature_advances: unknown value 'day'; choose from step, epoch",
        ),
        (
            "order.temperature_advances=epoch",
            "order.temperature_advances=epoch is for order.estimator=paper, not for straight-through",
        ),
    ],
)
def test_strange_values_are_one_line_that_names_their_key(override, said):
    with pytest.raises(ValueError, match=said) as caught:
        build(Experiment(), overrides=[override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30:00", "1:30:00"),
        ("190:20:30.15", "190:20:30.15"),
        ("2026-01-02", "2026-01-02"),
        ("0b11", "0b11"),
        ("012", "012"),
        ("1_000", 1000),
        ("0x10", 16),
        ("-7", -7),
        ("0", 0),
        ("1e-4", 1e-4),
        ("1.5E3", 1500.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("'8'", "8"),
        ("e5", "e5"),
    ],
)
def test_what_looks_like_text_is_text_and_numbers_are_numbers(text, value, tmp_path):
    (tmp_path / "mine.yaml").write_text(f"model: {{options: {{a: {text}}}}}\n")
    for found in (
        build(Experiment(), tmp_path / "mine.yaml"),
        build(Experiment(), overrides=[f"model.options.a={text}"]),
    ):
        assert found.model.options == {"a": value}
        assert type(found.model.options["a"]) is type(value)


def test_numbers_with_leading_zeros_are_not_octal():
    assert build(Experiment(), overrides=["train.seed=010"]).train.seed == 10


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- 1\n- 2\n", "it has no keys"),
        ("just words\n", "it has no keys"),
        ("train: {epochs: 1, epochs: 2}\n", "'epochs' is given twice in line 1"),
        ("train: &a {epochs: 1}\nmodel: *a\n", r"the alias \*a; write the value itself in line 2"),
        ("[" * 5000, "is not a YAML configuration"),
        ("train:\n  seed: ???\n", "mine.yaml: train.seed: no value given"),
        ('model:\n  name: "a\\udc80b"\n', "has half a character, which no file can hold"),
        ("train: {epochs: " + "9" * 5000 + "}\n", "is not a YAML configuration"),
        ("# " + "x" * 1_000_000, "it has more than 1,000,000 bytes"),
        ("train: {epochs: " + "9" * 400 + "}\n", "mine.yaml: train.epochs must be below"),
    ],
)
def test_strange_files_are_one_line_that_names_them(tmp_path, content, said):
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ValueError, match=said) as caught:
        build(Experiment(), tmp_path / "mine.yaml")
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_image_size_may_be_a_tuple_in_python():
    experiment = Experiment(model=Model(image_size=(16, 32)))
    assert build(experiment, overrides=["train.seed=1"]).model.image_shape == (16, 32)


def test_an_empty_file_changes_nothing(tmp_path):
    (tmp_path / "mine.yaml").write_text("# nothing\n")
    assert build(digits(), tmp_path / "mine.yaml") == digits()


def test_huge_numbers_are_refused_or_compared_without_an_error():
    with pytest.raises(ValueError, match=r"train.seed must be below"):
        Train(seed=10**400)
    assert Train(epochs=10**400, batch_size=10**400)  # compared as they are, not as floats


def test_what_is_accepted_but_does_nothing_is_noted():
    assert notes(digits()) == []
    (rate,) = notes(build(digits(), overrides=["train.epochs=2"]))
    assert rate == (
        "train.warmup_epochs=5 does not end before train.epochs=2: the learning rate only rises, to 40% of "
        "train.learning_rate"
    )
    assert notes(build(digits(), overrides=["train.epochs=6"])) == []
    (memory,) = notes(preset("paper/transformer_xl-imagenet-row"))
    assert memory.startswith("model.options.memory=128 has no effect without model.options.segment")
    (same,) = notes(build(digits(), overrides=["model.name=vit", "model.options.readout=last"]))
    assert same.startswith("model.options.readout=last is the same as first")
    (half,) = notes(build(digits(), overrides=["model.name=transformer_xl", "model.options.readout=middle"]))
    assert half.startswith("model.options.readout=middle answers after half of the patches")
    used = ["model.options.memory=8", "model.options.segment=4", "order.policy=global"]
    last = [*used, "order.estimator=straight-through", "model.options.readout=last"]
    (stopped,) = notes(build(digits(), overrides=last))
    assert stopped.startswith("order.estimator=straight-through learns from the class token's segment alone")
    assert notes(build(digits(), overrides=[*last, "order.estimator=paired"])) == []
    assert notes(build(digits(), overrides=[*last, "order.policy=none"])) == []
    assert notes(build(digits(), overrides=[*last, "model.options.memory_gradient=true"])) == []
    assert notes(build(digits(), overrides=used)) == []
    (unused,) = notes(build(digits(), overrides=["data.held_out=9", "data.validation_images=8"]))
    assert unused.startswith("data.validation_images=8 has no effect with data.held_out")
