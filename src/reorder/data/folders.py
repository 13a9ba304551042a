"""Datasets that are trees of image files: <split>/<class>/.../<image>."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reorder import config
from reorder.data.transform import Box, Transform
from reorder.orders.notes import note

# n images in a split

TRAIN = ("train",)
VALIDATION = ("val", "validation", "test")
IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")

BY_FOLDER = ("image_folder", "imagenet")  # datasets whose folders name their classes

BoxOf = Callable[[Path], Box]  # the part of an image to look at


class Files:
    """Image files below a root, decoded when they are read."""

    def __init__(
        self, root: Path, paths: list[str], labels: Tensor, transform: Transform, box_of: BoxOf | None = None
    ):
        self.root, self.labels, self.transform, self.box_of = root, labels, transform, box_of
        self.paths = np.array([os.fsencode(path) for path in paths])  # far smaller than objects to send

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int]:
        return self.transform.shape

    def name(self, index: int) -> str:
        return str(self.root / os.fsdecode(self.paths[index]))

    def fingerprint(self) -> str:
        """Of every path, of its file's size and time and, if boxes are cut out, of those of its JSON file."""
        digest = hashlib.sha256(str(self.transform.max_pixels).encode())
        for path in self.paths:
            for file in [path] if self.box_of is None else [path, os.path.splitext(path)[0] + b".json"]:
                try:
                    status = os.stat(os.path.join(os.fsencode(self.root), file))
                    digest.update(b"%s\0%d %d\0" % (file, status.st_size, status.st_mtime_ns))
                except OSError:
                    digest.update(file + b"\0missing\0")
        return digest.hexdigest()

    def read(self, index: int) -> Tensor:
        """One image, uint8 (3, H, W)."""
        path = Path(self.name(index))
        return self.transform(path, self.box_of(path) if self.box_of else None)


def image_folder(settings: config.Data, transform: Transform) -> tuple[Files, Files, list[str]]:
    """train/<class>/ and val/<class>/ (or validation/, or test/); the classes are the training folders."""
    return _by_folder(settings, transform, lambda root: {})


def imagenet(settings: config.Data, transform: Transform) -> tuple[Files, Files, list[str]]:
    """The official tree; validation images lie in folders, or in one with the devkit's labels elsewhere."""
    return _by_folder(settings, transform, _ground_truth)


def _by_folder(
    settings: config.Data, transform: Transform, truth_of: Callable[[Path], dict[int, str]]
) -> tuple[Files, Files, list[str]]:
    root = find_root(settings)
    train = find_paths(root, TRAIN, settings.train_list)
    validation = find_paths(root, VALIDATION, settings.validation_list)
    classes = sorted({name for path in train if (name := class_of(path)) is not None})
    flat = any(class_of(path) is None for path in validation)
    return (
        Files(root, train, find_labels(root, train, classes), transform),
        Files(
            root,
            validation,
            find_labels(root, validation, classes, truth_of(root) if flat else {}),
            transform,
        ),
        classes,
    )


def validation_folder(settings: config.Data, transform: Transform, classes: list[str]) -> Files:
    """The validation images of `image_folder` or `imagenet`, of classes that are known; or <class>/ alone."""
    root, listed = find_root(settings), settings.validation_list
    splits = [name for name in TRAIN + VALIDATION if (root / name).is_dir()]
    bare = listed is None and not splits and any((root / name).is_dir() for name in classes)
    paths = _class_folders(root, "") if bare else find_paths(root, VALIDATION, listed)
    flat = any(class_of(path) is None for path in paths)
    truth = _ground_truth(root) if flat and settings.name == "imagenet" else {}
    return Files(root, paths, find_labels(root, paths, classes, truth), transform)


def find_root(settings: config.Data) -> Path:
    if settings.root is None:
        raise ValueError(f"data.name={settings.name} needs data.root=, the directory of its images")
    if not Path(settings.root).is_dir():
        raise ValueError(f"data.root={settings.root} is not a directory")
    return Path(settings.root)


def find_paths(
    root: Path, names: tuple[str, ...], list_file: str | None, ending: str | tuple[str, ...] = IMAGES
) -> list[str]:
    """Paths relative to the root: those in a list file, or all images of the first split that is there."""
    if list_file is not None:
        return _listed(root, list_file)
    split = next((name for name in names if (root / name).is_dir()), None)
    if split is None:
        raise ValueError(f"{root} has no directory {' or '.join(f'{name}/' for name in names)}")
    return _class_folders(root, f"{split}/", ending)


def _class_folders(root: Path, before: str, ending: str | tuple[str, ...] = IMAGES) -> list[str]:
    """Paths of the images in the folders of a split, each of which must have some; or right in the split."""
    entries = sorted(_entries(root / before), key=lambda entry: entry.name)
    folders = [f"{before}{entry.name}" for entry in entries if _is_folder(entry)]
    if not folders:
        return [f"{before}{entry.name}" for entry in entries if entry.name.lower().endswith(ending)]
    paths = []
    for folder in folders:
        found = walk(root, folder, ending)
        if not found:
            raise ValueError(f"the class folder {root / folder} has no images")
        paths += found
    return paths


def walk(root: Path, folder: str, ending: str | tuple[str, ...]) -> list[str]:
    """Paths, relative to the root, of the images anywhere below a folder; every real folder is read once."""
    found, seen, waiting = [], set(), [(folder, os.path.realpath(root / folder))]
    while waiting:
        inside, real = waiting.pop()
        if real in seen:
            continue
        seen.add(real)
        for entry in _entries(root / inside):
            path = f"{inside}/{entry.name}"
            if _is_folder(entry):
                target = _target_of(root / path, real) if entry.is_symlink() else f"{real}/{entry.name}"
                waiting.append((path.removeprefix("./"), target))
            elif entry.name.lower().endswith(ending):
                found.append(path)
    return sorted(found)


def _target_of(link: Path, folder: str) -> str:
    """Where a link in a real folder leads to; not to a folder above it, or a walk would go round in it."""
    target = os.path.realpath(link)
    if Path(folder).is_relative_to(target):
        raise ValueError(f"{link} is a link to {target}, a folder that it is in; remove the link")
    return target


def _scan(folder: Path) -> list[os.DirEntry]:
    try:
        return list(os.scandir(folder))
    except OSError as error:
        raise ValueError(f"cannot read the folder {folder}: {error.strerror}") from None


def _entries(folder: Path) -> list[os.DirEntry]:
    """What is in a folder, but for hidden folders, such as .ipynb_checkpoints."""
    entries = _scan(folder)
    hidden = {entry.name for entry in entries if entry.name.startswith(".") and _is_folder(entry)}
    for name in sorted(hidden):
        note(f"hidden folders called {name} are not read")
    return [entry for entry in entries if entry.name not in hidden]


def _is_folder(entry: os.DirEntry) -> bool:
    """Whether it is a folder or a link to one; a link that leads nowhere is not."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def _listed(root: Path, list_file: str) -> list[str]:
    try:
        lines = Path(list_file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the list of images {list_file}: {error}") from None
    paths = [line.strip().removeprefix("./") for line in lines if line.strip()]
    if not paths:
        raise ValueError(f"the list of images {list_file} is empty")
    for path in paths:
        if path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise ValueError(f"{list_file} must hold paths relative to data.root, got {path!r}")
    _refuse_links_outside(root, paths, list_file)
    return paths


def _refuse_links_outside(root: Path, paths: list[str], list_file: str) -> None:
    """Refuse listed paths that links lead out of the root."""
    inside = os.path.realpath(root)
    folders: dict[str, set[str]] = {}  # that were looked at -> the links in them
    for path in paths:
        folder, _, name = path.rpartition("/")
        new = folder not in folders
        if new:
            there = root / folder
            folders[folder] = {e.name for e in _scan(there) if e.is_symlink()} if there.is_dir() else set()
        if new or name in folders[folder]:
            real = os.path.realpath(root / path)
            if not Path(real).is_relative_to(inside):
                raise ValueError(f"{list_file}: {path!r} is a link out of data.root, to {real}")


def class_of(path: str) -> str | None:
    """The class in <split>/<class>/.../<image> or <class>/.../<image>; none in <split>/<image>."""
    folders = path.split("/")[:-1]
    if folders and folders[0] in TRAIN + VALIDATION:
        folders = folders[1:]
    return folders[0] if folders else None


def find_labels(
    root: Path, paths: list[str], classes: list[str], truth: dict[int, str] | None = None
) -> Tensor:
    """Labels (n,) by the class folder of each path or, without one, by the number in its name."""
    label_of = {name: label for label, name in enumerate(classes)}
    labels = []
    for path in paths:
        name = class_of(path)
        if name is None and truth:
            number = re.search(r"(\d+)\.\w+$", path)
            name = truth.get(int(number[1])) if number else None
        if name is None:
            raise ValueError(f"{root / path} is in no class folder, and nothing else tells its class")
        if name not in label_of:
            raise ValueError(
                f"{root / path} is of the class {name!r}, not among the {len(classes)} classes to learn"
            )
        labels.append(label_of[name])
    return torch.tensor(labels, dtype=torch.long)


def _ground_truth(root: Path) -> dict[int, str]:
    """The class (WordNet id) of each numbered validation image, from the ILSVRC2012 devkit."""
    from scipy.io import loadmat  # imported here: slow, seldom needed

    truth_file = _devkit(root, "ILSVRC2012_validation_ground_truth.txt")
    meta_file = _devkit(root, "meta.mat")
    try:
        synsets = loadmat(meta_file, squeeze_me=True)["synsets"]
        wnid_of = {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in np.atleast_1d(synsets)}
    except Exception as error:  # other or damaged files make the reader raise almost anything
        raise ValueError(f"{meta_file} is not the devkit's meta.mat: {error}") from None
    truth = {}
    for number, line in enumerate(truth_file.read_text().split(), start=1):
        if not line.isdigit() or int(line) not in wnid_of:
            raise ValueError(f"{truth_file}: the label {line!r} of image {number} is not in {meta_file}")
        truth[number] = wnid_of[int(line)]
    return truth


def _devkit(root: Path, name: str) -> Path:
    places = [root / "ILSVRC2012_devkit_t12" / "data", root / "ILSVRC2012_devkit_t12", root / "data", root]
    for place in places:
        if (place / name).is_file():
            return place / name
    raise ValueError(
        f"validation images without class folders need the devkit: {places[0] / name} is missing"
    )
