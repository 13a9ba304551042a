"""Straight-through reading against autograd through the dense formula, and against plain reading."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reorder
from reorder.orders.read import read_in_order
from reorder.orders.straight_through import Sampled, scores_gradient


def soft_sorted(scores, width):
    """S (..., N, N) of the formula, with autograd."""
    sorted_scores = scores.sort(dim=-1, descending=True).values
    return (-(sorted_scores[..., :, None] - scores[..., None, :]).abs() / width).softmax(-1)


def dense_reading(tokens, scores, width):
    """Hard tokens plus (S - stop(S)) stop(tokens): the gradient of the tokens is that of the hard reading."""
    order = scores.detach().argsort(dim=-1, descending=True)
    soft = soft_sorted(scores, width)
    return read_in_order(tokens, order) + (soft - soft.detach()) @ tokens.detach()


def sampled(scores, width):
    return Sampled(scores.detach().argsort(dim=-1, descending=True), scores, width)


@given(
    images=st.integers(1, 3),
    patches=st.integers(1, 9),
    width=st.floats(0.05, 5),
    shared=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_gradients_are_those_of_the_dense_formula(images, patches, width, shared, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(images, patches, 4, generator=generator)
    scores = torch.randn(*([] if shared else [images]), patches, generator=generator)
    weights = torch.randn(images, patches, 4, generator=generator)
    found, expected = [], []
    for gradients, read in (
        (found, lambda t, s: reorder.read(t, sampled(s, width))),
        (expected, lambda t, s: dense_reading(t, s, width)),
    ):
        inputs = tokens.clone().requires_grad_(), scores.clone().requires_grad_()
        (read(*inputs).sin() * weights).sum().backward()
        gradients += [each.grad for each in inputs]
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(7,), (3, 7)])
def test_forward_is_the_hard_reading_to_the_bit(shape):
    tokens, scores = torch.randn(3, 7, 5), torch.randn(shape, requires_grad=True)
    order = scores.detach().argsort(dim=-1, descending=True)
    assert torch.equal(reorder.read(tokens, sampled(scores, 0.3)), read_in_order(tokens, order))


def test_a_score_moves_towards_the_slot_where_its_patch_helps():
    # The loss is minus the first slot's token; patch 1 has the larger token, but patch 0 is read first.
    scores = torch.tensor([0.1, 0.0], requires_grad=True)
    tokens = torch.tensor([[[0.0], [1.0]]])
    (-reorder.read(tokens, sampled(scores, 0.5))[0, 0, 0]).backward()
    assert scores.grad[1] < 0 < scores.grad[0]  # descent raises patch 1 and lowers patch 0


@pytest.mark.parametrize("shared", [True, False])
def test_a_band_that_covers_all_slots_is_exact_and_a_narrow_one_is_the_masked_formula(shared):
    patches, width, band = 700, 0.02, 40
    generator = torch.Generator().manual_seed(0)
    grad, read = (torch.randn(2, patches, 3, generator=generator) for _ in "gr")
    shape = (patches,) if shared else (2, patches)
    scores = torch.randn(shape, generator=generator).sort(dim=-1, descending=True).values

    def dense(most):
        """By autograd through a softmax over the slots at most so far away."""
        leaf = scores.clone().requires_grad_()
        slot = torch.arange(patches)
        distance = -(leaf[..., :, None] - leaf[..., None, :]).abs() / width
        soft = distance.masked_fill((slot[:, None] - slot).abs() > most, -torch.inf).softmax(-1)
        ((soft @ read) * grad).sum().backward()
        return leaf.grad

    for most in (patches, band):
        # more patches than the band: computed in chunks of slots
        found = scores_gradient(grad, read, scores, width, band=min(most, patches - 1))
        torch.testing.assert_close(found, dense(most), rtol=1e-3, atol=2e-3)
    torch.testing.assert_close(
        scores_gradient(grad, read, scores, width), dense(patches), rtol=1e-3, atol=2e-3
    )
    assert (dense(band) - dense(patches)).abs().max() > 0.1  # or the band was never tried


def test_a_prefix_stays_where_it_is():
    tokens = torch.arange(10.0).view(1, 5, 2)
    order = torch.tensor([2, 0, 1])
    read = reorder.read(tokens, order, prefix=2)
    assert torch.equal(read[:, :2], tokens[:, :2])
    assert torch.equal(read[:, 2:], tokens[:, [4, 2, 3]])


@pytest.mark.parametrize("order", [torch.arange(4), Sampled(torch.arange(4), torch.zeros(4), 1.0)])
def test_an_order_of_another_number_of_patches_is_refused(order):
    with pytest.raises(ValueError, match=r"an order of shape \(4,\) cannot read 5 patches"):
        reorder.read(torch.zeros(2, 5, 3), order)


def test_orders_are_divided_with_the_parts_of_a_batch():
    scores = torch.randn(6, 5)
    parts = sampled(scores, 0.5).chunk(3)
    assert [part.order.shape for part in parts] == [(2, 5)] * 3
    assert torch.equal(torch.cat([part.scores for part in parts]), scores)
    one = sampled(scores[0], 0.5)
    assert one.chunk(2) == [one, one]


def test_the_gradient_in_half_precision_is_near_that_in_full():
    tokens, scores = torch.randn(2, 9, 8), torch.randn(2, 9)
    gradients = []
    for kind in (torch.float32, torch.bfloat16):
        leaf = scores.clone().requires_grad_()
        reorder.read(tokens.to(kind), sampled(leaf, 0.5)).float().square().sum().backward()
        gradients.append(leaf.grad)
    assert gradients[1].dtype == torch.float32
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0.1, atol=0.3)
