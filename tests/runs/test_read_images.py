"""Images that are kept with their orders: small ones to the pixel, large ones reduced."""

import torch

from reorder.runs.read_images import ReadImages


def test_small_images_are_kept_as_they_are_grey_or_in_colour():
    grey = torch.arange(2 * 12 * 10).to(torch.uint8).view(2, 1, 12, 10)
    colour = torch.cat([grey, 255 - grey, grey // 2], dim=1)
    orders = torch.tensor([[0, 1], [1, 0]])
    assert ReadImages.of(grey, orders).images.tolist() == grey[:, 0].tolist()
    kept = ReadImages.of(colour, orders)
    assert kept.images.tolist() == colour.permute(0, 2, 3, 1).tolist()
    assert kept.orders.tolist() == [[0, 1], [1, 0]]


def test_large_images_are_reduced_and_keep_their_shape_and_colours():
    images = torch.zeros(1, 3, 224, 448, dtype=torch.uint8)
    images[:, 0, :, :224] = 200  # the left half is red
    kept = ReadImages.of(images, torch.tensor([[0, 1]])).images
    assert kept.shape == (1, 56, 112, 3)
    assert kept[0, 20, 10].tolist() == [200, 0, 0]
    assert kept[0, 20, 100].tolist() == [0, 0, 0]
