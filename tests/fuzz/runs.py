"""Run directories: each file of a finished run with content that is wrong, damaged, or planted."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fuzz.case import EITHER, REFUSE, Case, command, leaks
from fuzz.damage import as_json, damage_bytes, damage_json
from fuzz.drawing import without_drawing
from fuzz.ready import SMALL
from fuzz.run_files import FILES, NO_NUMBERS, SAID, SUMMARY, damage_json_file

SHARE, COST = 8, 20

OTHER_KINDS = ("prior.json", "cache", "evaluation", "planted")
RESULT: dict[str, list[Any]] = {
    "top1": NO_NUMBERS,
    "top1_interval": [None, [], [1], 5, ["a", "b"]],
    "images": [None, "16", -1],
    "loss": [None, "x", []],
    "data": [None, [], 5, {}],
}


class Use(NamedTuple):
    """A command that reads a run, and what it needs."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Path, Path], Any]


def _report(run: Path, out: Path) -> Any:
    return without_drawing(command, "report", run, run.with_name("other"), run.with_name("fixed"), "-o", out)


def _drawn_report(run: Path, out: Path) -> Any:
    return command("report", run, run.with_name("other"), "-o", out)


USES = [
    Use(
        "report",
        ("config.yaml", "summary.json", "metrics.jsonl", "policy.npz", "own_orders.npz", "correct.npy"),
        _report,
    ),
    Use("evaluate", ("config.yaml", "data.json", "checkpoint"), lambda run, out: command("evaluate", run)),
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
    kind = random.choice([*FILES, *OTHER_KINDS])
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
    what, expect = FILES[kind](random, run)
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


# Files that one command alone reads


def _evaluation(random: Random, run: Path) -> Case:
    """The result of an evaluation, which the next one reads."""
    results = sorted(run.glob("evaluations/*-own-step-*/result.json"))
    what, expect = damage_json_file(random, results[0], RESULT, REFUSE)
    return Case(f"evaluate: result.json: {what}", expect, lambda: command("evaluate", run))


def _prior(random: Random, folder: Path, ready: Path) -> Case:
    """prior.json: of a run whose scan it chose, or given to a report."""
    if random.random() < 0.5:
        run = folder / "prior"
        run.unlink()
        shutil.copytree(ready / "runs/prior", run)
        what, expect = damage_json_file(random, run / "prior.json", {"chosen": CHOSEN}, REFUSE)
        return Case(f"evaluate: prior.json: {what}", expect, lambda: command("evaluate", run))
    shutil.copytree(ready / "prior", folder / "measured")
    file = folder / "measured/prior.json"
    what, expect = damage_json_file(random, file, {"grid": SUMMARY["grid"], "orders": ORDERS}, REFUSE)
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
    """What `reorder prior` kept: wrong facts must be found out, or be made again."""
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
    names += [
        "policy.npz",
        "own_orders.npz",
        "correct.npy",
        "sample.png",
        "checkpoints/latest",
        "figures/curves.png",
    ]
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
