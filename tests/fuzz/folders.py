"""Layouts of image folders: hidden folders, loops of links, what cannot be read, classes without images."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz.case import ACCEPT, EITHER, REFUSE, SAY, Case
from reorder.config import Data
from reorder.data.datasets import Dataset, load_dataset, load_unlabelled
from reorder.data.loader import Loader

SHARE, COST = 8, 2

Change = Callable[[Random, Path], tuple[str, str]]


def make(random: Random, folder: Path, ready: Path) -> Case:
    root = folder / "pictures"
    shutil.copytree(ready / "pictures", root)
    first = random.choice(CHANGES)
    what, expect = first(random, root)
    if random.random() < 0.3:
        second = random.choice(CHANGES)
        more, also = _then(second, random, root)
        what, expect = f"{what}; {more}", _both(expect, also)
        if {first, second} == {one_class, odd_names}:
            expect = ACCEPT  # two classes again
    settings = Data(
        name=random.choice(["image_folder", "image_folder", "imagenet"]), root=str(root), workers=0
    )
    if settings.name == "imagenet" and expect != ACCEPT:
        expect = EITHER if expect == SAY else expect

    def use() -> Dataset:
        with _as_nobody(what):
            found = load_dataset(settings, (8, 8))
            loader = Loader(found, settings, 1, seed=0)
            for _ in loader.epoch(0):
                pass
            for _ in loader.validate():
                pass
            load_unlabelled(settings, (8, 8))
        return found

    return Case(f"{settings.name}: {what}", expect, use, lambda found: _wrong(found, root))


def _then(change: Change, random: Random, root: Path) -> tuple[str, str]:
    """Make a second change, if the first has left a place for it."""
    try:
        return change(random, root)
    except OSError:  # such as a file where its folder was
        return "no place for another change", EITHER


def _both(one: str, other: str) -> str:
    if REFUSE in (one, other):
        return EITHER  # one change may undo what is wrong with the other
    return EITHER if EITHER in (one, other) else SAY if SAY in (one, other) else ACCEPT


class _as_nobody:
    """Without the rights of the superuser, who can read everything, where a folder is unreadable."""

    def __init__(self, what: str):
        self.wanted = "unreadable" in what and os.geteuid() == 0

    def __enter__(self) -> None:
        if self.wanted:
            os.seteuid(65534)

    def __exit__(self, *_: object) -> None:
        if self.wanted:
            os.seteuid(0)


def _wrong(found: Dataset, root: Path) -> str:
    """Classes that nobody meant, and images that are counted twice or lie elsewhere."""
    hidden = [name for name in found.classes if name.startswith(".") or name == "__MACOSX"]
    if hidden:
        return f"the hidden folder {hidden[0]} is a class"
    for split in (found.train, found.validation):
        real = [os.path.realpath(split.name(index)) for index in range(len(split))]
        if len(set(real)) < len(real):
            return f"an image counts twice: {next(path for path in real if real.count(path) > 1)}"
        if any("/." in os.path.dirname(path).removeprefix(str(root)) for path in real):
            return "an image of a hidden folder is used"
    return ""


def _copy(root: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "train/dark/0.png" if (root / "train/dark/0.png").exists() else __file__, to)


def nothing(random: Random, root: Path) -> tuple[str, str]:
    return "as it should be", ACCEPT


def hidden_folder(random: Random, root: Path) -> tuple[str, str]:
    name = random.choice([".ipynb_checkpoints", ".git", ".cache", ".hidden", ".DS_Store"])
    where = random.choice(["train", "val", "train/dark", "val/light"])
    _copy(root, root / where / name / "copy.png")
    return f"{where}/{name}", ACCEPT


def hidden_file(random: Random, root: Path) -> tuple[str, str]:
    (root / "train/dark").mkdir(parents=True, exist_ok=True)
    (root / "train/dark/._0.png").write_bytes(b"\x00\x05\x16\x07 of a Macintosh")
    return "a hidden file", EITHER


def loop(random: Random, root: Path) -> tuple[str, str]:
    where, to = random.choice(
        [
            ("train/dark/again", "train/dark"),
            ("train/dark/up", "train"),
            ("val/light/root", "."),
            ("train/x/x", "train/x"),
        ]
    )
    (root / where).parent.mkdir(parents=True, exist_ok=True)
    if not (root / where).is_symlink():
        (root / where).symlink_to(root / to)
    return f"{where} -> {to}", EITHER


def loops(random: Random, root: Path) -> tuple[str, str]:
    for number in range(6):  # ways in and out of each other: without a bound, 6 ** 40 of them
        (root / f"train/dark/f{number}").mkdir(parents=True, exist_ok=True)
        for other in range(6):
            link = root / f"train/dark/f{number}/l{other}"
            if not link.is_symlink():
                link.symlink_to(root / f"train/dark/f{other}")
    return "a web of links", EITHER


def link_to_itself(random: Random, root: Path) -> tuple[str, str]:
    where = random.choice(["train/self", "train/dark/self.png", "val/dark/self"])
    if not (root / where).is_symlink():
        (root / where).parent.mkdir(parents=True, exist_ok=True)
        (root / where).symlink_to(root / where)
    return f"{where} is a link to itself", EITHER


def link_outside(random: Random, root: Path) -> tuple[str, str]:
    outside = root.parent / "outside"
    outside.mkdir(exist_ok=True)
    _copy(root, outside / "other.png")
    if not (root / "train/dark/linked").is_symlink():
        (root / "train/dark").mkdir(parents=True, exist_ok=True)
        (root / "train/dark/linked").symlink_to(outside)
    return "a link to images elsewhere", ACCEPT  # many datasets are made of links


def unreadable(random: Random, root: Path) -> tuple[str, str]:
    where = random.choice(["train", "train/dark", "val", "val/light", ".", "train/dark/0.png"])
    if (root / where).exists():
        (root / where).chmod(0)
    return f"{where} is unreadable", EITHER if where.endswith(".png") else REFUSE


def empty_class(random: Random, root: Path) -> tuple[str, str]:
    where = random.choice(["train", "val"])
    (root / where / "empty").mkdir(parents=True, exist_ok=True)
    if random.random() < 0.5:
        (root / where / "empty/notes.txt").write_text("no image")
    return f"{where}/empty has no images", REFUSE


def one_class(random: Random, root: Path) -> tuple[str, str]:
    for split in ("train", "val"):
        shutil.rmtree(root / split / "light", ignore_errors=True)
    return "one class", SAY


def class_not_validated(random: Random, root: Path) -> tuple[str, str]:
    shutil.rmtree(root / "val/light", ignore_errors=True)
    return "validation lacks a class", SAY


def class_not_trained(random: Random, root: Path) -> tuple[str, str]:
    _copy(root, root / "val/unknown/0.png")
    return "validation has another class", REFUSE


def missing_split(random: Random, root: Path) -> tuple[str, str]:
    split = random.choice(["train", "val"])
    shutil.rmtree(root / split, ignore_errors=True)
    kind = random.choice(["missing", "a file", "empty", "a dangling link"])
    if kind == "a file":
        (root / split).write_text("not a folder")
    elif kind == "empty":
        (root / split).mkdir()
    elif kind == "a dangling link":
        (root / split).symlink_to("nowhere")
    return f"{split} is {kind}", REFUSE


def flat(random: Random, root: Path) -> tuple[str, str]:
    shutil.rmtree(root / "val", ignore_errors=True)
    (root / "val").mkdir()
    name = random.choice(["0.png", "x.png", "9" * 30 + ".png", "².png"])
    _copy(root, root / "val" / name)
    return f"val/{name[:10]} is in no class", REFUSE


def all_broken(random: Random, root: Path) -> tuple[str, str]:
    count = 0
    for file in list(root.rglob("*.png")):
        file.unlink()
        for copy in range(4):
            file.with_name(f"{copy}-{file.name}").write_bytes(b"broken")
            count += 1
    return f"all {count} images are broken", REFUSE


def odd_names(random: Random, root: Path) -> tuple[str, str]:
    name = random.choice(
        ["[bold]", "<script>", "a\nb", "-x", "~", "*", "a'b\"c", "é", "\udcff\udcfe", "x" * 200]
    )
    for split in ("train", "val"):
        _copy(root, root / split / name / f"{name}.png")
    return f"a class {name[:20]!r}", ACCEPT


def folder_as_image(random: Random, root: Path) -> tuple[str, str]:
    (root / "train/dark/folder.png").mkdir(parents=True, exist_ok=True)
    return "a folder named .png", ACCEPT


CHANGES: list[Change] = [
    nothing,
    hidden_folder,
    hidden_folder,
    hidden_file,
    loop,
    loops,
    link_to_itself,
    link_outside,
    unreadable,
    unreadable,
    empty_class,
    one_class,
    class_not_validated,
    class_not_trained,
    missing_split,
    flat,
    all_broken,
    odd_names,
    folder_as_image,
]
