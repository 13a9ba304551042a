"""IDX files as MNIST and its family have them."""

import gzip
import struct

import numpy as np
import pytest
import torch

from reorder.config import Data
from reorder.data import idx
from reorder.data.datasets import load_dataset
from reorder.data.loader import Loader


def write(file, array):
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def tree(root, ending="", counts=(20, 6), side=5, prefix="", test="t10k"):
    random = np.random.default_rng(0)
    root.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for split, count in zip(("train", test), counts, strict=True):
        arrays[split] = random.integers(0, 256, (count, side, side), np.uint8), np.arange(count) % 4
        for array, what in zip(arrays[split], ("images-idx3", "labels-idx1"), strict=True):
            write(root / f"{prefix}{split}-{what}-ubyte{ending}", array.astype(np.uint8))
    return arrays


def load(root, size=(5, 5)):
    return load_dataset(Data(name="idx", root=str(root)), size)


@pytest.mark.parametrize(
    ("ending", "prefix", "test"), [("", "", "t10k"), (".gz", "", "t10k"), (".gz", "emnist-balanced-", "test")]
)
def test_images_and_labels_are_read_raw_and_compressed(tmp_path, ending, prefix, test):
    arrays = tree(tmp_path / "raw", ending, prefix=prefix, test=test)
    data = load(tmp_path)
    assert (data.channels, data.classes) == (1, ["0", "1", "2", "3"])
    for split, (images, labels) in zip((data.train, data.validation), arrays.values(), strict=True):
        assert np.array_equal(split.images[:, 0], images)
        assert np.array_equal(split.labels, labels)
    images = arrays["train"][0] / 255
    assert data.mean.item() == pytest.approx(images.mean())
    assert data.deviation.item() == pytest.approx(images.std(ddof=1))


def test_the_raw_file_is_taken_if_both_are_there(tmp_path):
    tree(tmp_path, ".gz")
    arrays = tree(tmp_path, "", counts=(12, 6))
    assert len(load(tmp_path).train) == len(arrays["train"][1]) == 12


def test_debians_fashion_mnist_is_found(tmp_path, monkeypatch):
    tree(tmp_path / "fashion-mnist", ".gz")
    assert str(idx.FASHION_MNIST) == "/usr/share/datasets/fashion-mnist"
    monkeypatch.setattr(idx, "FASHION_MNIST", tmp_path / "fashion-mnist")
    assert len(load_dataset(Data(name="idx"), (5, 5)).train) == 20
    monkeypatch.setattr(idx, "FASHION_MNIST", tmp_path / "missing")
    with pytest.raises(ValueError, match=r"data.name=idx needs data.root="):
        load_dataset(Data(name="idx"), (5, 5))


def test_large_sets_are_resized_when_read_to_the_same_images(tmp_path, monkeypatch):
    tree(tmp_path)
    settings = Data(name="idx", root=str(tmp_path))
    once = Loader(load(tmp_path, (8, 12)), settings, 4, seed=0)
    monkeypatch.setattr("reorder.data.datasets.Memory.largest", 0)
    each = Loader(load(tmp_path, (8, 12)), settings, 4, seed=0)
    assert each.dataset.train.images.shape == (20, 1, 5, 5)
    for ours, theirs in zip(once.epoch(0), each.epoch(0), strict=True):
        assert ours[0].shape == (4, 1, 8, 12)
        assert torch.equal(ours[0], theirs[0])


def test_what_is_wrong_with_the_files_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"data.root=.*missing is not a directory"):
        load(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"has no train-images-idx3-ubyte\[.gz\]"):
        load(tmp_path)
    tree(tmp_path)
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "t10k-labels-idx1-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"has 499 bytes of data"):
        load(tmp_path)
    images.write_bytes(b"\x89PNG" + whole[4:])
    with pytest.raises(ValueError, match=r"is not an IDX file of bytes in 3 dimensions"):
        load(tmp_path)
    images.write_bytes(whole)
    write(labels, np.array([0, 1, 2, 9, 0, 1], np.uint8))
    with pytest.raises(ValueError, match=r"4 classes, but image 3 has the label 9"):
        load(tmp_path)
    write(labels, np.array([0], np.uint8))
    with pytest.raises(ValueError, match=r"6 images, but .* 1 labels"):
        load(tmp_path)
    tree(tmp_path, counts=(20, 0))
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte has no images"):
        load(tmp_path)
    images.unlink()
    images.with_name("train-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(ValueError, match=r"is not a whole gzip file"):
        load(tmp_path)
    tree(tmp_path / "other")
    with pytest.raises(ValueError, match=r"more than one dataset"):
        load(tmp_path)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("shape", [(4, 0, 5), (4, 5, 0)])
def test_images_without_pixels_are_refused(tmp_path, ending, shape):
    tree(tmp_path, ending)
    write(tmp_path / f"train-images-idx3-ubyte{ending}", np.zeros(shape, np.uint8))
    said = rf"train-images-idx3-ubyte{ending} announces images of {shape[1]}x{shape[2]} pixels"
    with pytest.raises(ValueError, match=said):
        load(tmp_path)


def test_compressed_files_are_unpacked_up_to_a_limit_and_up_to_what_they_announce(tmp_path, monkeypatch):
    tree(tmp_path, ".gz")
    file = tmp_path / "train-images-idx3-ubyte.gz"
    unpacked, original = [], gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda *a: unpacked.append(len(r := original(*a))) or r)
    content = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**16, 2**10, 2**5)
    file.write_bytes(gzip.compress(content + bytes(10**6)))
    with pytest.raises(
        ValueError, match=r"2147483648 bytes, more than the limit of 1073741824 for compressed"
    ):
        load(tmp_path)
    assert sum(unpacked) == 16  # the header
    file.write_bytes(gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 20, 5, 5) + bytes(10**6)))
    with pytest.raises(ValueError, match=r"has more than 500 bytes of data, not the \(20, 5, 5\)"):
        load(tmp_path)
    assert max(unpacked) == 501


def test_a_raw_file_may_announce_what_it_likes(tmp_path):
    tree(tmp_path)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(struct.pack(">BBBB3I", 0, 0, 8, 3, 20, 2**32 - 1, 2**32 - 1) + bytes(9))
    with pytest.raises(ValueError, match=r"has 9 bytes of data, not the \(20, 4294967295, "):
        load(tmp_path)


def test_a_compressed_file_that_does_not_fit_the_other_is_not_unpacked(tmp_path, monkeypatch):
    tree(tmp_path, ".gz")
    bomb = np.zeros((10**6, 5, 5), np.uint8)
    write(tmp_path / "train-images-idx3-ubyte.gz", bomb)
    monkeypatch.setattr(idx, "read", None)  # nothing but headers may be looked at
    with pytest.raises(ValueError, match=r"has 1000000 images, but .* 20 labels"):
        load(tmp_path)
