"""Damage to each file of a run: valid files with wrong content, and damaged bytes."""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file, save_file

from fuzz.case import ACCEPT, EITHER, REFUSE, SECRET_NAME
from fuzz.damage import as_json, damage_bytes, damage_json, short

SAID = "said"  # the command may go on without the run, or without the file, if it names the run
Damaged = tuple[str, str]  # what is wrong, and what is expected of a command that needs the file

NO_NUMBERS: list[Any] = [None, "0.5", [], {}, True, float("nan"), float("inf"), -1, 10**400]
# Values of summary.json that no finished run has; a report needs each of these keys.
SUMMARY: dict[str, list[Any]] = {
    "model": [None, 5, [], "resnet", {}],
    "grid": [None, "2x2", [], [2], [2, 2, 2], [0, 4], [-2, -2], [2.0, 2.0], [10**9, 10**9], ["2", "2"], {}],
    "scan": [None, 5, [], {}],
    "policy": [None, 5, [], "local", {}],
    "seed": [None, "0", [], -1, 1.5, True, float("nan")],
    "top1": [*NO_NUMBERS, 1.5],
    "order": [
        None,
        "row",
        [],
        [0, 1],
        [0, 0, 1, 2],
        [0, 1, 2, 4],
        [0.0, 1.0, 2.0, 3.0],
        [0, 1, 2, "3"],
        {},
        [[0, 1, 2, 3]],
    ],
}
DATA: dict[str, list[Any]] = {
    "classes": [None, "0", [], [0, 1], {}, [None]],
    "mean": [None, 0.5, [], ["0.5"], [0.5, 0.5], {}],
    "deviation": [None, [], [0], [-1.0], ["0.5"], [0.5, 0.5], [float("nan")]],
    "crop": [None, 0, "true", []],
    "max_pixels": [None, 0, -1, 1.5, "9"],
}
METRICS: dict[str, list[Any]] = {"validation_top1": NO_NUMBERS[:-1], "epoch": [None, "1", [], {}]}


def _summary(random: Random, run: Path) -> Damaged:
    path = run / "summary.json"
    return damage_json_file(random, path, SUMMARY)


def damage_json_file(random: Random, path: Path, wrong: dict[str, list[Any]], said: str = SAID) -> Damaged:
    content = json.loads(path.read_text())
    kind = random.choice(["value", "value", "value", "missing", "json", "bytes", "whole"])
    key = random.choice(list(wrong))
    if kind == "value":
        content[key] = random.choice(wrong[key])
        path.write_bytes(as_json(content))
        return f"{key} is {short(content[key])}", said
    if kind == "missing":
        del content[key]
        path.write_bytes(as_json(content))
        return f"no {key}", said
    if kind == "json":
        what, content = damage_json(random, content)
        path.write_bytes(as_json(content))
        return what, EITHER
    if kind == "whole":
        value = random.choice(
            [b"", b"null", b"[]", b"5", b"[[1, 2]]", b'"text"', b"[" * 100_000, b"\xff\xfe", b"{"]
        )
        path.write_bytes(value)
        return f"the whole is {value[:20]!r}", said
    what, damaged = damage_bytes(random, path.read_bytes())
    path.write_bytes(damaged)
    return what, EITHER


def _metrics(random: Random, run: Path) -> Damaged:
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kind = random.choice(["value", "value", "missing", "line", "bytes", "gone"])
    line, key = random.randrange(len(lines)), random.choice(list(METRICS))
    if kind == "value":
        lines[line][key] = random.choice(METRICS[key])
        what = f"{key} is {lines[line][key]!r}"
    elif kind == "missing":
        del lines[line][key]
        what = f"no {key}"
    elif kind == "line":
        lines[line] = random.choice([None, 5, [], "text", [[1, 2]]])
        what = f"a line is {lines[line]!r}"
    elif kind == "gone":
        path.unlink()
        return "missing", SAID
    else:
        what, damaged = damage_bytes(random, path.read_bytes())
        path.write_bytes(damaged)
        return what, EITHER
    path.write_bytes(b"".join(as_json(each) + b"\n" for each in lines))
    return what, SAID


def _npz(arrays: dict[str, np.ndarray], compressed: bool = False) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _policy(random: Random, run: Path) -> Damaged:
    path = run / "policy.npz"
    with np.load(path) as opened:
        arrays = dict(opened)
    key = random.choice(list(arrays))
    kind = random.choice(
        ["missing", "type", "shape", "nan", "initial", "more", "bytes", "text", "bomb", "objects"]
    )
    if kind == "missing":
        del arrays[key]
    elif kind == "type":
        arrays[key] = np.array(["text"] * 3)
        if key == "stages":
            arrays[key] = np.arange(3)
    elif kind == "shape":
        arrays[key] = random.choice([arrays[key][:1], arrays[key][None], arrays[key][:0], np.array(5)])
    elif kind == "nan":
        key = "logits"
        arrays[key] = arrays[key] * np.nan
    elif kind == "initial":
        key = "initial"
        arrays[key] = random.choice(
            [np.array([0, 0, 1, 2]), np.array([0, 1, 2, 9]), np.array([0.0, 1, 2, 3]), np.arange(9)]
        )
    elif kind == "more":
        arrays["other"] = np.zeros(3)
    elif kind == "bomb":
        arrays["logits"] = np.zeros((40, 4 * 10**6), np.float32)
    elif kind == "objects":
        arrays[key] = np.array([{"a": 1}], dtype=object)
    elif kind == "text":
        path.write_text("not an archive")
        return kind, SAID
    else:
        what, damaged = damage_bytes(random, path.read_bytes())
        path.write_bytes(damaged)
        return what, EITHER
    path.write_bytes(_npz(arrays, compressed=kind == "bomb"))
    return f"{key}: {kind}", EITHER if kind == "more" else SAID


def _own_orders(random: Random, run: Path) -> Damaged:
    """The orders of two images of 2x2 patches."""
    path = run / "own_orders.npz"
    images, orders = np.zeros((2, 8, 8), np.uint8), np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    wrongs: dict[str, dict[str, np.ndarray]] = {
        "floats": {"images": images / 2, "orders": orders},
        "four colours": {"images": np.zeros((2, 8, 8, 4), np.uint8), "orders": orders},
        "no pixels": {"images": images[:, :0], "orders": orders},
        "another count": {"images": images[:1], "orders": orders},
        "no image": {"images": images[:0], "orders": orders[:0]},
        "another grid": {"images": images, "orders": orders[:, :2] % 2},
        "a patch twice": {"images": images, "orders": orders // 2},
        "no orders": {"images": images},
        "objects": {"images": images, "orders": np.array([{"a": 1}], dtype=object)},
    }
    kind = random.choice([*wrongs, "bytes", "bomb"])
    if kind == "bytes":
        what, damaged = damage_bytes(random, _npz({"images": images, "orders": orders}))
        path.write_bytes(damaged)
        return what, EITHER
    bomb = {"images": np.zeros((2, 10**4, 10**4), np.uint8), "orders": orders}
    path.write_bytes(_npz(wrongs.get(kind, bomb), compressed=kind == "bomb"))
    return kind, SAID


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _correct(random: Random, run: Path) -> Damaged:
    path = run / "correct.npy"
    whole = np.load(path)
    wrongs = {
        "floats": whole + 0.5,
        "integers": whole.astype(int) + 5,
        "too short": whole[:-3],
        "none": whole[:0],
        "two axes": whole[None],
        "a number": np.array(True),
        "text": np.array(["yes"] * len(whole)),
        "objects": np.array([None] * len(whole), dtype=object),
        "nan": whole * np.nan,
        "a structure": np.zeros(len(whole), dtype=[("a", int)]),
        "times": np.zeros(len(whole), "datetime64[s]"),
    }
    kind = random.choice([*wrongs, "bytes", "header", "gone", "archive"])
    if kind == "bytes":
        what, damaged = damage_bytes(random, path.read_bytes())
        path.write_bytes(damaged)
        return what, EITHER
    if kind == "gone":
        path.unlink()
    elif kind == "archive":
        path.write_bytes(_npz({"a": whole}))
    elif kind == "header":
        content = path.read_bytes().replace(
            b"(16,)", random.choice([b"(16, )", b"(99999999999,)", b"(-1,)", b"(2**40,)"])
        )
        path.write_bytes(content)
        return kind, EITHER
    else:
        path.write_bytes(_npy(wrongs[kind]))
    return kind, SAID


def _config(random: Random, run: Path) -> Damaged:
    path = run / "config.yaml"
    content = yaml.safe_load(path.read_text())
    kind = random.choice(["value", "value", "secret", "bytes", "unknown", "gone", "whole", "other model"])
    if kind == "value":
        section = random.choice(list(content))
        key = random.choice(list(content[section]))
        what, changed = damage_json(random, {key: content[section][key]})
        content[section] |= changed if isinstance(changed, dict) else {key: changed}
        path.write_bytes(yaml.safe_dump(content).encode("utf-8", "surrogatepass"))
        return f"{section}: {what}", EITHER
    if kind == "secret":
        section = random.choice(list(content))
        key = random.choice(list(content[section]))
        content[section][key] = "${oc.env:" + SECRET_NAME + "}"
        path.write_text(yaml.safe_dump(content))
        return f"{section}.{key} names a secret", EITHER
    if kind == "unknown":
        content["train"]["nothing"] = 1
        path.write_text(yaml.safe_dump(content))
        return "an unknown key", SAID
    if kind == "gone":
        path.unlink()
        return "missing", EITHER
    if kind == "whole":
        path.write_bytes(random.choice([b"[1]", b"5", b"\xff\xfe\x00", b"a: [", b"train: 5"]))
        return "no configuration", SAID
    if kind == "other model":
        content["model"] |= random.choice(
            [{"name": "mamba"}, {"patch_size": 2}, {"size": "base"}, {"options": {"x": 1}}]
        )
        path.write_text(yaml.safe_dump(content))
        return f"another model: {content['model']}", EITHER
    what, damaged = damage_bytes(random, path.read_bytes())
    path.write_bytes(damaged)
    return what, EITHER


def _checkpoint(random: Random, run: Path) -> Damaged:
    """The newest checkpoint, whole by its checksums, but wrong; the one before may be used, with a word."""
    newest = run / "checkpoints" / (run / "checkpoints/latest").read_text()
    if random.random() < 0.3:
        file = newest / random.choice(["state.pt", "weights.safetensors", "sha256.json"])
        what, damaged = damage_bytes(random, file.read_bytes())
        file.write_bytes(damaged)
        return f"{file.name} {what}", EITHER
    what = random.choice([_wrong_state, _wrong_weights])(random, newest)
    sums = {
        name: hashlib.sha256((newest / name).read_bytes()).hexdigest()
        for name in ("weights.safetensors", "state.pt")
    }
    (newest / "sha256.json").write_text(json.dumps(sums))
    return what, SAID


def _wrong_state(random: Random, newest: Path) -> str:
    path = newest / "state.pt"
    state = torch.load(path, weights_only=True)
    key = random.choice(
        ["step", "metrics", "moments", "optimizer", "broken", "so_far", "seconds", "stop_step"]
    )
    if random.random() < 0.4:
        del state[key]
        what = f"no {key} in the state"
    else:
        state[key] = random.choice([None, "text", -1, [], {}, float("nan"), {"a": [1]}, torch.zeros(3)])
        if key in ("broken", "seconds") and state[key] == {}:
            state[key] = [5]
        if key in ("metrics", "moments") and isinstance(state[key], list | dict):
            state[key] = [None, None]
        what = f"{key} of the state is {short(state[key])}"
    if random.random() < 0.1:
        what, state = "the state is a list", [state]
    torch.save(state, path)
    return what


def _wrong_weights(random: Random, newest: Path) -> str:
    path = newest / "weights.safetensors"
    tensors = load_file(path)
    name = random.choice(list(tensors))
    kind = random.choice(["missing", "shape", "type", "more", "nan", "none"])
    if kind == "missing":
        del tensors[name]
    elif kind == "shape":
        tensors[name] = torch.zeros(7, 3)
    elif kind == "type":
        tensors[name] = tensors[name].to(
            torch.complex64 if tensors[name].is_floating_point() else torch.float32
        )
    elif kind == "more":
        tensors["model.other"] = torch.zeros(2)
    elif kind == "nan":
        name = random.choice([name for name in tensors if name.startswith("model.")])
        tensors[name] = tensors[name] * float("nan")
    else:
        tensors = {}
    path.unlink()
    save_file(tensors, path)
    return f"weights: {name} {kind}"


def _other_files(random: Random, run: Path) -> Damaged:
    """Files that no command needs."""
    name = random.choice(["checkpoints/latest", "sample.png", "order.json", ".lock", "track_id", "log.txt"])
    path = run / name
    content = path.read_bytes() if path.exists() else b"a line\n"
    what, damaged = damage_bytes(random, content)
    path.write_bytes(damaged)
    return f"{name} {what}", EITHER if name == "sample.png" else ACCEPT


def _sensitivity(random: Random, run: Path) -> Damaged:
    path = run / "evaluations/sensitivity.csv"
    lines = path.read_text().splitlines()
    kind = random.choice(["bytes", "cells", "short", "words"])
    if kind == "cells":
        lines[random.randrange(len(lines))] += ",x,y"
    elif kind == "short":
        lines = lines[:1]
    elif kind == "words":
        at = random.randrange(1, len(lines))
        lines[at] = ",".join(random.choice(["x", "nan", "", "<b>"]) for _ in lines[at].split(","))
    else:
        what, damaged = damage_bytes(random, path.read_bytes())
        path.write_bytes(damaged)
        return what, EITHER
    path.write_text("\n".join(lines) + "\n")
    return kind, EITHER


def _data(random: Random, run: Path) -> Damaged:
    return damage_json_file(random, run / "data.json", DATA, REFUSE)


FILES: dict[str, Callable[[Random, Path], Damaged]] = {
    "summary.json": _summary,
    "metrics.jsonl": _metrics,
    "policy.npz": _policy,
    "own_orders.npz": _own_orders,
    "correct.npy": _correct,
    "config.yaml": _config,
    "checkpoint": _checkpoint,
    "other files": _other_files,
    "sensitivity.csv": _sensitivity,
    "data.json": _data,
}
