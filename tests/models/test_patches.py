"""Patches, positions and the class token; the one place where an order touches a model."""

import math

import pytest
import torch

from reorder.models import patches
from reorder.models.grid import grid_of
from reorder.models.patches import (
    PatchEmbed,
    Tokens,
    patchify,
    sincos_positions,
    some_patches,
    unpatchify,
)


def test_patchify_cuts_raster_patches_with_channels_first():
    image = torch.arange(2 * 4 * 6.0).view(1, 2, 4, 6)
    patches = patchify(image, 2)
    assert patches.shape == (1, 6, 8)
    # Patch 4 is in row 1, column 1: pixel rows 2 and 3, columns 2 and 3, of channel 0 and then channel 1.
    expected = [image[0, c, y, x].item() for c in (0, 1) for y in (2, 3) for x in (2, 3)]
    assert patches[0, 4].tolist() == expected


def test_some_patches_are_those_of_all():
    images = torch.randn(3, 2, 4, 6)
    places = torch.tensor([5, 0, 3])
    assert torch.equal(some_patches(images, 2, places), patchify(images, 2)[:, places])
    each = torch.tensor([[5, 0], [1, 1], [2, 4]])
    expected = torch.stack([patchify(images, 2)[image, own] for image, own in enumerate(each)])
    assert torch.equal(some_patches(images, 2, each), expected)


@pytest.mark.parametrize(
    ("channels", "height", "width", "patch"), [(1, 8, 8, 2), (3, 12, 20, 4), (5, 7, 21, 7)]
)
def test_unpatchify_restores_any_rectangle(channels, height, width, patch):
    images = torch.randn(2, channels, height, width)
    grid = grid_of((height, width), patch)
    assert torch.equal(unpatchify(patchify(images, patch), grid, patch), images)


def test_grids_are_rows_by_columns_and_misfits_are_named():
    assert grid_of(224, 16) == (14, 14)
    assert grid_of((32, 64), 16) == (2, 4)
    with pytest.raises(ValueError, match="image size 225x225 is not divisible by patch size 16; try 224x224"):
        grid_of(225, 16)
    with pytest.raises(ValueError, match="image size 8x8 is not divisible by patch size 16; try 16x16"):
        grid_of(8, 16)


def test_embedding_is_norm_linear_norm():
    embed = PatchEmbed(2, 1, 4)
    torch.nn.init.normal_(embed.proj.weight)
    images = torch.randn(1, 1, 2, 2)
    pixels = images.reshape(4)
    normed = (pixels - pixels.mean()) / (pixels.var(unbiased=False) + 1e-5).sqrt()
    projected = embed.proj.weight @ normed + embed.proj.bias
    expected = (projected - projected.mean()) / (projected.var(unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(embed(images)[0, 0], expected)


def test_a_patch_of_one_value_is_refused():
    with pytest.raises(ValueError, match="single value is erased"):
        PatchEmbed(1, 1, 8)
    assert PatchEmbed(1, 1, 8, pixel_norm=False)(torch.zeros(1, 1, 2, 2)).shape == (1, 4, 8)


def test_without_pixel_norm_a_patch_keeps_how_bright_it_is():
    black, white = torch.full((1, 1, 2, 2), -1.0), torch.full((1, 1, 2, 2), 1.0)
    with_norm, without = PatchEmbed(2, 1, 4), PatchEmbed(2, 1, 4, pixel_norm=False)
    torch.testing.assert_close(with_norm(black), with_norm(white))
    projected = without.proj.weight.sum(1) + without.proj.bias
    expected = (projected - projected.mean()) / (projected.var(unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(without(white)[0, 0], expected)
    assert not torch.allclose(without(black), without(white))


@pytest.mark.parametrize("positions", ["learned", "sincos"])
def test_positions_stay_with_their_patch_and_the_class_token_stays_first(positions):
    torch.manual_seed(0)
    tokens = Tokens((2, 3), 2, 3, 8, positions)
    images = torch.randn(2, 3, 4, 6)
    raster = tokens(images)
    assert raster.shape == (2, 7, 8)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    read = tokens(images, order)
    assert torch.equal(read[:, 0], raster[:, 0])
    for slot, patch in enumerate(order.tolist()):
        assert torch.equal(read[:, 1 + slot], raster[:, 1 + patch])
    each = tokens(images, torch.stack([order, order.flip(0)]))
    assert torch.equal(each[0], read[0])
    assert torch.equal(each[1], tokens(images, order.flip(0))[1])


def test_slots_that_nobody_needs_may_be_left_out():
    tokens = Tokens((2, 3), 2, 3, 8)
    images = torch.randn(2, 3, 4, 6)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    for reading in (order, torch.stack([order, order.flip(0)])):
        whole = tokens(images, reading)
        some, _ = tokens.in_order(images, reading, unseen=2)
        torch.testing.assert_close(some, torch.cat([whole[:, :1], whole[:, 3:]], 1))
    beyond = [order.clone().index_fill_(0, torch.tensor(slot), patch) for slot in (0, 5) for patch in (-1, 6)]
    for wrong in (torch.arange(5), order.expand(3, -1), order.float(), *beyond, beyond[0].expand(2, -1)):
        with pytest.raises(ValueError, match="order"):
            tokens.in_order(images, wrong, unseen=2)


def test_the_gradient_of_the_patches_that_are_read_is_the_same_to_the_bit_every_time():
    torch.manual_seed(0)
    tokens, images = Tokens((12, 12), 2, 1, 64), torch.randn(64, 1, 24, 24)
    orders, found = torch.rand(64, 144).argsort(1), set()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    for _ in range(10):
        tokens.zero_grad()
        tokens.in_order(images, orders, unseen=100)[0].square().sum().backward()
        found.add(tokens.pos_embed.grad.numpy().tobytes())
    torch.set_num_threads(threads)
    assert len(found) == 1


def test_sincos_positions_are_sines_and_cosines_of_column_and_row():
    positions = sincos_positions((2, 3), 8)
    row, column = 1, 2
    frequencies = [1.0, 10000**-0.5]
    expected = [f(column * w) for f in (math.sin, math.cos) for w in frequencies]
    expected += [f(row * w) for f in (math.sin, math.cos) for w in frequencies]
    torch.testing.assert_close(positions[row * 3 + column], torch.tensor(expected))
    assert "pos_embed" not in dict(Tokens((2, 2), 2, 1, 8, "sincos").named_parameters())


def test_wrong_images_orders_and_options_are_named():
    tokens = Tokens((2, 2), 2, 3, 8)
    with pytest.raises(ValueError, match=r"\(3, 4, 6\) given; the model reads \(3, 4, 4\)"):
        tokens(torch.zeros(1, 3, 4, 6))
    with pytest.raises(ValueError, match=r"shape \(3,\) cannot read 4 patches"):
        tokens(torch.zeros(1, 3, 4, 4), torch.arange(3))
    with pytest.raises(ValueError, match="3 orders cannot read 2 images"):
        tokens(torch.zeros(2, 3, 4, 4), torch.arange(4).expand(3, -1))
    with pytest.raises(ValueError, match="unknown positions 'rotary'"):
        Tokens((2, 2), 2, 3, 8, "rotary")


def test_large_images_are_embedded_in_tiles_with_the_same_tokens_and_gradients(monkeypatch):
    embed = PatchEmbed(2, 3, 8)
    images = torch.rand(2, 3, 10, 6, requires_grad=True)  # 5 x 3 patches
    plain = embed(images)
    expected = torch.autograd.grad(plain.square().sum(), [images, *embed.parameters()])
    whole, seen = patches.patchify, []

    def recorded(tile, patch_size):
        seen.append(tile.shape[2] // 2 * (tile.shape[3] // 2))
        return whole(tile, patch_size)

    monkeypatch.setattr(patches, "LARGE", 14)
    monkeypatch.setattr(patches, "TILE", 7)
    monkeypatch.setattr(patches, "patchify", recorded)
    tokens = embed(images)
    torch.testing.assert_close(tokens, plain)
    assert seen == [6, 6, 3]
    torch.testing.assert_close(
        torch.autograd.grad(tokens.square().sum(), [images, *embed.parameters()]), expected
    )
    assert len(seen) == 6  # backward makes each tile's patches again
