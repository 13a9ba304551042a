"""The short convolution against its sum, written out in numpy."""

from typing import Any

import numpy as np
import pytest
import torch

from reorder.models.kernels.causal_conv import causal_conv_silu


def literal(x, weight, bias, reverse):  # type: ignore[no-untyped-def]
    """Slot t sees itself through the last tap, its j-th predecessor (reverse: successor) j taps before."""
    images, slots, channels = x.shape
    taps = weight.shape[1]
    y = np.zeros(x.shape)
    for b, t, d in np.ndindex(images, slots, channels):
        value = bias[d]
        for j in range(taps):
            source = t + j if reverse else t - j
            if 0 <= source < slots:
                value += weight[d, taps - 1 - j] * x[b, source, d]
        y[b, t, d] = value / (1 + np.exp(-value))
    return y


@pytest.mark.parametrize("path", ["numba", "torch"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("slots", "channels", "taps"), [(1, 3, 4), (2, 16, 4), (9, 21, 4), (30, 80, 2), (7, 5, 1)]
)
def test_convolution_is_the_sum(slots: int, channels: int, taps: int, reverse: bool, path: str) -> None:
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(s) for s in ((2, slots, channels), (channels, taps), (channels,)))
    tensors: Any = [torch.from_numpy(array).requires_grad_() for array in (x, weight, bias)]
    y = causal_conv_silu(*tensors, path=path, reverse=reverse)
    np.testing.assert_allclose(y.detach(), literal(x, weight, bias, reverse), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda *t: causal_conv_silu(*t, path=path, reverse=reverse), tensors, fast_mode=True
    )


def test_single_precision_and_large_inputs() -> None:
    x = torch.linspace(-200, 200, 32).view(1, 2, 16)
    y = causal_conv_silu(x, torch.ones(16, 1), torch.zeros(16), path="numba")
    torch.testing.assert_close(y, torch.nn.functional.silu(x), rtol=1e-6, atol=1e-6)


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match=r"got \(1, 2, 3\), \(4, 4\), \(3,\)"):
        causal_conv_silu(torch.zeros(1, 2, 3), torch.zeros(4, 4), torch.zeros(3))
