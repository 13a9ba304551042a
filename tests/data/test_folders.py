"""Trees of image files: image_folder, ImageNet and Functional Map of the World."""

import json
import logging
import os

import numpy as np
import pytest
import torch
from conftest import write_image
from scipy.io import savemat

from reorder.config import Data
from reorder.data.datasets import load_dataset, load_unlabelled


def load(root, name="image_folder", size=(16, 16), **settings):
    return load_dataset(Data(name=name, root=str(root), **settings), size)


def test_classes_are_the_training_folders(folder):
    data = load(folder)
    assert (data.classes, data.channels) == (["ant", "bee", "cow"], 3)
    assert data.train.labels.tolist() == [0] * 5 + [1] * 3 + [2] * 4
    assert data.validation.labels.tolist() == [0, 0, 1, 1, 2]
    assert data.train.name(5) == str(folder / "train/bee/0.png")
    assert torch.allclose(data.mean, torch.tensor([0.485, 0.456, 0.406]))
    assert torch.allclose(data.deviation, torch.tensor([0.229, 0.224, 0.225]))
    seed = 5
    colour = torch.tensor([40 + 37 * seed % 200, 40 + 91 * seed % 200, 250 - 3 * seed])
    assert torch.equal(data.train.read(5)[:, 8, 15].long(), colour)


@pytest.mark.parametrize("name", ["validation", "test"])
def test_the_validation_split_has_other_names_too(folder, name):
    (folder / "val").rename(folder / name)
    assert len(load(folder).validation) == 5


def test_files_below_a_class_folder_belong_to_it_and_others_are_ignored(folder):
    write_image(folder / "train/ant/more/deep.JPG", 3)
    (folder / "train/ant/notes.txt").write_text("not an image")
    (folder / "train/README").write_text("not a class")
    data = load(folder)
    assert len(data.train) == 13
    assert data.train.labels[5] == 0
    assert data.train.name(5).endswith("more/deep.JPG")


def test_so_many_training_images_are_read_from_where_they_are(folder):
    whole, five = load(folder), load(folder, train_images=5)
    names = [whole.train.name(index) for index in range(12)]
    assert len(five.train) == 5
    for index in range(5):
        there = names.index(five.train.name(index))
        assert torch.equal(five.train.read(index), whole.train.read(there))
        assert five.train.labels[index] == whole.train.labels[there]


def test_held_out_training_images_are_validated_on(folder):
    whole, found = load(folder), load(folder, held_out=4)
    names = [[split.name(i) for i in range(len(split))] for split in (found.train, found.validation)]
    assert (len(names[0]), len(names[1])) == (8, 4)
    assert sorted(names[0] + names[1]) == sorted(whole.train.name(index) for index in range(12))


def test_lists_replace_splits(folder, tmp_path):
    (tmp_path / "train.txt").write_text("train/cow/1.png\ntrain/ant/0.png\n\nval/bee/0.png\n")
    (tmp_path / "val.txt").write_text("./val/cow/0.png\n")
    data = load(folder, train_list=str(tmp_path / "train.txt"), validation_list=str(tmp_path / "val.txt"))
    assert data.train.labels.tolist() == [2, 0, 1]
    assert data.validation.labels.tolist() == [2]
    assert data.train.name(0) == str(folder / "train/cow/1.png")
    (tmp_path / "train.txt").write_text("/etc/passwd\n")
    with pytest.raises(ValueError, match=r"relative to data.root, got '/etc/passwd'"):
        load(folder, train_list=str(tmp_path / "train.txt"))
    with pytest.raises(ValueError, match=r"cannot read the list of images"):
        load(folder, train_list=str(tmp_path / "missing.txt"))
    (tmp_path / "val.txt").write_text("")
    with pytest.raises(ValueError, match=r"the list of images .*val.txt is empty"):
        load(folder, validation_list=str(tmp_path / "val.txt"))


def test_trees_that_cannot_be_trained_on_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"image_folder needs data.root="):
        load_dataset(Data(name="image_folder"), (8, 8))
    with pytest.raises(ValueError, match=r"data.root=.*missing is not a directory"):
        load(folder / "missing")
    (folder / "train/dog").mkdir()
    with pytest.raises(ValueError, match=r"the class folder .*train/dog has no images"):
        load(folder)
    (folder / "train/dog").rmdir()
    write_image(folder / "val/dog/0.png", 0)
    with pytest.raises(ValueError, match=r"val/dog/0.png is of the class 'dog', not among the 3 classes"):
        load(folder)
    (folder / "val").rename(folder / "other")
    with pytest.raises(ValueError, match=r"has no directory val/ or validation/ or test/"):
        load(folder)
    (folder / "val").mkdir()
    with pytest.raises(ValueError, match=r"the validation images of image_folder are none"):
        load(folder)
    write_image(folder / "val/loose.png", 0)
    with pytest.raises(ValueError, match=r"val/loose.png is in no class folder"):
        load(folder)


def test_lists_do_not_leave_the_root_through_links(folder, tmp_path):
    write_image(tmp_path / "elsewhere/secret.png", 0)
    (folder / "train/ant/link.png").symlink_to(tmp_path / "elsewhere/secret.png")
    (folder / "train/out").symlink_to(tmp_path / "elsewhere")
    (folder / "train/ant/inside.png").symlink_to(folder / "train/bee/0.png")
    listed = tmp_path / "list.txt"
    for path in ("train/ant/link.png", "train/out/secret.png"):
        listed.write_text(f"train/ant/0.png\ntrain/bee/0.png\n{path}\n")
        with pytest.raises(
            ValueError, match=rf"list.txt: '{path}' is a link out of data.root, to .*secret.png"
        ):
            load(folder, train_list=str(listed))
    listed.write_text("train/ant/inside.png\ntrain/bee/0.png\ntrain/cow/0.png\n")
    assert len(load(folder, train_list=str(listed)).train) == 3
    listed.write_text("train/ant/a\0b.png\n")
    with pytest.raises(
        ValueError, match=r"must hold paths relative to data.root, got 'train/ant/a\\x00b.png'"
    ):
        load(folder, train_list=str(listed))


@pytest.mark.parametrize(
    "settings", [{}, {"name": "idx"}, {"name": "hf:somebody/something"}], ids=["digits", "idx", "hf"]
)
@pytest.mark.parametrize("key", ["train_list", "validation_list"])
def test_lists_are_refused_where_they_would_be_ignored(settings, key):
    with pytest.raises(
        ValueError, match=rf"data.{key} is for image_folder, imagenet, fmow, not for data.name="
    ):
        load_dataset(Data(**settings, **{key: "list.txt"}), (8, 8))


def test_folders_that_go_round_in_links_are_refused_and_others_are_read_once(folder):
    (folder / "train/ant/loop").symlink_to("..")
    said = r"train/ant/loop is a link to .*train, a folder that it is in; remove the link"
    with pytest.raises(ValueError, match=said):
        load(folder)
    (folder / "train/ant/loop").unlink()
    (folder / "train/ant/self").symlink_to("self")  # a link to itself is neither a folder nor an image
    for level in range(30):  # 2 ** 30 ways through 30 folders
        (folder / f"deep/{level}").mkdir(parents=True)
        for name in ("x", "y"):
            (folder / f"deep/{level}/{name}").symlink_to(folder / f"deep/{level + 1}")
    write_image(folder / "deep/30/0.png", 1)
    (folder / "train/ant/deep").symlink_to(folder / "deep/0")
    (folder / "train/more").symlink_to(folder / "deep/30")
    write_image(folder / "val/more/0.png", 1)
    data = load(folder)
    assert data.train.labels.bincount().tolist() == [6, 3, 4, 1]  # once in each class


@pytest.fixture
def notes(caplog):
    """What was said so far."""
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def test_hidden_folders_are_no_classes_and_that_is_said_once(folder, notes):
    for place in ("train", "train/ant", "val", "train/bee"):
        write_image(folder / place / ".hidden-for-this-test/0.png", 0)
    for _ in range(2):
        data = load(folder)
    assert data.classes == ["ant", "bee", "cow"]
    assert (len(data.train), len(data.validation)) == (12, 5)
    assert notes() == ["hidden folders called .hidden-for-this-test are not read"]


def test_a_class_without_validation_images_is_said_and_one_class_alone_is_refused(folder, notes):
    load(folder)
    assert notes() == []
    (folder / "train/bee").rename(folder / "train/wasp")
    (folder / "val/bee").rename(folder / "wasps")
    assert load(folder).classes == ["ant", "cow", "wasp"]
    assert notes() == ["1 of the 3 classes of image_folder have no validation images, such as 'wasp'"]
    load(folder, validation_images=1)  # most classes are missing, as asked for
    assert len(notes()) == 1
    for split, name in (("train", "cow"), ("train", "wasp"), ("val", "cow")):
        (folder / split / name).rename(folder / f"{split}-{name}")
    with pytest.raises(ValueError, match=r"all training images of image_folder are of one class, 'ant'"):
        load(folder)
    settings = Data(name="image_folder", root=str(folder))
    assert len(load_unlabelled(settings, (16, 16))) == 5  # the prior needs no classes


def test_other_ranks_say_nothing(folder, notes, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    write_image(folder / "train/.of-another-rank/0.png", 0)
    load(folder)
    assert notes() == []


def test_a_folder_that_cannot_be_read_is_not_one_without_images(folder, monkeypatch):
    scan = os.scandir

    def forbidden(path):
        if str(path).endswith("train/bee"):  # a mode would not keep an administrator out
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(ValueError, match=r"cannot read the folder .*train/bee: Permission denied"):
        load(folder)


WNIDS = {1: "n02119789", 2: "n02100735", 3: "n01440764", 4: "n00001740"}  # the last is no leaf


def write_devkit(root, labels, matrix=True):
    """The devkit's files as MATLAB wrote them: a struct array (synsets, 1)."""
    data = root / "ILSVRC2012_devkit_t12/data"
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{label}\n" for label in labels))
    kinds = [(name, "O") for name in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children")]
    synsets = np.zeros((len(WNIDS), 1), dtype=kinds)
    for row, (number, wnid) in enumerate(WNIDS.items()):
        synsets[row, 0] = (
            float(number),
            wnid,
            "a word",
            "a gloss",
            0.0 if row < 3 else 3.0,
            np.zeros((1, 0)),
        )
    if matrix:
        savemat(data / "meta.mat", {"synsets": synsets})


def write_imagenet(root, labels=(3, 1, 2, 3), matrix=True):
    for seed, wnid in enumerate(list(WNIDS.values())[:3]):
        write_image(root / f"train/{wnid}/{wnid}_{seed}.JPEG", seed)
    for number in range(1, len(labels) + 1):
        write_image(root / f"val/ILSVRC2012_val_{number:08}.JPEG", number)
    write_devkit(root, labels, matrix)


def test_flat_imagenet_validation_is_labelled_by_the_devkit(tmp_path):
    write_imagenet(tmp_path)
    data = load(tmp_path, "imagenet")
    assert data.classes == ["n01440764", "n02100735", "n02119789"]
    assert data.train.labels.tolist() == [0, 1, 2]
    assert data.validation.labels.tolist() == [0, 2, 1, 0]
    (tmp_path / "list.txt").write_text("val/ILSVRC2012_val_00000003.JPEG\n")
    data = load(tmp_path, "imagenet", validation_list=str(tmp_path / "list.txt"))
    assert data.validation.labels.tolist() == [1]


def test_imagenet_validation_in_folders_needs_no_devkit(tmp_path):
    for split in ("train", "val"):
        for seed, wnid in enumerate(("n02119789", "n01440764")):
            write_image(tmp_path / f"{split}/{wnid}/{wnid}_{seed}.JPEG", seed)
    assert load(tmp_path, "imagenet").validation.labels.tolist() == [0, 1]


def test_devkits_that_do_not_fit_are_refused(tmp_path):
    write_imagenet(tmp_path / "a", matrix=False)
    with pytest.raises(ValueError, match=r"need the devkit: .*t12/data/meta.mat is missing"):
        load(tmp_path / "a", "imagenet")
    (tmp_path / "a/ILSVRC2012_devkit_t12/data/meta.mat").write_text("nothing of the kind")
    with pytest.raises(ValueError, match=r"meta.mat is not the devkit's meta.mat"):
        load(tmp_path / "a", "imagenet")
    write_imagenet(tmp_path / "b", labels=(3, 77))
    with pytest.raises(ValueError, match=r"the label '77' of image 2 is not in"):
        load(tmp_path / "b", "imagenet")
    write_imagenet(tmp_path / "c", labels=(3, 4))
    with pytest.raises(ValueError, match=r"of the class 'n00001740', not among the 3 classes"):
        load(tmp_path / "c", "imagenet")
    write_imagenet(tmp_path / "d", labels=(3, 1))
    write_image(tmp_path / "d/val/ILSVRC2012_val_00000009.JPEG", 0)
    with pytest.raises(ValueError, match=r"00000009.JPEG is in no class folder, and nothing else tells"):
        load(tmp_path / "d", "imagenet")


def write_fmow(root):
    for split, places in (("train", [("airport", 0), ("zoo", 7), ("zoo", 8)]), ("val", [("zoo", 1)])):
        for category, number in places:
            stem = root / split / category / f"{category}_{number}" / f"{category}_{number}_0_rgb"
            write_image(stem.with_suffix(".jpg"), number, size=(160, 160))
            write_image(stem.with_name(f"{category}_{number}_0_msrgb.jpg"), number)
            boxes = [
                {"ID": 9, "category": "barn", "box": [0, 0, 10, 10]},
                {"ID": number, "category": category, "box": [88, 16, 64, 64]},
            ]
            stem.with_suffix(".json").write_text(json.dumps({"gsd": 2.1, "bounding_boxes": boxes}))


def test_fmow_has_62_categories_and_reads_only_its_rgb_images(tmp_path):
    write_fmow(tmp_path)
    write_image(tmp_path / "val/false_detection/false_detection_0/false_detection_0_0_rgb.jpg", 0)
    data = load(tmp_path, "fmow")
    assert len(data.classes) == 62
    assert [data.classes[label] for label in data.train.labels] == ["airport", "zoo", "zoo"]
    assert [data.classes[label] for label in data.validation.labels] == ["zoo"]
    assert data.train.split.transform.max_pixels == 10**9
    assert load(tmp_path, "fmow", max_pixels=5).train.split.transform.max_pixels == 5
    assert load(tmp_path, "fmow").train.split.transform.max_whole == 64_000_000
    assert load(tmp_path, "fmow", max_pixels=10**10).train.split.transform.max_whole == 10**10
    write_image(tmp_path / "val/castle/castle_0/castle_0_0_rgb.jpg", 0)
    with pytest.raises(ValueError, match=r"of the class 'castle', not among the 62 classes"):
        load(tmp_path, "fmow")


def test_fmow_is_cropped_to_the_box_of_its_category(tmp_path):
    write_fmow(tmp_path)
    whole, box = (load(tmp_path, "fmow", crop_to_box=crop).train for crop in (False, True))
    dark = [split.read(1).float().mean(0)[:, 1].mean() for split in (whole, box)]
    assert dark[0] * 2 < dark[1]  # the box lies in the bright half
    (tmp_path / "train/zoo/zoo_7/zoo_7_0_rgb.json").write_text('{"bounding_boxes": []}')
    with pytest.raises(ValueError, match=r"no box in .*zoo_7_0_rgb.json"):
        box.split.read(1)
