"""Clutter: where the digit is, what else there is, and that nothing else tells the class."""

import numpy as np
import pytest
import torch

from reorder import config
from reorder.data.clutter import Clutter, in_cells
from reorder.data.datasets import DIGIT_NAMES, Kept, load_dataset


def flat_digits(count=20):
    """Digits of one grey level each, the level of class c being 10 * (c + 1)."""
    labels = torch.arange(count) % 10
    return (10 * (labels + 1)).to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8), labels


@pytest.mark.parametrize("shape", [(32, 32), (16, 24)])
def test_the_digit_is_at_its_place_and_every_other_cell_is_a_piece_of_some_digit(shape):
    clutter = Clutter(*flat_digits(), 50, shape, anywhere=False)
    levels = set()
    for index in range(50):
        image = clutter.read(index)
        assert image.shape == (1, *shape)
        cells = image[0].view(shape[0] // 4, 4, shape[1] // 4, 4).transpose(1, 2).flatten(2)
        assert (cells == cells[..., :1]).all()  # whole pieces
        assert (cells[1:4, 1:4] == 10 * (clutter.labels[index] + 1)).all()
        cells[1:4, 1:4] = 0
        levels |= set(cells.unique().tolist())
    assert levels - {0} == set(range(10, 101, 10))


def test_what_surrounds_a_digit_does_not_depend_on_its_class():
    digits, labels = flat_digits()
    clutter, other = (Clutter(digits, each, 40, (32, 32), False) for each in (labels, labels.flip(0)))
    assert not torch.equal(clutter.labels, other.labels)
    for index in range(40):
        assert torch.equal(clutter.read(index), other.read(index))


def test_anywhere_is_every_place_where_a_digit_fits():
    clutter = Clutter(*flat_digits(), 400, (16, 20), anywhere=True)
    places = {clutter.place(np.random.default_rng([1, index])) for index in range(400)}
    assert places == {(row, column) for row in range(2) for column in range(3)}


def test_an_image_is_a_function_of_its_index():
    first, again = (Clutter(*flat_digits(), 30, (32, 32), anywhere=True) for _ in "ab")
    assert torch.equal(first.read(7), again.read(7))
    assert not torch.equal(first.read(7), first.read(8))
    assert first.fingerprint() == again.fingerprint()
    assert first.fingerprint() != Clutter(*flat_digits(), 30, (32, 32), anywhere=False).fingerprint()


def test_cells_are_the_parts_of_an_enlarged_digit():
    digit = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    digit[..., :4] = 200  # the left half
    cells = in_cells(digit, 4)[0]
    assert cells.shape == (9, 4, 4)
    assert (cells[[0, 3, 6]] == 200).all()
    assert (cells[[2, 5, 8]] == 0).all()
    assert 0 < cells[4].float().mean() < 200
    assert in_cells(digit, 16).shape == (1, 9, 16, 16)


def test_cells_of_16_pixels_show_the_same_pieces_larger():
    small = Clutter(*flat_digits(), 10, (20, 24), anywhere=True)
    large = Clutter(*flat_digits(), 10, (80, 96), anywhere=True, cell=16)
    for index in range(10):
        enlarged = small.read(index).repeat_interleave(4, 1).repeat_interleave(4, 2)
        assert torch.equal(large.read(index), enlarged)


def test_a_canvas_too_large_for_memory_is_made_image_by_image_and_is_the_same(monkeypatch):
    data = config.Data(name="clutter", train_images=20, validation_images=10)
    whole = load_dataset(data, (20, 20))
    monkeypatch.setattr("reorder.data.datasets.Kept.largest", 10)
    by_image = load_dataset(data, (20, 20))
    monkeypatch.setattr("reorder.data.datasets.Kept.largest", 20 * 400)  # few enough images to keep
    kept = load_dataset(data, (20, 20))
    assert isinstance(kept.train, Kept)
    for index in range(20):
        assert torch.equal(whole.train.read(index), by_image.train.read(index))
        assert torch.equal(whole.train.read(index), kept.train.read(index))
    assert torch.equal(whole.train.labels, by_image.train.labels)
    assert whole.classes == DIGIT_NAMES == [str(digit) for digit in range(10)]


def test_validation_shows_other_digits_than_training():
    data = load_dataset(config.Data(name="clutter", train_images=500, validation_images=200), (20, 20))
    train = {tuple(image[0, 4:16, 4:16].flatten().tolist()) for image in data.train.images}
    shown = [tuple(image[0, 4:16, 4:16].flatten().tolist()) for image in data.validation.images]
    assert len(train) > 300
    assert not any(digit in train for digit in shown)


@pytest.mark.parametrize("shape", [(30, 32), (12, 32)])
def test_a_canvas_that_has_no_room_is_refused(shape):
    with pytest.raises(ValueError, match=f"multiples of 4 from 16 up, got {shape[0]}x32"):
        load_dataset(config.Data(name="clutter"), shape)


def test_place_and_cells_are_for_clutter_alone():
    with pytest.raises(ValueError, match=r"data.cell is for clutter, not for data.name=digits"):
        config.Data(name="digits", cell=16)
    with pytest.raises(ValueError, match=r"data.place is for clutter, not for data.name=digits"):
        config.Data(name="digits", place="anywhere")
    with pytest.raises(ValueError, match=r"data.place: unknown value 'left'; choose from fixed, anywhere"):
        config.Data(name="clutter", place="left")
