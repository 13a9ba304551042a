"""Datasets of the Hugging Face library where it is installed, and else the way to get it."""

import logging
import sys

import pytest
import torch

from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.data.loader import Loader


def test_the_missing_library_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'reorder\[hf\]'"):
        load_dataset(Data(name="hf:somebody/something"), (8, 8))


def test_hf_alone_is_no_dataset():
    with pytest.raises(ValueError, match=r"unknown dataset 'hf'; choose from .*hf:<name or path>"):
        load_dataset(Data(name="hf"), (8, 8))


@pytest.fixture
def saved(folder, tmp_path, monkeypatch):
    """The images of the folder, saved by the library."""
    import datasets as library

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    splits = {}
    for split, name in (("train", "train"), ("validation", "val")):
        files = sorted((folder / name).rglob("*.png"))
        features = library.Features(
            {"picture": library.Image(), "kind": library.ClassLabel(names=["ant", "bee", "cow"])}
        )
        columns = {"picture": [str(file) for file in files], "kind": [file.parent.name for file in files]}
        splits[split] = library.Dataset.from_dict(columns, features=features)
    splits = library.DatasetDict(splits)
    splits.save_to_disk(tmp_path / "saved")
    (tmp_path / "parquet").mkdir()
    for split, table in splits.items():
        table.to_parquet(tmp_path / "parquet" / f"{split}.parquet")
    return tmp_path


@pytest.mark.parametrize("where", ["saved", "parquet", "animals"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_local_and_streamed_datasets_are_the_folder_they_were_made_of(saved, where, stream, workers):
    files = Data(name="image_folder", root=str(saved / "animals"), workers=0)
    rows = Data(name=f"hf:{saved / where}", root=str(saved), workers=workers, stream=stream)
    ours, theirs = (load_dataset(settings, (16, 16)) for settings in (rows, files))
    assert ours.classes == theirs.classes == ["ant", "bee", "cow"]
    batches = [Loader(*pair, 4, seed=0).epoch(0) for pair in ((ours, rows), (theirs, files))]
    for a, b in zip(*batches, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])


def test_an_unknown_name_is_one_line_without_a_word_about_every_attempt(monkeypatch, caplog):
    import datasets as library

    hub = logging.getLogger("huggingface_hub.utils._http")

    def unreachable(*arguments, **options):
        hub.warning("Retrying in 1s [Retry 1/5].")  # as the hub's library does
        raise ConnectionError("Couldn't reach\nit")

    monkeypatch.setattr(library, "load_dataset", unreachable)
    with pytest.raises(ValueError, match=r"cannot load hf:somebody/nothing: Couldn't reach it$"):
        load_dataset(Data(name="hf:somebody/nothing"), (8, 8))
    assert caplog.records == []
    hub.warning("others are still heard")
    assert len(caplog.records) == 1


def test_what_is_missing_is_said(saved):
    with pytest.raises(ValueError, match=r"cannot load hf:"):
        load_dataset(Data(name=f"hf:{saved / 'nowhere'}"), (8, 8))
    library = sys.modules["datasets"]
    table = library.Dataset.from_dict({"text": ["a"]})
    library.DatasetDict({"train": table, "test": table}).save_to_disk(saved / "text")
    with pytest.raises(ValueError, match=r"one column of images and one of classes; it has text"):
        load_dataset(Data(name=f"hf:{saved / 'text'}"), (8, 8))
    library.DatasetDict({"train": table}).save_to_disk(saved / "half")
    with pytest.raises(ValueError, match=r"has no split val or validation or test, but train"):
        load_dataset(Data(name=f"hf:{saved / 'half'}"), (8, 8))
