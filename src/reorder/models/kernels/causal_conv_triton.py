"""The short causal convolution and SiLU of Mamba for GPUs in Triton, in one pass each way.

Backward computes the convolutions again instead of keeping them.
"""
# mypy: disable-error-code="no-untyped-def"
# B images, N slots, D channels, T taps

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

SLOTS = 32  # of one program
CHANNELS = 64  # of one program: 128 bytes of a row in half precision
LAUNCH: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": True}


@triton.jit
def _rows(pointer, time, image, slots, channel, width, REVERSE: tl.constexpr):
    """Rows read at `time` (n,) of (B, N, D), zero outside."""
    row = slots - 1 - time if REVERSE else time
    at = (image.to(tl.int64) * slots + row)[:, None] * width + channel
    exists = ((time >= 0) & (time < slots))[:, None] & (channel < width)
    return tl.load(pointer + at, exists, 0.0).to(tl.float32)


@triton.jit
def _convolve(
    x, weight, bias, time, image, slots, channel, width, TAPS: tl.constexpr, REVERSE: tl.constexpr
):  # fmt: skip
    """What SiLU is applied to."""
    total = tl.load(bias + channel, channel < width, 0.0).to(tl.float32)[None, :]
    for tap in tl.static_range(TAPS):
        factor = tl.load(weight + channel * TAPS + tap, channel < width, 0.0).to(tl.float32)
        total += factor[None, :] * _rows(x, time - (TAPS - 1 - tap), image, slots, channel, width, REVERSE)
    return total


@triton.jit
def _forward_kernel(
    x, weight, bias, y, slots, width,
    TAPS: tl.constexpr, REVERSE: tl.constexpr, SLOTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    time, image = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS), tl.program_id(2)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    value = _convolve(x, weight, bias, time, image, slots, channel, width, TAPS, REVERSE)
    row = slots - 1 - time if REVERSE else time
    at = (image.to(tl.int64) * slots + row)[:, None] * width + channel
    tl.store(y + at, value * tl.sigmoid(value), (time < slots)[:, None] & (channel < width))


@triton.jit
def _backward_kernel(
    grad, x, weight, bias, dx, dweight, dbias, slots, width,
    TAPS: tl.constexpr, REVERSE: tl.constexpr, SLOTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of x, and every program's part (P, T, D) and (P, D) of those of weight and bias."""
    block, image = tl.program_id(0), tl.program_id(2)
    time = block * SLOTS + tl.arange(0, SLOTS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < width
    place = image.to(tl.int64) * tl.num_programs(0) + block
    total = tl.zeros((SLOTS, CHANNELS), tl.float32)
    for later in tl.static_range(TAPS):  # slots whose convolution has this one in it
        value = _convolve(x, weight, bias, time + later, image, slots, channel, width, TAPS, REVERSE)
        gate = tl.sigmoid(value)
        given = _rows(grad, time + later, image, slots, channel, width, REVERSE)
        given *= gate * (1.0 + value * (1.0 - gate))
        factor = tl.load(weight + channel * TAPS + TAPS - 1 - later, known, 0.0).to(tl.float32)
        total += factor[None, :] * given
        own = given * _rows(x, time, image, slots, channel, width, REVERSE)
        tl.store(dweight + (place * TAPS + TAPS - 1 - later) * width + channel, tl.sum(own, 0), known)
        if later == 0:
            tl.store(dbias + place * width + channel, tl.sum(given, 0), known)
    row = slots - 1 - time if REVERSE else time
    at = (image.to(tl.int64) * slots + row)[:, None] * width + channel
    tl.store(dx + at, total, (time < slots)[:, None] & known)


class CausalConvSilu(torch.autograd.Function):
    """SiLU of the convolution, (B, N, D), of contiguous x (B, N, D), weight (D, T) and bias (D,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, reverse: bool) -> Tensor:
        batch, slots, width = x.shape
        y = torch.empty_like(x)
        ctx.grid = triton.cdiv(slots, SLOTS), triton.cdiv(width, CHANNELS), batch
        sizes = {"TAPS": weight.shape[1], "REVERSE": reverse, "SLOTS": SLOTS, "CHANNELS": CHANNELS}
        ctx.options = sizes | LAUNCH
        _forward_kernel[ctx.grid](x, weight, bias, y, slots, width, **ctx.options)
        ctx.save_for_backward(x, weight, bias)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        (blocks, _, batch), (_, slots, width) = ctx.grid, x.shape
        kind = {"dtype": torch.float32, "device": x.device}
        dx, dbias = torch.empty_like(x), torch.empty(batch * blocks, width, **kind)
        dweight = torch.empty(batch * blocks, weight.shape[1], width, **kind)
        _backward_kernel[ctx.grid](
            grad.contiguous(), x, weight, bias, dx, dweight, dbias, slots, width, **ctx.options
        )
        return dx, dweight.sum(0).T.to(weight.dtype), dbias.sum(0).to(bias.dtype), None
