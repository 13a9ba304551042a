"""The embedded dataset and the loader."""

from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits

from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.data.loader import Loader


def loader(batch_size=64, size=(8, 8), augment="none", seed=0, rank=0, world_size=1):
    settings = Data(augment=augment)
    return Loader(load_dataset(settings, size), settings, batch_size, seed, rank, world_size)


def test_digits_are_split_without_overlap_and_keep_their_labels():
    data = load_dataset(Data(), (8, 8))
    images, labels = load_digits(return_X_y=True)
    assert (len(data.train.labels), len(data.validation.labels)) == (1437, 360)
    # Every fifth image is for validation: the first for training is number 1, the second for validation 5.
    first = data.train.images[0, 0].flatten().float() / 255 * 16
    second = data.validation.images[1, 0].flatten().float() / 255 * 16
    assert (first - torch.tensor(images[1])).abs().max() < 0.05
    assert (second - torch.tensor(images[5])).abs().max() < 0.05
    assert data.validation.labels[1] == labels[5]
    assert data.train.labels.bincount().min() > 100


def test_so_many_training_images_are_the_same_for_every_run():
    whole = load_dataset(Data(), (8, 8))
    few, more = (load_dataset(Data(train_images=count), (8, 8)) for count in (100, 200))
    rows = {
        tuple(image.flatten().tolist()): int(label)
        for image, label in zip(whole.train.images, whole.train.labels, strict=True)
    }
    assert (len(few.train), len(more.train), len(few.validation)) == (100, 200, 360)
    chosen = [tuple(image.flatten().tolist()) for image in few.train.images]
    assert len(set(chosen)) == 100
    assert [rows[image] for image in chosen] == few.train.labels.tolist()
    assert set(chosen) < {tuple(image.flatten().tolist()) for image in more.train.images}
    assert torch.equal(few.mean, whole.mean)
    few = load_dataset(Data(validation_images=50), (8, 8))
    assert (len(few.train), len(few.validation)) == (1437, 50)
    assert few.validation.labels.bincount().count_nonzero() > 5  # not just the first
    with pytest.raises(ValueError, match=r"data.train_images=1438 is more than the 1437 images for that"):
        load_dataset(Data(train_images=1438), (8, 8))


@pytest.mark.parametrize("train_images", [None, 300])
def test_images_that_are_held_out_are_validated_on_and_no_others_are(train_images):
    settings = Data(train_images=train_images)
    whole = load_dataset(settings, (8, 8))
    found = load_dataset(replace(settings, held_out=100, validation_images=7), (8, 8))

    def labelled(split):
        return [
            (tuple(i.flatten().tolist()), int(k)) for i, k in zip(split.images, split.labels, strict=True)
        ]

    assert len(found.validation) == 100
    assert not set(labelled(found.train)) & set(labelled(found.validation))
    assert sorted(labelled(found.train) + labelled(found.validation)) == sorted(labelled(whole.train))
    assert found.validation.labels.bincount().count_nonzero() > 5  # not just the first
    again = load_dataset(replace(settings, held_out=100), (8, 8))
    assert torch.equal(again.validation.images, found.validation.images)
    count = len(whole.train)
    with pytest.raises(ValueError, match=f"data.held_out={count} leaves none of the {count} training images"):
        load_dataset(replace(settings, held_out=count), (8, 8))


def test_an_epoch_is_full_batches_of_different_normalised_images():
    batches = list(loader().epoch(0))
    assert len(batches) == 1437 // 64
    assert all(images.shape == (64, 1, 8, 8) and labels.shape == (64,) for images, labels in batches)
    pixels = torch.cat([images for images, _ in batches])
    assert pixels.mean().abs() < 0.02
    assert pixels.std().item() == pytest.approx(1, abs=0.02)
    assert len({tuple(image.flatten().tolist()) for image in pixels}) == len(pixels)


def test_batches_depend_on_seed_and_epoch_alone():
    first, second = loader(), loader()
    list(second.epoch(5))
    for (a, _), (b, _) in zip(first.epoch(1), second.epoch(1), strict=True):
        assert torch.equal(a, b)
    images = [next(iter(loader(seed=s).epoch(e)))[0] for s, e in ((0, 0), (0, 1), (1, 0))]
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])


def test_flips_mirror_half_of_the_images_whatever_the_batch_size():
    plain = {tuple(i.flatten().tolist()) for images, _ in loader(batch_size=1).epoch(0) for i in images}
    images = torch.cat([images for images, _ in loader(augment="flip").epoch(0)])
    kept = sum(tuple(i.flatten().tolist()) in plain for i in images)
    mirrored = sum(tuple(i.flip(-1).flatten().tolist()) in plain for i in images)
    assert kept + mirrored >= len(images)
    assert 0.4 < mirrored / len(images) < 0.6
    other = torch.cat([images for images, _ in loader(batch_size=32, augment="flip").epoch(0)])
    assert torch.equal(images, other[: len(images)])


def test_validation_is_every_image_once_in_sequence():
    labels = torch.cat([labels for _, _, labels in loader(batch_size=100).validate()])
    assert torch.equal(labels, load_dataset(Data(), (8, 8)).validation.labels)


def test_images_are_resized_to_the_models_size():
    images, _ = next(iter(loader(size=(12, 20)).epoch(0)))
    assert images.shape == (64, 1, 12, 20)


def test_unknown_datasets_and_oversized_batches_are_named():
    with pytest.raises(ValueError, match=r"unknown dataset 'mnist'; choose from digits"):
        load_dataset(Data(name="mnist"), (8, 8))
    with pytest.raises(ValueError, match=r"train.batch_size=2000 is more than the 1437 training images"):
        loader(batch_size=2000)
