"""What every file that is read from a run must hold; `read` is the one way to such a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from safetensors.torch import load as tensors_of
from torch import Tensor

from reorder.config import POLICIES, Experiment, build
from reorder.models.backbones import BACKBONES
from reorder.orders.scans import SCANS
from reorder.orders.schema import (
    ANY_NUMBER,
    FLOATS,
    FRACTION,
    LARGEST,
    OBJECT,
    TEXT,
    TEXT_OR_NONE,
    TRUTH,
    Rule,
    array,
    check,
    check_order,
    checked_by,
    list_of,
    number,
    one_of,
    read_file,
    read_json,
    shown,
    whole,
)

# M moments of a run, N patches, n images

LARGEST_ARRAYS = 2**27  # bytes; the policy of 300 epochs of 4,096 patches has 6 million

DATA = {
    "classes": list_of(TEXT),
    "mean": list_of(ANY_NUMBER),
    "deviation": list_of(number(1e-30)),
    "crop": TRUTH,
    "max_pixels": whole(1),
    "max_whole": whole(1),
}
SUMMARY = {
    "model": Rule(
        f"one of {', '.join(BACKBONES)}, hf:...",
        lambda value: isinstance(value, str) and (value in BACKBONES or value.startswith("hf:")),
    ),
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
    "loss?": ANY_NUMBER,
    "validation_images?": whole(1),
    "own_orders_tau?": number(-1, 1),
    "own_orders_by_class?": number(-LARGEST, 1),
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
OWN_ORDERS = {
    "images": Rule(
        "an array (n, H, W) or (n, H, W, 3) of uint8",
        lambda value: (
            any(array((np.uint8,), dimensions).holds(value) for dimensions in (3, 4))
            and value.shape[3:] in ((), (3,))
            and value.size > 0
        ),
    ),
    "orders": array((np.int64,), 2),
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
SEARCH = {
    "settings": OBJECT,
    "grid": list_of(whole(1), 2),
    "plan": list_of(OBJECT),
    "candidates": list_of(OBJECT),
    "rungs": list_of(OBJECT),
    "chosen": TEXT_OR_NONE,
    "arms": list_of(OBJECT),
    "verdict": TEXT_OR_NONE,
    "seconds": number(0),
}
PLANNED_RUNG = {"source": TEXT, "candidates": whole(1), "epochs": whole(1), "cost": whole(1)}
CANDIDATE = {"name": TEXT, "made": TEXT, "order": list_of(whole(0))}
RUNG = {"source": TEXT, "epochs": whole(1), "images": whole(1), "scores": list_of(OBJECT)}
COMPARED = {
    "top1": FRACTION,
    "top1_sem": number(0),
    "difference": number(-100, 100),
    "difference_sem": number(0),
}
SCORE = {"name": TEXT, "loss": ANY_NUMBER, **COMPARED}
ARM = {"name": TEXT, "order": TEXT, "epochs": whole(1), "runs": list_of(TEXT), **COMPARED}
SPREAD = {"": FRACTION, "_sem": number(0), "_interval": list_of(FRACTION, 2)}
RESULT = {
    "data": {"name": TEXT},
    "step": whole(0),
    "images": whole(1),
    "loss": ANY_NUMBER,
    "loss_sem": ANY_NUMBER,
    **{f"{name}{end}": rule for name in ("top1", "top5") for end, rule in SPREAD.items()},
}


# Files by their names


def check_data(content: Any) -> None:
    """Refuse what is not the content of a data.json."""
    check(content, DATA)
    if not content["classes"]:
        raise ValueError('"classes" must not be empty')
    channels = len(content["mean"])
    if channels not in (1, 3) or len(content["deviation"]) != channels:
        raise ValueError('"mean" and "deviation" must hold a number for each of 1 or 3 channels')


def _data(path: Path) -> Any:
    content = read_json(path)
    check_data(content)
    return content


def _summary(path: Path) -> Any:
    content = read_json(path)
    check(content, SUMMARY)
    check_order(content["order"], content["grid"][0] * content["grid"][1], '"order"')
    return content


def _metrics(path: Path) -> Any:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for place, line in enumerate(lines, start=1):
        check(line, EPOCH, f'"line {place}"')
    return lines


def _arrays(path: Path) -> dict[str, Any]:
    with ZipFile(path) as archive:
        unpacked = sum(file.file_size for file in archive.infolist())
    if unpacked > LARGEST_ARRAYS:
        raise ValueError(f"it unpacks to {unpacked} bytes, more than the limit of {LARGEST_ARRAYS}")
    with np.load(path) as arrays:
        return dict(arrays)


def _policy(path: Path) -> Any:
    found = _arrays(path)
    check(found, POLICY)
    moments, patches = found["logits"].shape
    for key in ("epochs", "stages", "temperatures"):
        if found[key].shape != (moments,) or not moments:
            raise ValueError(f'"{key}" is {shown(found[key])}, but there are {moments} moments')
    check_order(found["initial"].tolist(), len(found["initial"]), '"initial"')
    if patches not in (0, len(found["initial"])):
        raise ValueError(f'"logits" are of {patches} patches, "initial" of {len(found["initial"])}')
    if (found["epochs"] < 0).any():
        raise ValueError('"epochs" must not be negative')
    return found


def _own_orders(path: Path) -> Any:
    found = _arrays(path)
    check(found, OWN_ORDERS)
    images, (orders, patches) = len(found["images"]), found["orders"].shape
    if orders != images:
        raise ValueError(f'"orders" are of {orders} images, but there are {images}')
    for place, order in enumerate(found["orders"].tolist(), start=1):
        check_order(order, patches, f'"orders" of image {place}')
    return found


def _drawn_prior(path: Path) -> Any:
    content = read_json(path)
    check(content, DRAWN_PRIOR)
    for name, kinds in content["orders"].items():
        check(kinds, OBJECT, f'"orders.{name}"')
        for kind, found in kinds.items():
            check(found, OBJECT, f'"orders.{name}.{kind}"')
            if "reduction" in found:
                check(found, REDUCTION, f'"orders.{name}.{kind}"')
    return content


def _search(path: Path) -> Any:
    content = read_json(path)
    check(content, SEARCH)
    patches = content["grid"][0] * content["grid"][1]
    lists = {"plan": PLANNED_RUNG, "candidates": CANDIDATE, "rungs": RUNG, "arms": ARM}
    for key, rules in lists.items():
        for place, item in enumerate(content[key]):
            check(item, rules, f'"{key}.{place}"')
    for candidate in content["candidates"]:
        check_order(candidate["order"], patches, f'"order" of {candidate["name"]}')
    names = [candidate["name"] for candidate in content["candidates"]]
    if len(set(names)) < len(names):
        raise ValueError('two of "candidates" have the same name')
    scores = [(rung, score) for rung in content["rungs"] for score in rung["scores"]]
    for _, score in scores:
        check(score, SCORE, '"scores"')
    for name in [*(score["name"] for _, score in scores), content["chosen"]]:
        if name is not None and name not in names:
            raise ValueError(f"{shown(name)} is none of its candidates")
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
    with open(path):  # so that a missing permission is reported as such
        return build(Experiment(), path)


def _tensors(path: Path) -> dict[str, Tensor]:
    return tensors_of(path.read_bytes())  # not by its name, which the library wants to be UTF-8


AGAIN = "remove summary.json and continue the run, which writes it again"
FILES: dict[str, tuple[Callable[[Path], Any], str]] = {  # how each is read, and what to do if it cannot be
    "config.yaml": (_config, "mend it, or remove the run directory to start again"),
    "data.json": (_data, "remove it to number the classes, or continue the run, which writes it again"),
    "summary.json": (_summary, "remove it and continue the run, which writes it again"),
    "metrics.jsonl": (_metrics, AGAIN),
    "policy.npz": (_policy, AGAIN),
    "own_orders.npz": (_own_orders, AGAIN),
    "correct.npy": (checked_by(CORRECT, np.load), AGAIN),
    "prior.json": (checked_by(PRIOR), "remove it to have it measured again"),
    "drawn prior": (_drawn_prior, "give what `reorder prior` wrote"),
    "sha256.json": (checked_by(SUMS), "start again"),
    "weights.safetensors": (checked_by(WEIGHTS, _tensors), "start again"),
    "state.pt": (_state, "start again"),
    "search.json": (_search, "remove the directory it is in to search again"),
    "result.json": (checked_by(RESULT), "remove its directory to evaluate again"),
}


def read(path: Path, kind: str | None = None) -> Any:
    """What a file holds, checked; its name says what kind of file it is, unless that is given."""
    load, remedy = FILES[kind or path.name]
    return read_file(path, load, remedy)
