"""Datasets by name: labelled images, split for training and validation and checked before use."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reorder import config
from reorder.data import fmow, folders, hub, idx
from reorder.data.clutter import TRAIN as CLUTTER_TRAIN
from reorder.data.clutter import VALIDATION as CLUTTER_VALIDATION
from reorder.data.clutter import Clutter
from reorder.data.inputs import Inputs
from reorder.data.moved import moved
from reorder.data.transform import DEVIATION, MAX_DECODED, MAX_PIXELS, MAX_PIXELS_FMOW, MEAN, Transform
from reorder.orders.notes import note

# n images in a split, B in a batch, C channels, H x W pixels of the model's images


class Split(Protocol):
    """Labelled images of the model's size."""

    labels: Tensor  # (n,), long

    @property
    def shape(self) -> tuple[int, int]:
        """(H, W)"""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Tensor:
        """One image, uint8 (C, H, W); raises whatever is wrong with it."""

    def name(self, index: int) -> str:
        """Where the image is, for a person."""

    def fingerprint(self) -> str:
        """The same for the same images in the same sequence; otherwise another, as far as can be told."""


class Memory:
    """Images decoded once and kept as uint8 (n, C, H, W) of the model's size."""

    largest = 2**31  # bytes to keep; beyond, images are kept as they came and resized when they are read

    def __init__(self, images: Tensor, labels: Tensor, shape: tuple[int, int]):
        self.labels, self.shape = labels, shape
        fits = images.shape[0] * images.shape[1] * shape[0] * shape[1] <= self.largest
        self.images = torch.cat([self._resize(part) for part in images.split(1024)]) if fits else images

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Tensor:
        """Images (B, C, H, W) of indices (B,)."""
        return self._resize(self.images[indices])

    def read(self, index: int) -> Tensor:
        return self.batch(torch.tensor([index]))[0]

    def name(self, index: int) -> str:
        return f"image {index}"

    def fingerprint(self) -> str:
        return hashlib.sha256(self.images.numpy().data).hexdigest()

    def _resize(self, images: Tensor) -> Tensor:
        if tuple(images.shape[2:]) == self.shape:
            return images
        resized = F.interpolate(images.float(), self.shape, mode="bilinear", antialias=True)
        return resized.round_().clamp_(0, 255).to(torch.uint8)


class Chosen:
    """Some images of a split."""

    def __init__(self, split: Split, indices: Tensor):
        self.split, self.indices, self.labels = split, indices, split.labels[indices]

    @property
    def shape(self) -> tuple[int, int]:
        return self.split.shape

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> Tensor:
        return self.split.read(int(self.indices[index]))

    def name(self, index: int) -> str:
        return self.split.name(int(self.indices[index]))

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.split.fingerprint().encode())
        digest.update(self.indices.numpy().data)
        return digest.hexdigest()


class Kept:
    """A split of files whose images are kept once they are decoded."""

    largest = 2**28  # bytes to keep; a split with more is decoded anew in every epoch

    def __init__(self, split: Split, channels: int = 3):
        self.split, self.labels, self.shape = split, split.labels, split.shape
        self.images = torch.empty(len(split), channels, *split.shape, dtype=torch.uint8)
        self.has = torch.zeros(len(split), dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> Tensor:
        if not self.has[index]:
            self.keep(index, self.split.read(index))
        return self.images[index]

    def keep(self, index: int | Tensor, images: Tensor) -> None:
        """One image (C, H, W) of an index, or images (b, C, H, W) of indices (b,)."""
        self.images[index], self.has[index] = images, True

    def name(self, index: int) -> str:
        return self.split.name(index)

    def fingerprint(self) -> str:
        return self.split.fingerprint()


NONE = Memory(torch.empty(0, 1, 1, 1, dtype=torch.uint8), torch.empty(0, dtype=torch.long), (1, 1))


def keep_small(split: Split, channels: int = 3) -> Split:
    """The split, with its decoded images kept in memory if they are few enough."""
    size = channels * len(split) * split.shape[0] * split.shape[1]
    return split if isinstance(split, Memory) or size > Kept.largest else Kept(split, channels)


def choose(split: Split, count: int, name: str) -> Split:
    """So many images of a split, drawn once and for all: the same whatever the seed of a run."""
    if count > len(split):
        raise ValueError(f"data.{name}_images={count} is more than the {len(split)} images for that")
    return _part(split, np.random.default_rng(0).permutation(len(split))[:count])


def hold_out(split: Split, count: int) -> tuple[Split, Split]:
    """A training split without so many images, and these, drawn once and for all like those of `choose`."""
    if count >= len(split):
        raise ValueError(f"data.held_out={count} leaves none of the {len(split)} training images to train on")
    shuffled = np.random.default_rng(0).permutation(len(split))
    return _part(split, shuffled[count:]), _part(split, shuffled[:count])


def _part(split: Split, drawn: np.ndarray) -> Split:
    """The images of a split that were drawn, in their old sequence."""
    indices = torch.from_numpy(np.sort(drawn))
    if isinstance(split, Memory):
        return Memory(split.images[indices], split.labels[indices], split.shape)
    return Chosen(split, indices)


class Dataset(NamedTuple):
    train: Split
    validation: Split
    classes: list[str]
    mean: Tensor  # (C,), of pixels in 0..1
    deviation: Tensor  # (C,)
    transform: Transform  # what makes a file one of these images

    @property
    def channels(self) -> int:
        return len(self.mean)

    @property
    def inputs(self) -> Inputs:
        """How an image becomes what a model of this dataset reads."""
        return Inputs(self.transform, tuple(self.mean.tolist()), tuple(self.deviation.tolist()))


def digits(settings: config.Data, shape: tuple[int, int]) -> Dataset:
    """scikit-learn's 1,797 digits of 8x8 pixels; every fifth image is for validation."""
    train, validation = (as_asked(split, settings, shape) for split in digit_splits())
    return _in_memory(train, validation, DIGIT_NAMES, shape)


def clutter(settings: config.Data, shape: tuple[int, int]) -> Dataset:
    """Digits among pieces of other digits, for validation those of the digits for validation."""
    counts, anywhere = (CLUTTER_TRAIN, CLUTTER_VALIDATION), settings.place == "anywhere"
    cell = settings.cell
    made = [
        Clutter(*split, count, shape, anywhere, cell)
        for split, count in zip(digit_splits(), counts, strict=True)
    ]
    if sum(counts) * shape[0] * shape[1] <= Kept.largest:
        read = [torch.stack([split.read(index) for index in range(len(split))]) for split in made]
        return _in_memory((read[0], made[0].labels), (read[1], made[1].labels), DIGIT_NAMES, shape)
    pixels = made[0].cells.double() / 255
    train, validation = made
    mean, deviation = pixels.mean().float()[None], pixels.std().float()[None]
    return Dataset(train, validation, DIGIT_NAMES, mean, deviation, Transform(shape, crop=False))


DIGIT_NAMES = [str(digit) for digit in range(10)]


def digit_splits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images, uint8 (n, 1, 8, 8), and labels (n,), for training and for validation."""
    from sklearn.datasets import load_digits  # imported here: slow, and most datasets do not need it

    bunch = load_digits()
    images = torch.from_numpy((bunch.images / 16 * 255).round().astype(np.uint8))[:, None]
    labels = torch.from_numpy(bunch.target).long()
    held_out = torch.arange(len(labels)) % 5 == 0
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def idx_files(settings: config.Data, shape: tuple[int, int]) -> Dataset:
    """The MNIST family: files of one byte a pixel, raw or compressed."""
    directory = idx.find(settings.root)
    splits = (idx.read_split(directory, names) for names in (idx.TRAIN, idx.VALIDATION))
    train, validation = (as_asked(split, settings, shape) for split in splits)
    classes = [str(label) for label in range(int(train[1].max()) + 1)]
    return _in_memory(train, validation, classes, shape)


def as_asked(
    split: tuple[Tensor, Tensor], settings: config.Data, shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Images and labels, the images moved if the settings say so."""
    images, labels = split
    return (images if settings.move == "none" else moved(images, shape, settings.move)), labels


def _in_memory(
    train: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
    classes: list[str],
    shape: tuple[int, int],
) -> Dataset:
    """A dataset of images (n, C, h, w) and labels (n,), normalised by what its training images are like."""
    total = train[0].flatten(2).sum((0, 2), dtype=torch.float64)
    squares = sum(part.double().square().sum((0, 2, 3)) for part in train[0].split(4096))
    pixels = train[0][:, 0].numel()
    mean = total / pixels
    variance = (squares - pixels * mean**2) / (pixels - 1)
    return Dataset(
        train=Memory(*train, shape),
        validation=Memory(*validation, shape),
        classes=classes,
        mean=(mean / 255).float(),
        deviation=(variance.sqrt() / 255).float().clamp(min=1 / 255),
        transform=Transform(shape, crop=False),
    )


def file_transform(settings: config.Data, shape: tuple[int, int]) -> Transform:
    """What makes an image file one of (height, width) pixels, for datasets that are image files."""
    most = settings.max_pixels
    return Transform(
        shape, most or (MAX_PIXELS_FMOW if settings.name == "fmow" else MAX_PIXELS), most or MAX_DECODED
    )


def _on_disk(find: Callable[..., tuple[Split, Split, list[str]]]) -> Callable[..., Dataset]:
    def load(settings: config.Data, shape: tuple[int, int]) -> Dataset:
        transform = file_transform(settings, shape)
        return _of_files(*find(settings, transform), transform)

    return load


def _of_files(train: Split, validation: Split, classes: list[str], transform: Transform) -> Dataset:
    """Image files, normalised as ImageNet's."""
    return Dataset(train, validation, classes, torch.tensor(MEAN), torch.tensor(DEVIATION), transform)


DATASETS: dict[str, Callable[[config.Data, tuple[int, int]], Dataset]] = {
    "digits": digits,
    "clutter": clutter,
    "idx": idx_files,
    "image_folder": _on_disk(folders.image_folder),
    "imagenet": _on_disk(folders.imagenet),
    "fmow": _on_disk(fmow.fmow),
    "hf": _on_disk(hub.hugging_face),
}


LISTED = ("image_folder", "imagenet", "fmow")  # what lists of files can choose from


def load_dataset(settings: config.Data, image_shape: tuple[int, int]) -> Dataset:
    """The dataset that `data.name` names, with images of (height, width) pixels."""
    dataset = _load(settings, image_shape)
    _check_classes(dataset, settings)
    return dataset


def _load(settings: config.Data, image_shape: tuple[int, int]) -> Dataset:
    kind, colon, rest = settings.name.partition(":")
    if kind not in DATASETS or (kind == "hf") != bool(colon and rest):
        choices = ", ".join(name if name != "hf" else "hf:<name or path>" for name in DATASETS)
        raise ValueError(f"unknown dataset {settings.name!r}; choose from {choices}")
    for key in ("train_list", "validation_list"):
        if getattr(settings, key) is not None and kind not in LISTED:
            raise ValueError(f"data.{key} is for {', '.join(LISTED)}, not for data.name={settings.name}")
    dataset = DATASETS[kind](settings, image_shape)
    if settings.train_images is not None:
        dataset = dataset._replace(train=choose(dataset.train, settings.train_images, "train"))
    if settings.held_out is not None:
        train, held_out = hold_out(dataset.train, settings.held_out)
        dataset = dataset._replace(train=train, validation=held_out)
    elif settings.validation_images is not None:
        chosen = choose(dataset.validation, settings.validation_images, "validation")
        dataset = dataset._replace(validation=chosen)
    for name, split in (("training", dataset.train), ("validation", dataset.validation)):
        _check(split, f"the {name} images of {settings.name}", len(dataset.classes))
    train, validation = (keep_small(split, dataset.channels) for split in (dataset.train, dataset.validation))
    return dataset._replace(train=train, validation=validation)


def load_validation(
    settings: config.Data, image_shape: tuple[int, int], classes: list[str] | None = None
) -> Dataset:
    """The dataset without its training images; folders need not have any if the classes are known."""
    if classes is None or settings.name not in folders.BY_FOLDER or settings.held_out is not None:
        dataset = load_dataset(settings, image_shape)
    else:
        transform = file_transform(settings, image_shape)
        validation: Split = folders.validation_folder(settings, transform, classes)
        if settings.validation_images is not None:
            validation = choose(validation, settings.validation_images, "validation")
        _check(validation, f"the validation images of {settings.name}", len(classes))
        dataset = _of_files(NONE, keep_small(validation), classes, transform)
        _note_missing(dataset, settings)
    return dataset._replace(train=NONE)


def load_unlabelled(settings: config.Data, image_shape: tuple[int, int]) -> Split:
    """The training images, for a use without labels: an image_folder without train/ is read whole."""
    root = Path(settings.root or "")
    if settings.name == "image_folder" and not settings.train_list and not (root / folders.TRAIN[0]).is_dir():
        paths = folders.walk(folders.find_root(settings), ".", folders.IMAGES)
        if not paths:
            raise ValueError(f"there are no images in data.root={root}")
        labels = torch.zeros(len(paths), dtype=torch.long)
        files: Split = folders.Files(root, paths, labels, file_transform(settings, image_shape))
        if settings.train_images is not None:
            files = choose(files, settings.train_images, "train")
        return keep_small(files)
    return _load(settings, image_shape).train


def _check(split: Split, what: str, classes: int) -> None:
    if len(split) == 0:
        raise ValueError(f"{what} are none; a split must not be empty")
    wrong = ((split.labels < 0) | (split.labels >= classes)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        label = int(split.labels[first])
        raise ValueError(f"{what} have {classes} classes, but {split.name(first)} has the label {label}")


def _check_classes(dataset: Dataset, settings: config.Data) -> None:
    """Refuse what cannot be learned from; say what cannot be measured."""
    found = dataset.train.labels.unique()
    if len(found) == 1:
        name = dataset.classes[int(found)]
        raise ValueError(f"all training images of {settings.name} are of one class, {name!r}; two are needed")
    _note_missing(dataset, settings)


def _note_missing(dataset: Dataset, settings: config.Data) -> None:
    """Say which classes have no validation images, unless only some images were asked for."""
    missing = sorted(set(range(len(dataset.classes))) - set(dataset.validation.labels.unique().tolist()))
    if missing and settings.validation_images is None and settings.held_out is None:
        first = ", ".join(repr(dataset.classes[label]) for label in missing[:3])
        note(
            f"{len(missing)} of the {len(dataset.classes)} classes of {settings.name} have no validation "
            f"images, such as {first}"
        )
