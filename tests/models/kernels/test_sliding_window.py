"""Blocked sliding-window attention against its definition, sliced feed-forward against plain layers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from reorder.models.kernels.feed_forward import ROWS, feed_forward
from reorder.models.kernels.sliding_window import sliding_window_attention, sliding_window_reference


def inputs(length: int, dtype: torch.dtype = torch.float64, channels: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    rows = torch.randn(3, 2, length, 3, channels, dtype=dtype, generator=generator)
    return [part.transpose(1, 2).requires_grad_() for part in rows]


def by_hand(query: Tensor, key: Tensor, value: Tensor, window: int, has_global: bool) -> Tensor:
    """The definition, one query after the other, with the keys it sees listed."""
    rows = []
    for i in range(query.shape[2]):
        seen = sorted(
            set(range(has_global)) | {j for j in range(query.shape[2]) if abs(i - j) <= window // 2}
        )
        scores = torch.einsum("bhd,bhjd->bhj", query[:, :, i], key[:, :, seen]) / query.shape[-1] ** 0.5
        rows.append(torch.einsum("bhj,bhjd->bhd", scores.softmax(-1), value[:, :, seen]))
    return torch.stack(rows, 2)


@pytest.mark.parametrize(("length", "window"), [(1, 2), (2, 2), (7, 4), (12, 6), (5, 14)])
@pytest.mark.parametrize("has_global", [True, False])
def test_reference_is_the_definition(length, window, has_global):
    tensors = inputs(length)
    found = sliding_window_reference(*tensors, window, has_global)
    torch.testing.assert_close(found, by_hand(*tensors, window, has_global))


def check_against_reference(length: int, window: int, has_global: bool) -> None:
    tensors = inputs(length)
    ours = sliding_window_attention(*tensors, window, has_global=has_global)
    truth = sliding_window_reference(*tensors, window, has_global)
    upstream = torch.randn(truth.shape, dtype=truth.dtype, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours, truth)
    for found, expected in zip(
        torch.autograd.grad(ours, tensors, upstream),
        torch.autograd.grad(truth, tensors, upstream),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("window", [2, 6, 14, 30, 60, 200, 1000])
@pytest.mark.parametrize("length", [1, 2, 24, 39, 40, 41, 48, 49, 197, 400])
@pytest.mark.parametrize("has_global", [True, False])
def test_blocked_equals_reference(length, window, has_global):
    check_against_reference(length, window, has_global)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 300), half=st.integers(1, 150), has_global=st.booleans())
def test_blocked_equals_reference_everywhere(length, half, has_global):
    check_against_reference(length, 2 * half, has_global)


@pytest.mark.parametrize("window", [2, 14, 64])
def test_finite_differences_agree(window):
    tensors = inputs(101, channels=1)
    weights = torch.randn(101, 1, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda *rows: (sliding_window_attention(*rows, window) * weights).sum((2, 3)), tensors, fast_mode=True
    )


@pytest.mark.parametrize("length", [20, 150])
def test_dropout_drops_the_given_share_of_probabilities_and_keeps_the_mean(length):
    query, key, _ = inputs(length)
    # One-hot values show the probabilities themselves.
    value = torch.eye(length, dtype=torch.float64).expand(2, 3, length, length)
    sure = sliding_window_attention(query, key, value, 14)
    torch.manual_seed(0)
    drops = torch.stack([sliding_window_attention(query, key, value, 14, 0.25) for _ in range(200)])
    shown = drops[..., sure[0, 0] > 0] == 0
    assert shown.double().mean() == pytest.approx(0.25, abs=0.01)
    torch.testing.assert_close(drops.mean(0), sure, atol=0.15, rtol=0)
    assert set((drops[0] / sure)[sure > 0].mul(0.75).round(decimals=6).unique().tolist()) == {0.0, 1.0}


def test_dropout_gradient_is_that_of_what_was_dropped():
    """Same random numbers before and after a small step along a direction: a finite difference."""
    tensors = inputs(150)
    directions = [torch.randn_like(tensor) for tensor in tensors]

    def total(step: float) -> Tensor:
        torch.manual_seed(3)
        moved = [tensor + step * way for tensor, way in zip(tensors, directions, strict=True)]
        return sliding_window_attention(*moved, 14, 0.3).square().sum()

    grads = torch.autograd.grad(total(0.0), tensors)
    slope = sum((grad * way).sum() for grad, way in zip(grads, directions, strict=True))
    torch.testing.assert_close((total(1e-6) - total(-1e-6)) / 2e-6, slope, rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [20, 150])
def test_half_precision_with_and_without_autocast(length):
    tensors = inputs(length, torch.float32)
    truth = sliding_window_reference(*tensors, 14)
    low = [tensor.bfloat16() for tensor in tensors]
    found = sliding_window_attention(*low, 14)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), truth, atol=0.05, rtol=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        found = sliding_window_attention(*tensors, 14)
    torch.testing.assert_close(found.float(), truth, atol=0.05, rtol=0.05)
    expected = torch.autograd.grad(truth.sum(), tensors)
    for grad, other in zip(torch.autograd.grad(found.float().sum(), tensors), expected, strict=True):
        torch.testing.assert_close(grad, other, atol=0.1, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("length", [20, 150])
def test_attention_compiles_without_a_break(length):
    tensors = inputs(length)
    compiled = torch.compile(sliding_window_attention, fullgraph=True, backend="aot_eager")
    ours, truth = compiled(*tensors, 14), sliding_window_reference(*tensors, 14)
    torch.testing.assert_close(ours, truth)
    for found, expected in zip(
        torch.autograd.grad(ours.sum(), tensors), torch.autograd.grad(truth.sum(), tensors), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("window", [0, -2, 7])
def test_bad_window_is_named(window):
    with pytest.raises(ValueError, match=f"not {window}"):
        sliding_window_attention(*inputs(5), window)


@pytest.mark.parametrize("rows", [3, ROWS, 2 * ROWS + 5])
def test_feed_forward_equals_plain_layers(rows):
    torch.manual_seed(0)
    up, down = nn.Linear(6, 24).double(), nn.Linear(24, 6).double()
    tokens = torch.randn(1, rows, 6, dtype=torch.float64, requires_grad=True)
    ours, truth = feed_forward(tokens, up, down), down(nn.functional.gelu(up(tokens)))
    torch.testing.assert_close(ours, truth)
    wanted = [tokens, *up.parameters(), *down.parameters()]
    upstream = torch.randn_like(truth)
    for found, expected in zip(
        torch.autograd.grad(ours, wanted, upstream), torch.autograd.grad(truth, wanted, upstream), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_feed_forward_under_autocast_matches_plain_layers():
    torch.manual_seed(0)
    up, down = nn.Linear(6, 24), nn.Linear(24, 6)
    tokens = torch.randn(1, 2 * ROWS + 5, 6, requires_grad=True)
    wanted = [tokens, *up.parameters(), *down.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        ours, truth = feed_forward(tokens, up, down), down(nn.functional.gelu(up(tokens)))
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours, truth)
    grads = torch.autograd.grad(ours.float().square().mean(), wanted)
    for found, expected in zip(
        grads, torch.autograd.grad(truth.float().square().mean(), wanted), strict=True
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.03, atol=0.03 * expected.abs().max().item())
