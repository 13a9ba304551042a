"""What a trained model says about many image files, broken ones among them."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor

from reorder.data.folders import IMAGES, Files, walk
from reorder.data.loader import in_sequence
from reorder.data.progress import visible
from reorder.runs.loading import TrainedModel

# b images in a batch


class Predicted(NamedTuple):
    """What is said about one image: a class, or why it could not be read."""

    image: str
    name: str  # of the most likely class
    probabilities: Tensor | None  # (classes,); None if it is broken
    error: str


def image_files(paths: list[Path]) -> list[str]:
    """The files among paths, as they are, and the images anywhere in the directories among them, sorted."""
    found: list[str] = []
    for path in paths:
        if not path.is_dir():
            found.append(str(path))
            continue
        inside = walk(path, ".", IMAGES)
        if not inside:
            raise ValueError(f"there are no images in {path}")
        found += [str(path / each) for each in inside]
    return found


def predict_files(
    model: TrainedModel, files: list[str], batch_size: int, done: Callable[[int], None]
) -> Iterator[Predicted]:
    """What the model says about each file, in their sequence; `done` is told how many were read."""
    split = Files(Path(), files, torch.zeros(len(files), dtype=torch.long), model.inputs.transform)
    for images, indices, broken in in_sequence(split, batch_size):
        rows = model.probabilities(images)
        for index, row in zip(indices.tolist(), rows, strict=True):
            name = split.name(index)
            if name in broken:
                yield Predicted(files[index], "", None, broken[name])
            else:
                yield Predicted(files[index], model.classes[int(row.argmax())], row, "")
        done(len(indices))


def write_predictions(found: Iterable[Predicted], classes: list[str], out: TextIO, as_json: bool) -> int:
    """Write a line for each image as soon as it is known, as CSV or JSON; returns how many are broken."""
    broken, between = 0, "[\n"
    table = csv.writer(out, lineterminator="\n")
    if not as_json:
        table.writerow(["image", "class", "probability", "error"])
    for each in found:
        broken += each.probabilities is None
        if as_json:
            out.write(between + json.dumps(_described(each, classes)))
            between = ",\n"
        else:
            chance = "" if each.probabilities is None else f"{each.probabilities.max():.4f}"
            table.writerow([visible(each.image), visible(each.name), chance, visible(each.error)])
    out.write("\n]\n" if as_json else "")
    return broken


def _described(each: Predicted, classes: list[str]) -> dict[str, Any]:
    if each.probabilities is None:
        return {"image": each.image, "error": each.error}
    probabilities = dict(zip(classes, each.probabilities.tolist(), strict=True))
    return {
        "image": each.image,
        "class": each.name,
        "probability": probabilities[each.name],
        "probabilities": probabilities,
    }
