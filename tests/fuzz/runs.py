"""Run directories: each file of a finished run with content that is wrong, damaged, or planted."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file, save_file

from fuzz.case import ACCEPT, EITHER, REFUSE, SECRET_NAME, Case, command, leaks
from fuzz.damage import as_json, damage_bytes, damage_json, short
from fuzz.drawing import without_drawing

SHARE, COST = 8, 20

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
METRICS: dict[str, list[Any]] = {"validation_top1": NO_NUMBERS[:-1], "epoch": [None, "1", [], {}]}
RESULT: dict[str, list[Any]] = {
    "top1": NO_NUMBERS,
    "top1_interval": [None, [], [1], 5, ["a", "b"]],
    "images": [None, "16", -1],
    "loss": [None, "x", []],
    "data": [None, [], 5, {}],
}

Damaged = tuple[str, str]  # what is wrong, and what is expected of a command that needs the file


class Use:
    """A command that reads a run, and what it needs."""

    def __init__(self, name: str, needs: tuple[str, ...], run: Callable[[Path, Path], Any]):
        self.name, self.needs, self.run = name, needs, run


def _report(run: Path, out: Path) -> Any:
    return without_drawing(command, "report", run, run.with_name("other"), run.with_name("fixed"), "-o", out)


def _drawn_report(run: Path, out: Path) -> Any:
    return command("report", run, run.with_name("other"), "-o", out)


USES = [
    Use("report", ("config.yaml", "summary.json", "metrics.jsonl", "policy.npz", "correct.npy"), _report),
    Use("evaluate", ("config.yaml", "checkpoint"), lambda run, out: command("evaluate", run)),
    Use(
        "compare",
        ("config.yaml", "correct.npy"),
        lambda run, out: command("evaluate", run, run.with_name("other")),
    ),
    Use(
        "resume",
        ("config.yaml", "checkpoint"),
        lambda run, out: command("train", "--resume", run, "train.epochs=3", "--no-report"),
    ),
    Use("train again", ("config.yaml",), lambda run, out: command("train", "--resume", run, "--no-report")),
]


def make(random: Random, folder: Path, ready: Path) -> Case:
    kind = random.choice(list(KINDS))
    run = _copy(ready, folder, "learned")
    uses = [use for use in USES if kind in use.needs] or USES
    if random.random() < 0.15:
        uses = USES
    use = random.choice(uses)
    if kind == "prior.json":
        return _prior(random, folder, ready)
    if kind == "cache":
        return _cache(random, folder, ready)
    if kind == "evaluation":
        return _evaluation(random, run)
    if kind == "planted":
        return _planted(random, run, folder)
    what, expect = KINDS[kind](random, run)
    if kind not in use.needs:
        expect = EITHER
    if use.name == "report" and random.random() < 0.03:
        use = Use("drawn report", use.needs, _drawn_report)
    return Case(
        f"{use.name}: {kind}: {what}",
        EITHER if expect == SAID else expect,
        lambda: use.run(run, folder / "report"),
        lambda said: _unsaid(expect, run, said) or leaks(folder / "report"),
    )


SAID = "said"  # the command may go on without the run, or without the file, if it names the run


def _copy(ready: Path, folder: Path, *names: str) -> Path:
    """A run of its own, beside others that are only linked: commands read but do not change them."""
    for name in ("learned", "other", "fixed", "prior"):
        if name in names:
            shutil.copytree(ready / "runs" / name, folder / name, symlinks=True)
        else:
            (folder / name).symlink_to(ready / "runs" / name)
    return folder / names[0]


def _unsaid(expect: str, run: Path, said: str) -> str:
    if expect != SAID or str(run) in said:
        return ""
    return f"accepted without a word about it: {said[-300:]!r}"


# What is done to each file


def _summary(random: Random, run: Path) -> Damaged:
    path = run / "summary.json"
    return _json_file(random, path, SUMMARY)


def _json_file(random: Random, path: Path, wrong: dict[str, list[Any]], said: str = SAID) -> Damaged:
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


KINDS: dict[str, Any] = {
    "summary.json": _summary,
    "metrics.jsonl": _metrics,
    "policy.npz": _policy,
    "correct.npy": _correct,
    "config.yaml": _config,
    "checkpoint": _checkpoint,
    "other files": _other_files,
    "sensitivity.csv": _sensitivity,
    "prior.json": None,
    "cache": None,
    "evaluation": None,
    "planted": None,
}


# Files that one command alone reads


def _evaluation(random: Random, run: Path) -> Case:
    """The result of an evaluation, which the next one reads."""
    results = sorted(run.glob("evaluations/*-own-step-*/result.json"))
    what, expect = _json_file(random, results[0], RESULT, REFUSE)
    return Case(f"evaluate: result.json: {what}", expect, lambda: command("evaluate", run))


def _prior(random: Random, folder: Path, ready: Path) -> Case:
    """prior.json: of a run whose scan it chose, or given to a report."""
    if random.random() < 0.5:
        run = folder / "prior"
        run.unlink()
        shutil.copytree(ready / "runs/prior", run)
        what, expect = _json_file(random, run / "prior.json", {"chosen": CHOSEN}, REFUSE)
        return Case(f"evaluate: prior.json: {what}", expect, lambda: command("evaluate", run))
    shutil.copytree(ready / "prior", folder / "measured")
    file = folder / "measured/prior.json"
    what, expect = _json_file(random, file, {"grid": SUMMARY["grid"], "orders": ORDERS}, REFUSE)
    runs = [folder / name for name in ("learned", "fixed")]
    return Case(
        f"report --prior: {what}",
        expect,
        lambda: without_drawing(command, "report", *runs, "--prior", file, "-o", folder / "report"),
    )


CHOSEN: list[Any] = [None, {}, [], "row", {"scan": None}, {"scan": "zigzag"}, {"scan": 5}, {"scan": []}]
ORDERS: list[Any] = [
    None,
    [],
    5,
    {"row": None},
    {"row": {"unigram": 5}},
    {"row": {"unigram": {"reduction": "x", "reduction_sem": 0}}},
    {"row": {"unigram": {"reduction": None, "reduction_sem": 0}}},
    {"row": {"unigram": {"reduction": float("nan"), "reduction_sem": 0.1}}},
    {"row": {"unigram": {"reduction": 1.0}}},
]


def _cache(random: Random, folder: Path, ready: Path) -> Case:
    """What `reorder prior` kept: wrong facts must be found out, or be made anew."""
    from fuzz.ready import SMALL

    cache = folder / "cache"
    shutil.copytree(ready / "cache", cache)
    files = [path for path in sorted(cache.rglob("*")) if path.is_file()]
    path = random.choice(files)
    if path.suffix == ".json" and random.random() < 0.7:
        what, content = damage_json(random, json.loads(path.read_text()))
        path.write_bytes(as_json(content))
    else:
        what, damaged = damage_bytes(random, path.read_bytes())
        path.write_bytes(damaged)
    arguments = ["prior", "digits", *SMALL, "--out", folder / "measured", "--cache", cache]
    return Case(f"prior: {path.name}: {what}", EITHER, lambda: without_drawing(command, *arguments))


def _planted(random: Random, run: Path, folder: Path) -> Case:
    """Links, planted where temporary files may be written: nothing they lead to may change."""
    victim, kept = folder / "victim", folder / "victims"
    victim.write_text("untouched")
    kept.mkdir()
    (kept / "file").write_text("untouched")
    names = [
        "index.html",
        "orders.md",
        "orders.csv",
        "runs.md",
        "config.yaml",
        "summary.json",
        "metrics.jsonl",
        "order.json",
    ]
    names += ["policy.npz", "correct.npy", "sample.png", "checkpoints/latest", "figures/curves.png"]
    for where in (folder / "report", run):
        for name in names:
            path = where / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for planted in (
                path.with_name(f"{path.name}.tmp"),
                path.with_name(f"{path.stem}.tmp{path.suffix}"),
            ):
                if not planted.is_symlink():
                    planted.symlink_to(victim)
    (run / "checkpoints/unfinished.tmp").symlink_to(kept)
    if random.random() < 0.5:
        (run / "checkpoints/step-000000006").symlink_to(kept)
    use = random.choice(USES)

    def wrong(_: Any) -> str:
        texts = [path.read_text() if path.is_file() else "gone" for path in (victim, kept / "file")]
        return "" if texts == ["untouched"] * 2 else f"what a planted link leads to was changed: {texts}"

    def work() -> Any:
        try:
            return use.run(run, folder / "report")
        except (ValueError, OSError):
            if changed := wrong(None):
                raise AssertionError(changed) from None
            raise

    return Case(f"{use.name}: planted links", EITHER, work, wrong)
