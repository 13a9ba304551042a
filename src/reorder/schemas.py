"""What every file that is read from a run, or from the prior's cache, must hold: a rule for each key.

`read` is the one way to such a file. What it returns has been checked, so that nobody else has to; what is
missing, unreadable or wrong is a ValueError of one line that names the file, the key and the value found.
"""

import errno
import json
import reprlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import torch
from safetensors.torch import load as tensors_of
from torch import Tensor

from reorder.backbones import BACKBONES
from reorder.config import Experiment, build
from reorder.scans import SCANS

# M moments of a run, N patches, n images

POLICIES = ("none", "noise", "global", "random")
LARGEST = 1e300  # larger numbers overflow when they are computed with
LARGEST_POLICY = 2**27  # bytes; 300 epochs of 4,096 patches have 6 million
LARGEST_INTEGER = 2**63 - 1
# Errors of the disk that speak of the file itself, not of who reads it or when.
DAMAGE = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EIO)


class Unreadable(ValueError):
    """A file that may well be sound, but cannot be read here and now: without permission, for example."""


# Rules


class Rule(NamedTuple):
    """What a value must be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


Rules = Mapping[str, Any]  # a rule, or more rules, for each key; one that may be missing ends in ?


def number(low: float, high: float = LARGEST) -> Rule:
    words = f"a number of at least {low:g}" if high == LARGEST else f"a number from {low:g} to {high:g}"
    return Rule(words, lambda value: type(value) in (int, float) and low <= value <= high)


def whole(low: int) -> Rule:
    return Rule(
        f"an integer from {low} up", lambda value: type(value) is int and low <= value <= LARGEST_INTEGER
    )


def one_of(choices: Collection[str]) -> Rule:
    return Rule(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


def list_of(rule: Rule, length: int | None = None) -> Rule:
    def holds(value: Any) -> bool:
        return isinstance(value, list) and length in (None, len(value)) and all(map(rule.holds, value))

    return Rule(f"a list of {'' if length is None else f'{length}, each '}{rule.words}", holds)


def array(types: tuple[type, ...], dimensions: int) -> Rule:
    """An array without NaN or infinity."""

    def holds(value: Any) -> bool:
        fits = isinstance(value, np.ndarray) and value.dtype in types and value.ndim == dimensions
        return fits and bool(np.isfinite(value).all())

    return Rule(f"an array of {dimensions} dimensions of finite {types[0].__name__}", holds)


ANY_NUMBER = Rule(  # a loss may be infinite, or not a number
    "a number", lambda value: type(value) is float or (type(value) is int and abs(value) <= LARGEST)
)
FRACTION = number(0, 1)
TEXT = Rule("text", lambda value: isinstance(value, str))
TEXT_OR_NONE = Rule("text or null", lambda value: value is None or isinstance(value, str))
TRUTH = Rule("true or false", lambda value: type(value) is bool)
OBJECT = Rule("an object", lambda value: isinstance(value, dict))
FLOATS = (np.float64, np.float32)

# What the files hold

SUMMARY = {
    "model": one_of(BACKBONES),
    "size": TEXT,
    "grid": list_of(whole(1), 2),
    "scan": TEXT,
    "order_file?": OBJECT,
    "prior_scan?": one_of(SCANS),
    "policy": one_of(POLICIES),
    "epochs": whole(1),
    "seed": whole(0),
    "top1": FRACTION,
    "top1_sem": number(0),
    "top5": FRACTION,
    "validation_images?": whole(1),
    "parameters": whole(1),
    "images_per_second": number(0),
    "seconds": number(0),
    "wall_seconds?": number(0),
    "order": list_of(whole(0)),
}
EPOCH = {"epoch": whole(1), "validation_top1": FRACTION, "validation_loss": ANY_NUMBER, "step?": whole(0)}
POLICY = {
    "epochs": array((*FLOATS, np.int64), 1),
    "stages": Rule(
        "an array of text", lambda value: isinstance(value, np.ndarray) and value.dtype.kind == "U"
    ),
    "temperatures": array(FLOATS, 1),
    "logits": array(FLOATS, 2),
    "initial": array((np.int64,), 1),
}
CORRECT = Rule(
    "an array (n,) of bool, n > 0",
    lambda value: array((np.bool_,), 1).holds(value) and len(value) > 0,
)
PRIOR = {"chosen": {"scan": one_of(SCANS)}}
REDUCTION = {"reduction": number(-LARGEST), "reduction_sem": number(0)}
DRAWN_PRIOR = {
    "grid": list_of(whole(1), 2),
    "orders": OBJECT,
    "data?": {"name": TEXT, "root?": TEXT_OR_NONE},
    "tokenizer?": {"tokenizer?": TEXT},
}
SUMS = {"weights.safetensors": TEXT, "state.pt": TEXT}
WEIGHTS = Rule("tensors of a model", lambda value: any(name.startswith("model.") for name in value))
MOMENT = Rule(
    "a moment of the policy",
    lambda value: (
        isinstance(value, tuple)
        and [type(part) for part in value] == [float, str, float, Tensor]
        and value[3].dim() == 1
    ),
)
STATE = {
    "step": whole(0),
    "seconds": number(0),
    "skipped": whole(0),
    "skipped_in_a_row": whole(0),
    "metrics": list_of(OBJECT),
    "moments": list_of(MOMENT),
    "so_far": {"loss": ANY_NUMBER, "right": number(0), "seen": number(0), "began": number(0)},
    "optimizer": {"state": OBJECT, "param_groups": list_of(OBJECT)},
    "scaler": OBJECT,
    "broken": Rule("paths", lambda value: isinstance(value, dict) and all(map(TEXT.holds, value))),
    "wall_seconds?": number(0),
    "start_step?": whole(0),
    "stop_step?": whole(0),
}
SPREAD = {"": FRACTION, "_sem": number(0), "_interval": list_of(FRACTION, 2)}
RESULT = {
    "data": {"name": TEXT},
    "step": whole(0),
    "images": whole(1),
    "loss": ANY_NUMBER,
    "loss_sem": ANY_NUMBER,
    **{f"{name}{end}": rule for name in ("top1", "top5") for end, rule in SPREAD.items()},
}
KEPT = {"version": whole(0), "sha256": TEXT}
TOKENIZER = KEPT | {"settings": OBJECT}
FACTS = KEPT | {
    "facts": {
        "tokenizer": TEXT,
        "images": whole(1),
        "codebook_size": whole(1),
        "codes_used": whole(0),
        "perplexity": number(0),
        "collapsed": TRUTH,
        "broken": list_of(TEXT),
        "mse_of_variance?": number(0),
    }
}


def check(value: Any, rule: Rule | Rules, name: str = "it") -> None:
    """Refuse a value that breaks a rule, or an object of which a key does."""
    if isinstance(rule, Rule):
        if not rule.holds(value):
            raise ValueError(f"{name} must be {rule.words}, found {_shown(value)}")
        return
    check(value, OBJECT, name)
    for key, inner in rule.items():
        if (plain := key.removesuffix("?")) in value:
            check(value[plain], inner, f'"{plain}"' if name == "it" else f'{name[:-1]}.{plain}"')
        elif plain == key:
            raise ValueError(f'{name} lacks "{key}"')


def _shown(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray | Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return " ".join(reprlib.repr(value).split())


def check_order(order: Any, patches: int, name: str) -> None:
    """Refuse an order that does not name every patch once."""
    if sorted(order) != list(range(patches)):
        raise ValueError(f"{name} does not name each of {patches} patches once")


# Files by their names


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _summary(path: Path) -> Any:
    content = _json(path)
    check(content, SUMMARY)
    check_order(content["order"], content["grid"][0] * content["grid"][1], '"order"')
    return content


def _metrics(path: Path) -> Any:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for place, line in enumerate(lines, start=1):
        check(line, EPOCH, f'"line {place}"')
    return lines


def _policy(path: Path) -> Any:
    with ZipFile(path) as archive:
        unpacked = sum(file.file_size for file in archive.infolist())
    if unpacked > LARGEST_POLICY:
        raise ValueError(f"it unpacks to {unpacked} bytes, more than the limit of {LARGEST_POLICY}")
    with np.load(path) as arrays:
        found = dict(arrays)
    check(found, POLICY)
    moments, patches = found["logits"].shape
    for key in ("epochs", "stages", "temperatures"):
        if found[key].shape != (moments,) or not moments:
            raise ValueError(f'"{key}" is {_shown(found[key])}, but there are {moments} moments')
    check_order(found["initial"].tolist(), len(found["initial"]), '"initial"')
    if patches not in (0, len(found["initial"])):
        raise ValueError(f'"logits" are of {patches} patches, "initial" of {len(found["initial"])}')
    if (found["epochs"] < 0).any():
        raise ValueError('"epochs" must not be negative')
    return found


def _drawn_prior(path: Path) -> Any:
    content = _json(path)
    check(content, DRAWN_PRIOR)
    for name, kinds in content["orders"].items():
        check(kinds, OBJECT, f'"orders.{name}"')
        for kind, found in kinds.items():
            check(found, OBJECT, f'"orders.{name}.{kind}"')
            if "reduction" in found:
                check(found, REDUCTION, f'"orders.{name}.{kind}"')
    return content


def _state(path: Path) -> Any:
    content = torch.load(path, weights_only=True)
    check(content, STATE)
    for line in content["metrics"]:
        check(line, EPOCH | {"step": whole(0)}, '"metrics"')
    if ("start_step" in content) != ("stop_step" in content):
        raise ValueError('"start_step" and "stop_step" belong together')
    if len({len(moment[3]) for moment in content["moments"]}) != 1:
        raise ValueError('"moments" must hold as many logits each, and at least one moment')
    return content


def _config(path: Path) -> Experiment:
    with open(path):  # so that a missing permission is told as such
        return build(Experiment(), path)


def _tensors(path: Path) -> dict[str, Tensor]:
    return tensors_of(path.read_bytes())  # not by its name, which the library wants to be UTF-8


def _plain(rules: Rule | Rules, load: Callable[[Path], Any] = _json) -> Callable[[Path], Any]:
    """A reader of files that one check is enough for."""

    def read_checked(path: Path) -> Any:
        content = load(path)
        check(content, rules)
        return content

    return read_checked


AGAIN = "remove summary.json and continue the run, which writes it again"
FILES: dict[str, tuple[Callable[[Path], Any], str]] = {  # how each is read, and what to do if it cannot be
    "config.yaml": (_config, "mend it, or remove the run directory to start anew"),
    "summary.json": (_summary, "remove it and continue the run, which writes it again"),
    "metrics.jsonl": (_metrics, AGAIN),
    "policy.npz": (_policy, AGAIN),
    "correct.npy": (_plain(CORRECT, np.load), AGAIN),
    "prior.json": (_plain(PRIOR), "remove it to have it measured again"),
    "drawn prior": (_drawn_prior, "give what `reorder prior` wrote"),
    "sha256.json": (_plain(SUMS), "start anew"),
    "weights.safetensors": (_plain(WEIGHTS, _tensors), "start anew"),
    "state.pt": (_state, "start anew"),
    "result.json": (_plain(RESULT), "remove its directory to evaluate anew"),
    "facts.json": (_plain(FACTS), "remove it to have it measured again"),
    "tokenizer.json": (_plain(TOKENIZER), "remove it to have it fitted again"),
}


def read(path: Path, kind: str | None = None) -> Any:
    """What a file holds, checked; its name says what kind of file it is, unless that is given."""
    load, remedy = FILES[kind or path.name]
    try:
        return load(path)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {remedy}") from None
    except Exception as error:  # damaged files make their readers raise almost anything
        if isinstance(error, OSError) and error.strerror and error.errno not in DAMAGE:
            raise Unreadable(f"cannot read {path}: {error.strerror}") from None
        said = (str(error).replace(str(path), "it").strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is damaged: {said}; {remedy}") from error
