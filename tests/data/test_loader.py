"""Batches of image files: the same for any number of workers and ranks, from any step, and with damage."""

import logging
import multiprocessing
import os
import signal
from multiprocessing import forkserver

import pytest
import torch

from reorder.config import Data
from reorder.data import loader as loading
from reorder.data.datasets import Kept, load_dataset
from reorder.data.inputs import normalised, pixels_of
from reorder.data.loader import Loader


def loader(root, batch_size=4, seed=0, rank=0, world_size=1, **settings):
    data = Data(name="image_folder", root=str(root), **{"workers": 0, **settings})
    return Loader(load_dataset(data, (16, 16)), data, batch_size, seed, rank, world_size)


def equal(ours, theirs):
    """Whether two sequences of batches are the same, bit for bit."""
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs) > 0
    return all(
        torch.equal(a, b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_batches_are_normalised_by_imagenets_pixels(folder):
    (index, images, labels), *rest = loader(folder, augment="none").validate()
    assert index.tolist() == [0, 1, 2, 3]
    assert labels.tolist() == [0, 0, 1, 1]
    assert images.dtype == torch.float32
    raw = load_dataset(Data(name="image_folder", root=str(folder)), (16, 16)).validation.read(3)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    expected = (raw / 255 - mean[:, None, None]) / deviation[:, None, None]
    assert torch.allclose(images[3], expected, atol=1e-5)
    assert [part[0].tolist() for part in rest] == [[4]]


def test_every_pixel_is_found_again_in_what_was_normalised():
    images = torch.arange(256, dtype=torch.uint8).expand(2, 3, 1, 256)
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
    assert torch.equal(pixels_of(normalised(images, mean, deviation), mean, deviation), images)


def test_workers_change_nothing_and_leave_the_runs_generator_alone(folder):
    plain, many = loader(folder), loader(folder, workers=2)
    state = torch.get_rng_state()
    assert equal(plain.epoch(3), many.epoch(3))
    assert equal(plain.validate(), many.validate())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_the_workers_and_what_forks_them_at_work(folder, number):
    expected = loader(folder, batch_size=1).epoch(0)
    batches = loader(folder, batch_size=1, workers=1).epoch(0)
    first = next(batches)
    (worker,) = multiprocessing.active_children()
    for process in (worker.pid, forkserver._forkserver._forkserver_pid):
        os.kill(process, number)
    assert equal(expected, [first, *batches])
    assert equal(loader(folder).epoch(1), loader(folder, workers=1).epoch(1))


def test_an_epoch_that_is_left_ends_its_workers(folder):
    batches = loader(folder, batch_size=1, workers=1).epoch(0)
    next(batches)
    assert len(multiprocessing.active_children()) == 1
    batches.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("world_size", [2, 4])
def test_ranks_share_each_global_batch(folder, world_size):
    whole = list(loader(folder).epoch(1))
    ranks = [list(loader(folder, rank=rank, world_size=world_size).epoch(1)) for rank in range(world_size)]
    for step, batch in enumerate(whole):
        for part in (0, 1):
            shares = [ranks[rank][step][part] for rank in range(world_size)]
            assert torch.equal(torch.stack(shares, 1).flatten(0, 1), batch[part])


@pytest.mark.parametrize("world_size", [2, 4])
def test_validation_is_every_image_once_over_all_ranks(folder, world_size):
    seen = [
        int(index)
        for rank in range(world_size)
        for indices, images, labels in loader(folder, rank=rank, world_size=world_size).validate()
        for index, _, _ in zip(indices, images, labels, strict=True)
    ]
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_ranks_beyond_the_validation_images_have_none(folder):
    assert list(loader(folder, batch_size=8, rank=7, world_size=8).validate()) == []


def test_an_epoch_starts_at_any_step_without_decoding_the_ones_before(folder, monkeypatch):
    whole = list(loader(folder).epoch(2))
    late = loader(folder)
    read, original = [], late.dataset.train.read
    monkeypatch.setattr(late.dataset.train, "read", lambda index: read.append(index) or original(index))
    assert equal(whole[2:], late.epoch(2, first_step=2))
    assert len(read) == 4
    assert list(late.epoch(2, first_step=3)) == []


def test_a_sample_is_flipped_by_its_index_whatever_the_batch_and_seed_and_epoch_change_it(folder):
    def dark_left(**changes):
        """For each label and colour in an epoch: is the dark half on the left?"""
        epoch = changes.pop("epoch", 0)
        images = torch.cat([images for images, _ in loader(folder, **changes).epoch(epoch)])
        left, right = images[..., :4].mean((1, 2, 3)), images[..., -4:].mean((1, 2, 3))
        bright = torch.maximum(left, right)
        return {round(float(b), 4): bool(a < c) for b, a, c in zip(bright, left, right, strict=True)}

    flips = dark_left()
    assert len(flips) == 12
    assert 0 < sum(flips.values()) < 12
    assert flips == dark_left(batch_size=3) == dark_left(batch_size=6)
    assert flips != dark_left(epoch=1)
    assert flips != dark_left(seed=1)
    assert all(dark_left(augment="none").values())


def damage(root, *names):
    for name in names:
        file = root / name
        file.write_bytes(file.read_bytes()[:60])


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_images_are_replaced_by_the_next_counted_and_named(folder, caplog, workers):
    whole = list(loader(folder, augment="none").epoch(0))
    damage(folder, "train/ant/4.png", "val/bee/1.png")
    caplog.set_level(logging.WARNING)
    damaged = loader(folder, augment="none", workers=workers)
    batches = list(damaged.epoch(0))
    assert list(damaged.broken) == [str(folder / "train/ant/4.png")]
    assert "train/ant/4.png" in caplog.text
    labels, after = (torch.cat([labels for _, labels in part]) for part in (whole, batches))
    place = (labels != after).nonzero().flatten()
    assert (labels[place].tolist(), after[place].tolist()) == ([0], [1])  # bee/0 comes next
    images = torch.cat([images for images, _ in batches])
    assert sum(torch.equal(image, images[place[0]]) for image in images) == 2
    _, images, labels = (torch.cat(parts) for parts in zip(*damaged.validate(), strict=True))
    assert labels.tolist() == [0, 0, 1, 1, 2]
    assert len({float(pixel) for pixel in images[3, 0].flatten()}) == 1  # black
    assert len(damaged.broken) == 2
    list(damaged.epoch(1))
    assert len(damaged.broken) == 2  # counted once
    assert len(caplog.records) == 2


def test_too_many_broken_images_stop_the_run(folder):
    damage(folder, "train/ant/4.png", "train/cow/0.png")
    allowed = loader(folder, max_broken=2)
    assert len(list(allowed.epoch(0))) == 3
    with pytest.raises(
        ValueError, match=r"more than data.max_broken=1 images are broken; mend them .*; the last is .*png: "
    ):
        list(loader(folder, max_broken=1).epoch(0))
    with pytest.raises(ValueError, match=r"data.max_broken=0"):
        list(loader(folder, max_broken=0).epoch(0))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("max_broken", [10, 100])
def test_a_split_of_nothing_but_broken_images_is_one_line(folder, caplog, workers, max_broken):
    damage(folder, *(file.relative_to(folder) for file in folder.glob("val/*/*.png")))
    caplog.set_level(logging.WARNING)
    with pytest.raises(
        ValueError, match=r"none of the 5 images could be read; the first is .*val/ant/0.png: "
    ):
        list(loader(folder, batch_size=6, workers=workers, max_broken=max_broken).validate())
    damage(folder, *(file.relative_to(folder) for file in folder.glob("train/*/*.png")))
    said = (
        r"more than data.max_broken=10 images" if max_broken == 10 else r"none of the 12 images could be read"
    )
    with pytest.raises(ValueError, match=said):
        list(loader(folder, workers=workers, max_broken=max_broken).epoch(0))
    assert caplog.records == []


def test_several_ranks_leave_the_one_line_to_all_of_them(folder, caplog):
    damage(folder, *(file.relative_to(folder) for file in folder.glob("train/*/*.png")))
    caplog.set_level(logging.WARNING)
    second = loader(folder, rank=1, world_size=2)
    next(second.epoch(0))  # no rank may end alone: the others would wait for it
    assert second.has_news
    assert caplog.records == []
    with pytest.raises(ValueError, match=r"more than data.max_broken=10 images are broken"):
        second.share(second.broken)


def read_counted(loader, monkeypatch):
    """The indices of the training images that are decoded in this process, as they come."""
    decoded, original = [], loader.dataset.train.split.read
    monkeypatch.setattr(
        loader.dataset.train.split, "read", lambda index: decoded.append(index) or original(index)
    )
    return decoded


def test_small_folders_are_decoded_once_and_by_default_without_workers(folder, monkeypatch):
    small = loader(folder, batch_size=5, workers=None)
    decoded = read_counted(small, monkeypatch)
    monkeypatch.setattr(loading, "_in_processes", None)  # would be an error
    kept = [list(small.epoch(epoch)) for epoch in range(6)]
    assert sorted(decoded) == list(range(12))
    monkeypatch.setattr(Kept, "largest", 12 * 3 * 16 * 16 - 1)
    plain = loader(folder, batch_size=5)
    assert isinstance(plain.dataset.validation, Kept)
    assert not isinstance(plain.dataset.train, Kept)
    assert all(equal(kept[epoch], plain.epoch(epoch)) for epoch in range(6))


def test_what_workers_decoded_is_kept_too(folder, monkeypatch):
    damage(folder, "train/ant/4.png")
    plain = loader(folder)
    expected = [list(plain.epoch(epoch)) for epoch in range(2)]
    many = loader(folder, workers=2)
    assert equal(many.epoch(0), expected[0])
    assert many.dataset.train.has.tolist() == [True] * 4 + [False] + [True] * 7
    many.settings.workers, decoded = 0, read_counted(many, monkeypatch)
    assert equal(many.epoch(1), expected[1])
    assert set(decoded) == {4}  # which may have been mended


def test_the_black_image_in_place_of_a_broken_one_is_not_kept(folder):
    whole = list(loader(folder).validate())
    content = (folder / "val/bee/1.png").read_bytes()
    damage(folder, "val/bee/1.png")
    many = loader(folder, workers=2)
    assert not equal(many.validate(), whole)
    (folder / "val/bee/1.png").write_bytes(content)
    assert equal(many.validate(), whole)


def test_many_images_are_decoded_by_workers_unless_none_are_wanted(monkeypatch):
    monkeypatch.setattr(loading, "cores", lambda: 4)
    wanted = {None: [0, 4, 4], 0: [0, 0, 0], 3: [3, 3, 3]}
    for workers, expected in wanted.items():
        assert [loading._workers(Data(workers=workers), count) for count in (99, 100, 10**6)] == expected


def test_bombs_are_broken_images_with_the_limit_named(folder):
    small = loader(folder, max_pixels=1000)
    with pytest.raises(ValueError, match=r"40x32 pixels are more than the limit of 1000"):
        list(small.epoch(0))


def test_global_batches_that_cannot_be_shared_are_refused(folder):
    with pytest.raises(
        ValueError, match=r"train.batch_size=4 is the batch of all processes; 3 cannot share it"
    ):
        loader(folder, world_size=3)
    with pytest.raises(ValueError, match=r"train.batch_size=13 is more than the 12 training images"):
        loader(folder, batch_size=13)


@pytest.mark.parametrize("epoch", [0, 1])
def test_half_of_the_images_are_flipped(epoch):
    plain, changed = (
        Loader(load_dataset(Data(), (8, 8)), Data(augment=augment), 1437, seed=0).epoch(epoch)
        for augment in ("none", "flip")
    )
    ((plain, _),), ((changed, _),) = plain, changed
    mirrored = (changed == plain.flip(-1)).all((1, 2, 3))
    assert (mirrored | (changed == plain).all((1, 2, 3))).all()
    # Of 1,437 digits, hardly one its own mirror image, the share has a standard error of 1.3%.
    assert mirrored.double().mean().item() == pytest.approx(0.5, abs=0.05)
