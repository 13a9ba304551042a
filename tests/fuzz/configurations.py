"""YAML files: wrong values where overrides have them, and what only a file can hold."""

from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz.case import ACCEPT, EITHER, REFUSE, SECRET_NAME, Case, command
from fuzz.damage import ODD_VALUES, damage_bytes, short
from fuzz.overrides import CHOICE, KEYS, NO_NUMBER, NO_TRUTH, NOT_REAL, NOT_WHOLE, REAL, TRUTH, WHOLE
from reorder.config import Experiment, build, to_yaml
from reorder.experiments.presets import preset

SHARE, COST = 12, 3

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
    for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS = [
    ("billion laughs", LAUGHS),
    (
        "billion laughs as options",
        "model:\n  options:\n" + "".join(f"    {line}\n" for line in LAUGHS.splitlines()),
    ),
    ("a command", "train: !!python/object/apply:os.system ['touch pwned']"),
    ("a python name", "train: !!python/name:os.system ''"),
    ("a list", "- train\n- model\n"),
    ("a number", "5\n"),
    ("a text", "train\n"),
    ("two documents", "train:\n  seed: 1\n---\ntrain:\n  seed: 2\n"),
    ("a key twice", "train:\n  seed: 1\n  seed: 2\n"),
    ("a section twice", "train:\n  seed: 1\ntrain:\n  epochs: 2\n"),
    ("an unknown key", "train:\n  epoch: 3\n"),
    ("an unknown section", "training:\n  epochs: 3\n"),
    ("a key that is no text", "train:\n  1: 3\n"),
    ("a key that is a list", "? [a, b]\n: 3\n"),
    ("a key that is null", "null: 3\n"),
    ("tabs", "train:\n\tepochs: 3\n"),
    ("an alias to nothing", "train: *nothing\n"),
    ("an anchor to itself", "train: &a\n  seed: *a\n"),
    ("a merge of a text", "train:\n  <<: text\n"),
    ("a section of a number", "train: 5\n"),
    ("a section of a list", "train: [epochs]\n"),
    ("400 digits", f"train:\n  seed: {'9' * 400}\n"),
    ("5,000 digits", f"train:\n  seed: {'9' * 5000}\n"),
    ("a time", "train:\n  warmup_epochs: 1:30:00\n"),
    ("a time as minutes", "train:\n  checkpoint_minutes: 1:30:00\n"),
    ("a date", "train:\n  seed: 2020-01-01\n"),
    ("10,000 brackets", "train: " + "[" * 10_000),
    ("5,000 braces", "train: " + "{a: " * 5_000 + "}" * 5_000),
    ("deep", "".join("  " * depth + "a:\n" for depth in range(1, 1500))),
    ("a required value", "train:\n  seed: ???\n"),
    ("a control character", "train:\n  seed: \x07\n"),
]
WITH_SECRET = [
    "${oc.env:" + SECRET_NAME + "}",
    "x${oc.env:" + SECRET_NAME + "}",
    "${oc.env:NOTHING,${oc.env:" + SECRET_NAME + "}}",
    "${oc.decode:${oc.env:" + SECRET_NAME + "}}",
]


def make(random: Random, folder: Path, ready: Path) -> Case:
    what, content, expect = random.choice([_right, _text, _value, _value, _value, _odd, _secret, _bytes])(
        random
    )
    file = folder / random.choice(["a.yaml", "a.yml", "[/x].yaml", "é.yaml"])
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    if random.random() < 0.02:
        file.unlink()
        file.mkdir()
        what, expect = "a folder", REFUSE
    if expect == REFUSE and random.random() < 0.08:
        return Case(f"train: {what}", REFUSE, lambda: command("train", file, "--out", folder / "run"))
    return Case(what, expect, lambda: build(Experiment(), file), lambda found: _wrong(folder))


def _wrong(folder: Path) -> str:
    return "a command of the file was run" if (folder / "pwned").exists() else ""


def _right(random: Random) -> tuple[str, bytes, str]:
    name = random.choice(["digits", "paper/vit-imagenet-row"])
    content = yaml.safe_load(to_yaml(preset(name)))
    for section in random.sample(list(content), random.randrange(3)):
        del content[section]
    return f"as it should be, of {name}", yaml.safe_dump(content).encode(), ACCEPT


def _text(random: Random) -> tuple[str, bytes, str]:
    what, text = random.choice(TEXTS)
    return what, text.encode(), REFUSE


def _value(random: Random) -> tuple[str, bytes, str]:
    """A key of the wrong type or out of range, as it is written in a file."""
    table, wrong = random.choice(
        [(WHOLE, NO_NUMBER + NOT_WHOLE), (REAL, NO_NUMBER + NOT_REAL), (TRUTH, NO_TRUTH), (CHOICE, NO_NUMBER)]
    )
    key = random.choice(list(table))
    value = random.choice([*wrong, *table[key][1]] if table is not TRUTH else wrong)
    section, _, name = key.partition(".")
    expect = REFUSE
    if value == "" and table is not TRUTH and "null" in table[key][0]:
        expect = ACCEPT  # no value in a file is null, which these keys take
    return f"{key}: {value[:60]}", f"{section}:\n  {name}: {value}\n".encode(), expect


def _odd(random: Random) -> tuple[str, bytes, str]:
    """A value that no JSON schema would let in, anywhere."""
    key, value = random.choice(KEYS), random.choice(ODD_VALUES)
    section, _, name = key.partition(".")
    content: Any = {section: {name: value}}
    return f"{key}: {short(value)}", yaml.safe_dump(content).encode("utf-8", "surrogatepass"), EITHER


def _secret(random: Random) -> tuple[str, bytes, str]:
    section, _, name = random.choice(KEYS).partition(".")
    value = random.choice(WITH_SECRET)
    return f"{section}.{name}: {value}", yaml.safe_dump({section: {name: value}}).encode(), EITHER


def _bytes(random: Random) -> tuple[str, bytes, str]:
    content = to_yaml(preset("digits")).encode()
    if random.random() < 0.2:
        coding = random.choice(["utf-16", "utf-32"])
        return f"in {coding}", content.decode().encode(coding), EITHER
    what, damaged = damage_bytes(random, content)
    return what, damaged, EITHER
