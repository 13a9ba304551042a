"""The Triton kernels in Triton's interpreter, on the CPU, against references in double precision."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from reorder.models.kernels.causal_conv import causal_conv_silu, conv_silu_torch
from reorder.models.kernels.segment_attention import (
    Keys,
    Relative,
    cut_of,
    segment_attention,
    segment_attention_reference,
)
from reorder.models.kernels.selective_scan import selective_scan, selective_scan_reference
from reorder.models.kernels.sliding_window import sliding_window_attention, sliding_window_reference
from reorder.orders.straight_through import scores_gradient

pytest.importorskip("triton", reason="triton is not installed: `make test` installs it where it can")


def leaves(*shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Normal numbers that a type can hold, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator).to(dtype).double() for shape in shapes]
    return [tensor.requires_grad_() for tensor in drawn]


def check(ours, truth, inputs: list[Tensor], dtype: torch.dtype) -> None:
    """Outputs and all gradients, within the type's rounding of each one's largest number."""
    expected, low = truth(*inputs), [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    found = ours(*low)
    assert found.dtype == dtype
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    pairs = [(found, expected)]
    pairs += zip(
        torch.autograd.grad(found, low, upstream),
        torch.autograd.grad(expected, inputs, upstream.double()),
        strict=True,
    )
    for place, (one, other) in enumerate(pairs):
        near = (2e-2 if dtype == torch.bfloat16 else 5e-6) * max(other.abs().max().item(), 0.1)
        torch.testing.assert_close(one.double(), other, rtol=0, atol=near, msg=lambda m, p=place: f"{p}: {m}")


@pytest.fixture
def small_chunks(monkeypatch):
    """Several chunks of few slots."""
    from reorder.models.kernels import selective_scan_triton

    monkeypatch.setattr(selective_scan_triton, "CHUNK", 16)


@pytest.mark.parametrize(
    ("slots", "channels", "states", "reverse", "dtype"),
    [
        (1, 1, 1, False, torch.float32),
        (5, 3, 2, True, torch.float32),
        (33, 18, 2, False, torch.float32),
        (17, 16, 3, True, torch.bfloat16),
    ],
)
@pytest.mark.usefixtures("small_chunks")
def test_scan_with_a_bias_softplus_and_gate(slots, channels, states, reverse, dtype):
    rows, columns = (2, slots, channels), (2, slots, states)
    inputs = leaves(
        *(rows, rows, (channels, states), columns, columns, (channels,), rows, (channels,)), dtype=dtype
    )

    def ours(x, delta, A, B, C, D, z, bias):
        return selective_scan(
            x,
            delta,
            -A.exp(),
            B,
            C,
            D,
            z=z,
            delta_bias=bias,
            delta_softplus=True,
            path="triton",
            reverse=reverse,
        )

    def truth(x, delta, A, B, C, D, z, bias):
        step = softplus(delta + bias)
        return selective_scan_reference(x, step, -A.exp(), B, C, D, reverse=reverse) * silu(z)

    check(ours, truth, inputs, dtype)


@pytest.mark.parametrize(("slots", "channels"), [(18, 3), (2, 17)])
@pytest.mark.usefixtures("small_chunks")
def test_plain_scan(slots, channels):
    rows, columns = (1, slots, channels), (1, slots, 2)
    inputs = leaves(rows, rows, (channels, 2), columns, columns, (channels,), dtype=torch.float32)

    def ours(x, delta, A, *rest):
        return selective_scan(x, delta.exp(), -A.exp(), *rest, path="triton")

    def truth(x, delta, A, *rest):
        return selective_scan_reference(x, delta.exp(), -A.exp(), *rest)

    check(ours, truth, inputs, torch.float32)


@pytest.mark.usefixtures("small_chunks")
def test_a_long_way_between_chunks_is_neither_lost_nor_overflows():
    """Steps of 100 forget everything; with steps of almost zero the scan is a running sum."""
    one, x = torch.ones(1, 40, 1), torch.ones(1, 40, 2)
    for size, expected in ((1e-6, torch.arange(1.0, 41) * 1e-6), (100.0, torch.full((40,), 100.0))):
        y = selective_scan(x, x * size, -torch.ones(2, 1), one, one, torch.zeros(2), path="triton")
        torch.testing.assert_close(y[0, :, 0], expected, rtol=1e-4, atol=0)


def test_paths_agree_on_bias_softplus_and_gate():
    """The paths that have no such inputs get them from torch."""
    rows, columns = (2, 7, 5), (2, 7, 3)
    x, delta, A, B, C, D, z, bias = leaves(
        rows, rows, (5, 3), columns, columns, (5,), rows, (5,), dtype=torch.float32
    )
    expected = selective_scan_reference(x, softplus(delta + bias), -A.exp(), B, C, D) * silu(z)
    for path in ("numba", "torch"):
        found = selective_scan(
            x, delta, -A.exp(), B, C, D, z=z, delta_bias=bias, delta_softplus=True, path=path
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("slots", "channels", "taps", "reverse", "dtype"),
    [
        (1, 1, 4, False, torch.float32),
        (5, 3, 1, False, torch.float32),
        (33, 65, 4, False, torch.float32),
        (33, 16, 3, True, torch.float32),
        (17, 16, 4, True, torch.bfloat16),
    ],
)
def test_convolution(slots, channels, taps, reverse, dtype):
    """test_causal_conv.py ties torch's convolution to the sum."""
    inputs = leaves((2, slots, channels), (channels, taps), (channels,), dtype=dtype)

    def ours(x, weight, bias):
        return causal_conv_silu(x, weight, bias, path="triton", reverse=reverse)

    def truth(x, weight, bias):
        return conv_silu_torch(x, weight, bias, reverse)

    check(ours, truth, inputs, dtype)


@pytest.mark.parametrize(
    ("slots", "channels", "band", "shared", "dtype"),
    [
        (1, 3, 1024, True, torch.float32),
        (5, 3, 1024, False, torch.float32),
        (33, 35, 7, True, torch.float32),
        (33, 16, 18, False, torch.float32),
        (33, 16, 4, False, torch.bfloat16),
    ],
)
def test_straight_through_gradient_of_scores(slots, channels, band, shared, dtype, monkeypatch):
    """By autograd through the masked softmax; two scores are the same, which pulls on neither."""
    from reorder.orders import straight_through_triton

    monkeypatch.setattr(straight_through_triton, "SLOTS", 16)
    grad, read, scores = leaves(
        (2, slots, channels), (2, slots, channels), (slots,) if shared else (2, slots), dtype=dtype
    )
    scores = scores.detach().sort(dim=-1, descending=True).values
    scores[..., slots // 2] = scores[..., slots // 2 - 1]
    scores.requires_grad_()
    slot = torch.arange(slots)
    distance = -(scores[..., :, None] - scores[..., None, :]).abs() / 0.3
    soft = distance.masked_fill((slot[:, None] - slot).abs() > band, -torch.inf).softmax(-1)
    (expected,) = torch.autograd.grad(((soft @ read) * grad).sum(), scores)
    low = (tensor.detach().to(dtype) for tensor in (grad, read))
    found = scores_gradient(*low, scores.detach().float(), 0.3, band, path="triton")
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks of few slots."""
    from reorder.models.kernels import band_attention

    monkeypatch.setattr(band_attention, "_block", lambda _: 16)
    monkeypatch.setattr(band_attention, "PART", 2)


@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.parametrize(
    ("length", "width", "window", "dtype"),
    [
        (1, 3, 2, torch.float32),
        (5, 3, 40, torch.float32),
        (35, 17, 6, torch.float32),
        (50, 3, 40, torch.float32),
        (33, 16, 14, torch.bfloat16),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_sliding_window(length, width, window, has_global, dtype):
    inputs = leaves(*[(2, 2, length, width)] * 3, dtype=dtype)

    def ours(query, key, value):
        return sliding_window_attention(query, key, value, window, has_global=has_global, path="triton")

    def truth(query, key, value):
        return sliding_window_reference(query, key, value, window, has_global)

    check(ours, truth, inputs, dtype)


@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.usefixtures("small_blocks")
def test_dropout_in_a_window_drops_its_share_and_has_the_gradient_of_what_is_kept(has_global):
    """One-hot values show the weights, and with them what was kept; autograd then does the rest."""
    length, share = 33, 0.25
    query, key = leaves(*[(2, 3, length, length)] * 2, dtype=torch.float32)
    value = torch.eye(length).expand(2, 3, length, length).clone().double().requires_grad_()
    whole = sliding_window_reference(query, key, value, 14, has_global)
    low = [each.detach().float().requires_grad_() for each in (query, key, value)]
    torch.manual_seed(0)
    found = sliding_window_attention(*low, 14, share, has_global, path="triton")
    seen = whole > 0
    kept = (found != 0).double()
    assert kept[seen].mean().item() == pytest.approx(1 - share, abs=0.03)
    assert kept[..., 0][seen[..., 0]].mean().item() == pytest.approx(1 - share, abs=0.1)
    assert not kept[0, 0].equal(kept[1, 0])
    scores = query @ key.transpose(2, 3) * length**-0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    expected = (weights * kept / (1 - share)) @ value
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    upstream = torch.randn(expected.shape)
    truth = torch.autograd.grad(expected, (query, key, value), upstream.double())
    for one, other in zip(torch.autograd.grad(found, low, upstream), truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.parametrize(
    ("slots", "width", "segment", "memory", "dtype"),
    [
        (1, 3, 1, 1, torch.float32),
        (5, 3, None, 4, torch.float32),
        (33, 3, 5, 7, torch.float32),
        (37, 17, 1, 20, torch.float32),
        (40, 3, 18, 3, torch.float32),
        (33, 16, 4, 6, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.usefixtures("small_blocks")
def test_segments_with_memory_and_distances(slots, width, segment, memory, has_global, apart, dtype):
    length = slots + has_global
    cut = cut_of(length, segment, memory, has_global)
    rows, bias = (2, 2, length, width), (2, 1, width)
    inputs = leaves(rows, rows, rows, (2, length, width), bias, bias, dtype=dtype)
    # remembered keys and values have the values of a segment's own, but gradients of their own
    extra = [each.detach().clone().requires_grad_() for each in inputs[1:3]] if apart else []

    def ours(query, key, value, distances, u, v, *remembered):
        kept = Keys(*remembered) if apart else None
        return segment_attention(query, Keys(key, value), kept, Relative(distances, u, v), cut, path="triton")

    def truth(query, key, value, distances, u, v, *remembered):
        own = Keys(key, value)
        kept = Keys(*remembered) if apart else own
        return segment_attention_reference(query, own, kept, Relative(distances, u, v), cut)

    check(ours, truth, inputs + extra, dtype)
