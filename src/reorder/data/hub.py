"""Datasets of the Hugging Face hub, or saved by its library: hf:<name or path>."""

import hashlib
import logging
import os
import tempfile
import weakref
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reorder import config
from reorder.data.folders import TRAIN, VALIDATION
from reorder.data.transform import Transform


class Rows:
    """Rows of a table whose image column is still encoded, decoded when they are read."""

    def __init__(self, title: str, table: Any, column: str, labels: Tensor, transform: Transform):
        self.title, self.table, self.column, self.transform = title, table, column, transform
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int]:
        return self.transform.shape

    def name(self, index: int) -> str:
        return f"{self.title} image {index}"

    def fingerprint(self) -> str:
        """The library's own for a table; of a stream, the content of its temporary file."""
        if isinstance(self.table, Spool):
            with open(self.table.file, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        return str(self.table._fingerprint)

    def read(self, index: int) -> Tensor:
        """One image, uint8 (3, H, W)."""
        image = self.table[index][self.column]
        return self.transform(BytesIO(image["bytes"]) if image["bytes"] is not None else Path(image["path"]))


class Spool:
    """Encoded images of a stream, which cannot be shuffled, kept in a temporary file, which can."""

    def __init__(self, stream: Any, image: str, label: str, directory: str | None):
        self.column, ends, labels = image, [0], []
        with tempfile.NamedTemporaryFile(dir=directory, prefix="reorder-", delete=False) as file:
            self.file = file.name
            weakref.finalize(self, os.unlink, self.file)  # by the process that made it, at its end
            for row in stream:
                content = row[image]["bytes"]
                content = Path(row[image]["path"]).read_bytes() if content is None else content
                file.write(content)
                ends.append(ends[-1] + len(content))
                labels.append(row[label])
        self.ends, self.labels = np.array(ends), labels

    def __getitem__(self, index: int) -> dict[str, dict[str, bytes]]:
        with open(self.file, "rb") as file:
            file.seek(self.ends[index])
            return {self.column: {"bytes": file.read(self.ends[index + 1] - self.ends[index])}}


def hugging_face(settings: config.Data, transform: Transform) -> tuple[Rows, Rows, list[str]]:
    """Train and validation (or test) of a dataset; the image and class columns are found by their types."""
    library = _library()
    where = settings.name.removeprefix("hf:")
    splits = _load(library, where, settings)
    found = []
    for names in (TRAIN, VALIDATION):
        split = next((name for name in names if name in splits), None)
        if split is None:
            raise ValueError(f"{settings.name} has no split {' or '.join(names)}, but {', '.join(splits)}")
        found.append((f"{where} {split}", splits[split]))
    image, label = _columns(library, where, found[0][1].features or {})
    rows = [_rows(library, title, table, (image, label), settings, transform) for title, table in found]
    classes = getattr(found[0][1].features[label], "names", None) or [
        str(number) for number in range(int(rows[0].labels.max()) + 1)
    ]
    return rows[0], rows[1], list(classes)


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise ValueError("hf: datasets need the library of that name: pip install 'reorder[hf]'") from None
    return datasets


def _load(library: Any, where: str, settings: config.Data) -> Any:
    """The splits of a dataset by name, from a saved dataset, a local folder or the hub."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # or it logs every failed attempt to reach an unknown name
    try:
        if (Path(where) / "dataset_dict.json").is_file():
            return library.load_from_disk(where)
        return library.load_dataset(where, streaming=settings.stream, cache_dir=settings.root)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"cannot load {settings.name}: {' '.join(str(error).split())}") from None
    finally:
        hub.setLevel(level)


def _columns(library: Any, where: str, features: Any) -> tuple[str, str]:
    """The one column of images and the one of classes, or that which is called label."""
    images = [name for name, feature in features.items() if isinstance(feature, library.Image)]
    labels = [name for name, feature in features.items() if isinstance(feature, library.ClassLabel)]
    if len(labels) != 1 and "label" in features:
        labels = ["label"]
    if len(images) != 1 or len(labels) != 1:
        columns = ", ".join(features) or "none that are known"
        raise ValueError(f"hf:{where} must have one column of images and one of classes; it has {columns}")
    return images[0], labels[0]


def _rows(
    library: Any,
    title: str,
    table: Any,
    columns: tuple[str, str],
    settings: config.Data,
    transform: Transform,
) -> Rows:
    image, label = columns
    table = table.cast_column(image, library.Image(decode=False))
    if settings.stream and not hasattr(table, "__len__"):
        spool = Spool(table, image, label, settings.root)
        return Rows(title, spool, image, torch.tensor(spool.labels, dtype=torch.long), transform)
    labels = torch.tensor(table.with_format(None)[label][:], dtype=torch.long)
    return Rows(title, table.select_columns([image]), image, labels, transform)
