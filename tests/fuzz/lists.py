"""List files: paths of images relative to the root, which must stay below it."""

import os
import shutil
from pathlib import Path
from random import Random

from fuzz.case import ACCEPT, EITHER, REFUSE, Case
from fuzz.damage import damage_bytes
from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.data.loader import Loader

SHARE, COST = 8, 2

GOOD = [f"train/{name}/{number}.png" for name in ("dark", "light") for number in range(3)]
BAD = [
    "/etc/passwd",
    "../pictures/train/dark/0.png",
    "train/../../secret.png",
    "train/dark/../../../secret.png",
    "~/secret.png",
    "train/dark",
    "train/dark/missing.png",
    "train/dark/0.png\0",
    "dark/0.png",
    "0.png",
    ".",
    "..",
    "train/other/0.png",
    "a" * 300 + "/0.png",
    "train/dark/" + "a" * 1000 + ".png",
    "train\\dark\\0.png",
    "[/x].png",
    "file:///etc/passwd",
    "\ud800.png",
    "outside/dark/0.png",
    "train/dark/link.png",
    "${oc.env:REORDER_FUZZ_SECRET}",
]
OUTSIDE = {"outside/dark/0.png", "train/dark/link.png"}  # links that lead out of the root


def make(random: Random, folder: Path, ready: Path) -> Case:
    root = folder / "pictures"
    shutil.copytree(ready / "pictures", root)
    shutil.copytree(ready / "pictures/train", folder / "elsewhere")
    (root / "outside").symlink_to(folder / "elsewhere")
    (root / "train/dark/link.png").symlink_to(folder / "elsewhere/dark/0.png")
    lines = random.sample(GOOD, random.randrange(2, 7))
    if {"train/dark", "train/light"} - {os.path.dirname(line) for line in lines}:
        lines = list(GOOD)
    file = folder / random.choice(["list.txt", "[bold]list[red].txt", "é list"])
    what, expect = _write(random, file, lines)
    lists = {"train_list": str(file)}
    if random.random() < 0.2:
        what, lists = f"for validation: {what}", {"validation_list": str(file)}
        expect = expect if expect == REFUSE else EITHER

    def use() -> int:
        settings = Data(name="image_folder", root=str(root), workers=0, max_broken=0, **lists)
        loader = Loader(load_dataset(settings, (8, 8)), settings, 1, seed=0)
        return sum(len(labels) for _, labels in loader.epoch(0)) + sum(
            len(i) for i, _, _ in loader.validate()
        )

    return Case(what, expect, use)


def _write(random: Random, file: Path, lines: list[str]) -> tuple[str, str]:
    """Write a list; what is in it, and what is expected."""
    kind = random.choice(["good", "bad", "bad", "bad", "bytes", "text", "empty", "folder", "missing", "long"])
    if kind == "bad":
        line = random.choice(BAD)
        lines.insert(random.randrange(len(lines) + 1), line)
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        return f"with {line[:60]!r}", REFUSE
    if kind == "bytes":
        what, content = damage_bytes(random, "\n".join(lines).encode())
        file.write_bytes(content)
        return what, EITHER
    if kind == "text":
        coding = random.choice(["utf-16", "latin-1"])
        file.write_bytes("\n".join([*lines, "train/dark/é.png"]).encode(coding))
        return f"in {coding}", REFUSE
    if kind == "empty":
        file.write_text(random.choice(["", "\n\n", "  \n"]))
        return "empty", REFUSE
    if kind == "folder":
        file.mkdir()
        return "a folder", REFUSE
    if kind == "missing":
        return "missing", REFUSE
    if kind == "long":
        file.write_text("\n".join(lines * 50))
        return "many lines", EITHER
    end = random.choice(["\n", "\r\n", "\n\n"])
    file.write_text(end.join([random.choice(["", "./", "  "]) + line for line in lines]) + end)
    return "as it should be", ACCEPT
