"""Names of runs, files and folders that mean something to rich, HTML, Markdown, CSV or a terminal."""

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

from fuzz.case import ACCEPT, EITHER, Case, command, files_below
from fuzz.drawing import without_drawing
from fuzz.ready import TRAIN

SHARE, COST = 2, 20

NAMES = [
    "[/x]",
    "[bold]",
    "[/]",
    "[red]a[/red]",
    "[link=http://x]a[/link]",
    "\\[/x]",
    "<script>alert(7)<",
    "<img src=x onerror=alert(7)>",
    "a&amp;b",
    "'\"><b>",
    "a|b|c",
    "`a`",
    "[a](javascript:alert(7))",
    "=1+1",
    "$x^2$",
    "\\frac{a}_b",
    "%s %d {x} {0}",
    "${oc.env:REORDER_FUZZ_SECRET}",
    "a\nb",
    "a\x1b[31mb",
    "a\x07b",
    "é ü 漢字",
    "\u202eabc",
    "-x",
    "--out",
    "~",
    " a ",
    "a*?b",
    "\udcff\udcfe",
    "x" * 200,
    ":smile:",
]
MARKUP = ("<script", "<img src=x", "'\"><b>")


def make(random: Random, folder: Path, ready: Path) -> Case:
    name = random.choice(NAMES)
    path = folder / name
    use = random.choice([_report, _report, _compare, _evaluate, _train, _resume, _order, _missing])
    return Case(
        f"{use.__name__[1:]}: {name!r}",
        EITHER if use is _missing else ACCEPT,
        lambda: use(path, folder, ready),
        _wrong,
    )


Found = tuple[str, Path | None, Path]  # what was said, the path that it must name, and where a report is


def _wrong(found: Found) -> str:
    """A name that is not said as it is, or is read as HTML."""
    said, path, out = found
    if path is not None and path.name.isprintable() and str(path) not in said:
        return f"the name is not said as it is: {said[-200:]!r}"
    if "\x1b" in said:
        return "a name controls the terminal"
    for file in files_below(out):
        text = file.read_text(errors="replace") if file.suffix in (".html", ".md") else ""
        for markup in MARKUP:
            if path is not None and markup in str(path) and path.name in text:
                return f"{file.name} has the name as HTML"
    return ""


def _copy(ready: Path, name: str, to: Path) -> Path:
    shutil.copytree(ready / "runs" / name, to)
    return to


def _safe(path: Path) -> str:
    return os.fspath(path)  # absolute: a name that begins with - is no option


def _report(path: Path, folder: Path, ready: Path) -> Found:
    run = _copy(ready, "learned", path)
    shutil.rmtree(run / "checkpoints")
    (run / "correct.npy").unlink()  # so that there is a note with the name
    out = folder / "out"
    return without_drawing(command, "report", _safe(run), ready / "runs/fixed", "-o", out), path, out


def _compare(path: Path, folder: Path, ready: Path) -> Found:
    return (
        command("evaluate", _safe(_copy(ready, "learned", path)), ready / "runs/other"),
        path,
        folder / "out",
    )


def _evaluate(path: Path, folder: Path, ready: Path) -> Found:
    return command("evaluate", _safe(_copy(ready, "learned", path))), path, folder / "out"


def _train(path: Path, folder: Path, ready: Path) -> Found:
    return command(*TRAIN[:-1], "--out", _safe(path)), None, folder / "out"


def _resume(path: Path, folder: Path, ready: Path) -> Found:
    _copy(ready, "learned", path)
    return command("train", "--resume", _safe(path), "train.epochs=3", "--no-report"), path, folder / "out"


def _order(path: Path, folder: Path, ready: Path) -> Found:
    path = path.with_name(f"{path.name}.json")
    path.parent.mkdir(exist_ok=True)
    shutil.copy(ready / "runs/learned/order.json", path)
    run = _copy(ready, "learned", folder / "run")
    return command("evaluate", run, "--order", _safe(path)), run, folder / "out"


def _missing(path: Path, folder: Path, ready: Path) -> Any:
    return (
        command(*[["report", _safe(path)], ["evaluate", _safe(path)]][len(path.name) % 2]),
        path,
        folder / "out",
    )
