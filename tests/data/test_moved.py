"""Images that are moved on a canvas."""

import numpy as np
import pytest
import torch

from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.data.moved import LARGEST, SMALLEST, moved


def box(image: torch.Tensor) -> tuple[int, int, int, int]:
    """First and last row and column (inclusive) that are not black."""
    rows, columns = image.sum(1).nonzero()[:, 0], image.sum(0).nonzero()[:, 0]
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])


def test_a_shifted_image_is_whole_and_of_every_size_at_every_place():
    drawn = moved(torch.full((400, 1, 20, 12), 200, dtype=torch.uint8), (60, 40), "shift")
    assert drawn.shape == (400, 1, 60, 40)
    heights, widths, tops, lefts = [], [], [], []
    for image in drawn[:, 0].int():
        top, bottom, left, right = box(image)
        heights.append(bottom - top + 1)
        widths.append(right - left + 1)
        tops.append(top)
        lefts.append(left)
        # As bright in all as the image is large: nothing is cut off.
        size = image.sum() / 200 / (20 * 12)
        assert SMALLEST**2 * 0.9 < size < LARGEST**2 * 1.1
    assert [min(heights) <= 16, max(heights) >= 24] == [True, True]  # 0.75 and 1.25 times 20
    assert [min(widths) <= 10, max(widths) >= 15] == [True, True]
    assert np.corrcoef(heights, widths)[0, 1] > 0.9  # both sides grow alike
    assert [min(tops) <= 1, max(tops) >= 60 - 25, min(lefts) <= 1, max(lefts) >= 40 - 15] == 4 * [True]


def test_a_shifted_image_is_not_mirrored():
    image = torch.zeros(50, 1, 16, 16, dtype=torch.uint8)
    image[:, :, 2:6, 10:14] = 255  # a mark at the top right
    frame = torch.full_like(image, 255)
    marks, frames = (moved(part, (40, 40), "shift")[:, 0].int() for part in (image, frame))
    for mark, whole in zip(marks, frames, strict=True):
        top, bottom, left, right = box(whole)
        middle = mark.nonzero().float().mean(0)
        assert abs((middle[0] - top) / (bottom - top) - 4 / 16) < 0.08
        assert abs((middle[1] - left) / (right - left) - 12 / 16) < 0.08


def test_a_turned_image_keeps_its_centre_and_its_distances():
    image = torch.zeros(300, 1, 21, 21, dtype=torch.uint8)
    image[:, :, 10, 10], image[:, :, 9:12, 16:19] = 255, 255  # the centre, and a mark 7 pixels to its right
    drawn = moved(image, (21, 21), "rotate")[:, 0]
    assert (drawn[:, 10, 10] > 200).all()
    drawn[:, 8:13, 8:13] = 0
    rows, columns = torch.meshgrid(torch.arange(21.0), torch.arange(21.0), indexing="ij")
    weight = drawn.float() / drawn.float().sum((1, 2), keepdim=True)
    y, x = (weight * rows).sum((1, 2)) - 10, (weight * columns).sum((1, 2)) - 10
    torch.testing.assert_close((x**2 + y**2).sqrt(), torch.full((300,), 7.0), atol=0.2, rtol=0)
    # Angles of all quarters, about as often.
    quarters = torch.bincount(((torch.atan2(y, x) / (torch.pi / 2)).floor().long() + 4) % 4, minlength=4)
    assert quarters.min() > 45


def test_each_image_is_moved_by_its_index_alone():
    images = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8)
    for how in ("shift", "rotate"):
        whole = moved(images, (16, 16), how)
        assert torch.equal(moved(images[:3], (16, 16), how), whole[:3])


def test_a_dataset_can_be_moved_and_a_canvas_too_small_is_refused():
    data = load_dataset(Data(name="digits", move="shift"), (16, 16))
    assert data.train.shape == (16, 16)
    assert float(data.train.read(0).float().mean()) < float(
        load_dataset(Data(name="digits"), (16, 16)).train.read(0).float().mean()
    )
    with pytest.raises(ValueError, match=r"model.image_size must be at least 10x10, got 8x8"):
        load_dataset(Data(name="digits", move="shift"), (8, 8))
    with pytest.raises(ValueError, match=r"data.move is for digits and idx, not for data.name=clutter"):
        Data(name="clutter", move="shift")
    with pytest.raises(ValueError, match=r"data.move"):
        Data(name="digits", move="sideways")
