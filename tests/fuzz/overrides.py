"""key=value overrides: every key with values of the wrong type or out of its range, and odd text."""

import dataclasses
from pathlib import Path
from random import Random

from fuzz.case import ACCEPT, EITHER, REFUSE, SECRET_NAME, Case, command
from fuzz.ready import SMALL
from reorder.config import Experiment, build
from reorder.experiments.arguments import plans_of
from reorder.experiments.grids import tasks_of
from reorder.experiments.presets import preset

SHARE, COST = 20, 3

# What each key takes, by the documents: some right values, and some wrong ones beyond those of its type.
WHOLE = {
    "model.patch_size": (["1", "2", "4", "8"], ["0", "-4"]),
    "data.workers": (["0", "3", "null"], ["-1"]),
    "data.max_broken": (["0", "10"], ["-1"]),
    "data.max_pixels": (["1", "1000000", "null"], ["0", "-5"]),
    "data.train_images": (["1", "64", "null"], ["0", "-1"]),
    "data.validation_images": (["1", "null"], ["0", "-1"]),
    "data.held_out": (["1", "16", "null"], ["0", "-1"]),
    "train.epochs": (["1", "300"], ["0", "-3"]),
    "train.batch_size": (["1", "64"], ["0", "-64"]),
    "train.accumulate": (["1"], ["0", "-1"]),
    "train.threads": (["0", "2"], ["-1"]),
    "train.checkpoint_steps": (["0", "5"], ["-1"]),
    "train.keep": (["1", "3"], ["0", "-1"]),
    "train.seed": (["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
}
REAL = {
    "train.learning_rate": (["0.001", "1e-3", "1"], ["-1"]),
    "train.weight_decay": (["0", "0.03"], ["-0.1"]),
    "train.clip": (["1", "0.5"], ["0", "-1"]),
    "train.ema": (["0", "0.999"], ["1", "1.5", "-0.1"]),
    "train.checkpoint_minutes": (["0", "10.5"], ["-1"]),
    "order.temperature": (["0", "0.2"], ["-0.2"]),
    "order.learning_rate": (["0", "0.1", "null"], ["-1"]),
    "order.warmup_fraction": (["0", "0.2", "null"], ["-0.1", "1.1"]),
    "order.policy_fraction": (["0", "0.3", "null"], ["-0.1", "1.1"]),
}
TRUTH = {
    "data.crop_to_box": (["false"], ["true"]),
    "data.stream": (["false"], ["true"]),
    "train.decay_all": (["true", "false"], []),
    "train.compile": (["true", "false"], []),
    "train.compare": (["true", "false"], []),  # or a list of names
}
CHOICE = {
    "data.augment": (["flip", "none"], ["crop", "FLIP", "flip,none"]),
    "train.precision": (["float32", "bfloat16"], ["float64", "32"]),
    "train.track": (["none", "tensorboard"], ["mlflow"]),
    "order.tokenizer": (["kmeans", "vqvae"], ["gzip"]),
    "order.policy": (["none", "global", "blocks", "noise", "random"], ["local", "None"]),
    "order.estimator": (["paper", "exact", "scaled"], ["reinforce"]),
    "order.warmup_order": (["row", "init", "null"], ["column"]),
}
NO_NUMBER = [
    "abc",
    "[1]",
    "{a: 1}",
    "1 2",
    "1,2",
    "one",
    "1:30:00",
    "0x",
    "--1",
    "",
    "?",
    "???",
    "!!int x",
    "&a 1x",
    "*a",
    "2020-01-01",
    "9" * 400 + "x",
    "[" * 200,
    "{a: " * 200,
]
NOT_WHOLE = ["1.5", "nan", "inf", "true", "1e400", "-.inf", "9" * 400]
NOT_REAL = ["nan", ".nan", "-inf", "true", "[]", "1e400x"]
NO_TRUTH = ["abc", "2", "[]", "[true]", "[[row]]", "{a: true}", "1:30:00", "nan", "9" * 400]
ODD = [
    "${.}",
    "${..}",
    "${train.seed}",
    "${train}",
    "${oc.env:" + SECRET_NAME + "}",
    "a${oc.env:" + SECRET_NAME + "}b",
    "${oc.env:HOME,x}",
    "${oc.decode:1}",
    "${oc.create:{a: 1}}",
    "${",
    "${}",
    "$",
    "\\${train.seed}",
    "${train.epochs}${train.epochs}",
    "${${train.track}}",
    "'${train.seed}'",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "[/x]",
    "<b>",
    "[" * 2000,
    "]" * 2000,
    "{" * 500,
    "'" * 99,
    '"unclosed',
    "a: b: c",
    "a" * 100_000,
    "!!python/object/apply:os.system [x]",
    "!!binary x",
    "!!set {a}",
    "? x",
    "- - - -",
    "@",
    "`",
    "%",
    "|",
    ">",
    "é" * 1000,
    "1_000",
    "0o17",
    "0b11",
    "1e5",
    "~",
    "yes",
    "NULL",
    "&a [*a]",
    "{<<: 1}",
    "#",
]
KEYS = [
    f"{section.name}.{field.name}"
    for section in dataclasses.fields(Experiment)
    for field in dataclasses.fields(getattr(Experiment(), section.name))
]
BAD_KEYS = [
    "foo",
    "train.epoch",
    "train",
    "",
    ".",
    "..",
    ".train.epochs",
    "train..epochs",
    "train.epochs.",
    "train.epochs.x",
    "model.options.",
    "TRAIN.epochs",
    "train epochs",
    "train.épochs",
    "train[epochs",
    "train]epochs",
    "[/x]",
    "${train}",
    "train.__class__",
    "train.__post_init__",
    "model.image_shape",
    "a" * 5000,
    ".".join("a" * 500),
    "\x00",
    "\ud800",
]
OPTIONS = [
    "model.options=5",
    "model.options=[1]",
    "model.options.dropout=abc",
    "model.options.dropout=-1",
    "model.options.dropout=nan",
    "model.options.dropout=2",
    "model.options.dropout=[0.1]",
    "model.options.dropout={a: 1}",
    "model.options.dropout=null",
    "model.options.nothing=1",
    "model.options.name=vit",
    "model.options.classes=3",
    "model.options.self=1",
    "model.options.window=0",
    "model.name=resnet",
    "model.name=",
    "model.name=[vit]",
    "model.size=huge",
    "model.size=null",
    "model.image_size=0",
    "model.image_size=-8",
    "model.image_size=[8]",
    "model.image_size=[8,8,8]",
    "model.image_size=[8,a]",
    "model.image_size=8.5",
    "model.image_size=abc",
    "model.image_size=null",
    "model.image_size={a: 1}",
    "model.image_size=[]",
    "model.image_size=9",
    "model.image_size=1000000000",
    "model.image_size=[8,1000000000]",
    "model.image_size=true",
    "model.patch_size=16",
    "model.patch_size=3",
    "order.scan=zigzag",
    "order.scan=",
    "order.scan=[row]",
    "order.scan=missing.json",
    "order.scan=/etc/passwd",
    "order.scan=.json",
]


def make(random: Random, folder: Path, ready: Path) -> Case:
    kind = random.choice(["right", "right", "type", "type", "type", "range", "odd", "odd", "key", "model"])
    if kind == "right":
        return _right(random)
    override, expect = _wrong_one(random, kind)
    arguments = [override]
    if random.random() < 0.3:
        another = random.choice(["train.seed=1", "order.scan=spiral", "data.augment=none"])
        if another.partition("=")[0] != override.partition("=")[0]:
            arguments.insert(random.randrange(2), another)
    if expect == REFUSE and random.random() < 0.1 and "\x00" not in override:
        return Case(
            f"train {override[:80]!r}", REFUSE, lambda: command("train", "digits", *SMALL, *arguments)
        )
    if kind == "model" or (expect == EITHER and random.random() < 0.3):
        return Case(
            f"sweep {override[:80]!r}",
            expect,
            lambda: tasks_of(plans_of(["digits", *arguments])[0], folder / "runs"),
        )
    return Case(f"{override[:80]!r}", expect, lambda: build(preset("digits"), overrides=arguments))


def _right(random: Random) -> Case:
    """Some keys with values that they take; the experiment must have them."""
    values: dict[str, str] = {}
    for table in (WHOLE, REAL, CHOICE, TRUTH):
        for key in random.sample(list(table), min(len(table), random.randrange(3))):
            values[key] = random.choice(table[key][0])

    def wrong(found: Experiment) -> str:
        for key, text in values.items():
            section, _, name = key.partition(".")
            value = getattr(getattr(found, section), name)
            kind = float if key in WHOLE or key in REAL else str
            given = {"true": True, "false": False, "null": None}.get(text, text if kind is str else 0)
            if given == 0 and given is not False:
                same = float(value) == float(text)
            else:
                same = value is given or value == given
            if not same:
                return f"{key}={text} became {value!r}"
        return ""

    arguments = [f"{key}={value}" for key, value in values.items()]
    return Case(f"{' '.join(arguments)}", ACCEPT, lambda: build(preset("digits"), overrides=arguments), wrong)


def _wrong_one(random: Random, kind: str) -> tuple[str, str]:
    """An override with something wrong, and what is expected of it."""
    if kind == "type":
        table, wrong = random.choice(
            [
                (WHOLE, NO_NUMBER + NOT_WHOLE),
                (REAL, NO_NUMBER + NOT_REAL),
                (TRUTH, NO_TRUTH),
                (CHOICE, NO_NUMBER),
            ]
        )
        key, value = random.choice(list(table)), random.choice(wrong)
        nothing = value == "" and "null" in table[key][0]
        return f"{key}={value}", EITHER if nothing else REFUSE
    if kind == "range":
        table = random.choice([WHOLE, REAL, CHOICE])
        key = random.choice(list(table))
        return f"{key}={random.choice(table[key][1])}", REFUSE
    if kind == "odd":
        return f"{random.choice(KEYS)}={random.choice(ODD)}", EITHER
    if kind == "key":
        if random.random() < 0.1:
            return random.choice(KEYS), REFUSE  # no value at all
        return f"{random.choice(BAD_KEYS)}={random.choice(['1', 'x', '', '[1]'])}", REFUSE
    return random.choice(OPTIONS), REFUSE
