"""IDX files, plain and compressed: sizes that do not fit, labels without an image, bombs."""

import gzip
import shutil
import struct
from pathlib import Path
from random import Random

import numpy as np

from fuzz.case import ACCEPT, EITHER, REFUSE, SAY, Case
from fuzz.damage import damage_bytes
from fuzz.ready import idx_bytes
from reorder.config import Data
from reorder.data.datasets import Dataset, load_dataset

SHARE, COST = 13, 2

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def make(random: Random, folder: Path, ready: Path) -> Case:
    root = folder / "idx"
    shutil.copytree(ready / "idx", root)
    file = root / random.choice(FILES)
    kind = random.choice(["good", "bytes", "bytes", "header", "header", "labels", "tree", "bomb", "one"])
    packed = random.random() < 0.4
    content = file.read_bytes()
    what, expect, compressed = kind, "", None
    if kind == "bytes":
        what, content = damage_bytes(random, content)
        if packed and random.random() < 0.5:
            what, compressed = damage_bytes(random, gzip.compress(file.read_bytes()))
            content = _unpacked(compressed)
    elif kind == "header":
        what, content = _other_header(random, content)
    elif kind == "labels":
        what, content = _other_labels(random, file, content)
    elif kind == "bomb":
        what, expect, packed, compressed = "a bomb", REFUSE, True, _bomb(random, file)
    elif kind == "one":
        what, expect = "one class", SAY
        for name in FILES[1::2]:
            count = struct.unpack(">I", (root / name).read_bytes()[4:8])[0]
            (root / name).write_bytes(idx_bytes(np.zeros(count, np.uint8)))
        content = file.read_bytes()
    if packed:
        file.unlink()
        file = file.with_name(f"{file.name}.gz")
    file.write_bytes(content if not packed else gzip.compress(content) if compressed is None else compressed)
    if kind == "tree":
        what, expect = _other_tree(random, root, file)
    settings = Data(name="idx", root=str(root))
    return Case(
        f"{file.name}: {what}",
        expect or _expected(root, None if compressed is None else content, file),
        lambda: load_dataset(settings, (5, 5)),
        _wrong,
    )


def _unpacked(compressed: bytes) -> bytes:
    try:
        return gzip.decompress(compressed)
    except Exception:
        return b"not a gzip file"


def _other_header(random: Random, content: bytes) -> tuple[str, bytes]:
    numbers = list(struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]]))
    at = random.randrange(len(numbers))
    numbers[at] = random.choice([0, 1, numbers[at] + 1, numbers[at] - 1, 2**16, 2**31, 2**32 - 1])
    data = content[4 + 4 * content[3] :]
    if random.random() < 0.5:  # data that fit the sizes, if they are small
        data = bytes(min(int(np.prod([float(number) for number in numbers])), 10**5))
    return f"sizes {numbers}, {len(data)} bytes", content[:4] + struct.pack(
        f">{len(numbers)}I", *numbers
    ) + data


def _other_labels(random: Random, file: Path, content: bytes) -> tuple[str, bytes]:
    if "labels" not in file.name:
        return "as it should be", content
    labels = np.frombuffer(content[8:], np.uint8).copy()
    labels[random.randrange(len(labels))] = random.choice([0, 1, 2, 3, 7, 255])
    return f"labels {labels.tolist()}", idx_bytes(labels)


def _bomb(random: Random, file: Path) -> bytes:
    """A small file that grows a thousandfold, and says what it holds or something else."""
    zeros = 700 * 2**20
    dimensions = file.name.count("idx3") * 2 + 1
    sizes = [zeros // 25, 5, 5] if dimensions == 3 else [zeros]
    header = bytes([0, 0, 8, dimensions]) + struct.pack(f">{dimensions}I", *sizes)
    if random.random() < 0.5:
        header = bytes([0, 0, 8, dimensions]) + struct.pack(f">{dimensions}I", *[2] * dimensions)
    part = gzip.compress(bytes(2**20), 9)
    return gzip.compress(header) + part * (
        zeros // 2**20 * random.choice([1, 3])
    )  # a gzip file may have parts


def _other_tree(random: Random, root: Path, file: Path) -> tuple[str, str]:
    kind = random.choice(["missing", "folder", "loop", "dangling", "two"])
    if kind == "loop":
        (root / "again").symlink_to(root)
        return "a loop of links beside the files", ACCEPT
    if kind == "two":
        shutil.copytree(root, root / "other")
        return "two datasets", REFUSE
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "dangling":
        file.symlink_to(root / "nowhere")
    return f"the file is {kind}", REFUSE


def _expected(root: Path, content: bytes | None, damaged: Path) -> str:
    """Whether the four files are what the format asks for: an independent reading of it."""
    arrays = []
    for name in FILES:
        file = root / name if (root / name).exists() else root / f"{name}.gz"
        whole = content if file == damaged and content is not None else file.read_bytes()
        if file.suffix == ".gz" and not (file == damaged and content is not None):
            whole = gzip.decompress(whole)
        array = _array(whole, 3 if "idx3" in name else 1)
        if array is None or 0 in array.shape:
            return REFUSE
        arrays.append(array)
    images, labels, validation_images, validation_labels = arrays
    if len(images) != len(labels) or len(validation_images) != len(validation_labels):
        return REFUSE
    if validation_labels.max() > labels.max():
        return REFUSE
    trained, validated = set(labels.tolist()), set(validation_labels.tolist())
    if len(trained) < 2 or not trained <= validated:
        return SAY
    return ACCEPT if trained == set(range(len(trained))) else EITHER  # EMNIST's letters have no 0


def _array(content: bytes, dimensions: int) -> np.ndarray | None:
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes([0, 0, 8, dimensions]):
        return None
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    size = 1
    for side in shape:
        size *= side
    return (
        np.frombuffer(content, np.uint8, offset=start).reshape(shape)
        if size == len(content) - start
        else None
    )


def _wrong(found: Dataset) -> str:
    if found.train.read(0).shape != (1, 5, 5):
        return f"an image of shape {tuple(found.train.read(0).shape)}"
    return (
        ""
        if bool(found.mean.isfinite().all() and found.deviation.isfinite().all())
        else "the mean is not finite"
    )
