"""The selective scan for GPUs in Triton, with a hand-written backward: parallel over chunks of slots too.

    h_t = exp(d_t A) h_{t-1} + d_t B_t x_t,   y_t = (C_t h_t + D x_t) silu(z_t),   d = softplus(delta + bias)

A chunk's state at its end is exp(A sum d) times that at its start, plus what the chunk adds. So forward takes
three passes: what every chunk adds, from chunk to chunk the state at its start, and the outputs. Backward
takes the same three from the last chunk to the first for the gradient g_t of h_t,

    g_t = C_t dy_t + exp(d_{t+1} A) g_{t+1},

and computes the states again from those at the chunks' starts, which are all that is kept. No sum is atomic:
one input has one gradient, to the bit.
"""
# mypy: disable-error-code="no-untyped-def"
# B images, N slots, D channels, S states per channel, K chunks

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 64  # slots of one program
CHANNELS = 16  # of one program: 64 bytes of a row
WIDE = 128  # channels of a program that goes from chunk to chunk
LAUNCH: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": True}


@triton.jit
def _tile(time, image, slots, first, width, CHANNELS: tl.constexpr, REVERSE: tl.constexpr):
    """Where slots read at `time` (T,) and channels from `first` on are in (B, N, D), and which exist."""
    row = slots - 1 - time if REVERSE else time
    channel = first + tl.arange(0, CHANNELS)
    at = (image.to(tl.int64) * slots + row)[:, None] * width + channel
    return at, ((time >= 0) & (time < slots))[:, None] & (channel < width)


@triton.jit
def _softplus(raw):
    """log(1 + exp(raw)), as torch has it: above 20, the number itself."""
    return tl.where(raw > 20.0, raw, tl.log(1.0 + tl.exp(tl.minimum(raw, 20.0))))


@triton.jit
def _raw_steps(delta, bias, at, exists, channel, width):
    raw = tl.load(delta + at, exists, 0.0).to(tl.float32)
    if bias is not None:
        raw += tl.load(bias + channel, channel < width, 0.0).to(tl.float32)
    return raw


@triton.jit
def _steps(delta, bias, at, exists, channel, width, SOFTPLUS: tl.constexpr):
    """Step sizes, zero outside: a slot that does not exist keeps the state."""
    raw = _raw_steps(delta, bias, at, exists, channel, width)
    return tl.where(exists, _softplus(raw) if SOFTPLUS else raw, 0.0)


@triton.jit
def _column(pointer, image, time, state, slots, states, REVERSE: tl.constexpr):
    """B or C of one state, (T,), zero outside; they are (B, N, S)."""
    row = slots - 1 - time if REVERSE else time
    at = (image.to(tl.int64) * slots + row) * states + state
    return tl.load(pointer + at, (time >= 0) & (time < slots), 0.0).to(tl.float32)


@triton.jit
def _gated(dout, z, at, exists):
    """The gradient of the output before its gate."""
    grad = tl.load(dout + at, exists, 0.0).to(tl.float32)
    if z is not None:
        gate = tl.load(z + at, exists, 0.0).to(tl.float32)
        grad *= gate * tl.sigmoid(gate)
    return grad


@triton.jit
def _follow(decay, value, next_decay, next_value):
    """Two steps h -> decay h + value, one after the other, as one."""
    return decay * next_decay, next_decay * value + next_value


@triton.jit
def _add_kernel(
    x, delta, A, B, bias, added, total, slots, width, states,
    SOFTPLUS: tl.constexpr, REVERSE: tl.constexpr, CHUNK: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """What every chunk adds to the state at its end, (B, K, S, D), and its sum of steps, (B, K, D)."""
    chunk, image, first = tl.program_id(0), tl.program_id(2), tl.program_id(1) * CHANNELS
    start = chunk * CHUNK
    time, channel = start + tl.arange(0, CHUNK), first + tl.arange(0, CHANNELS)
    at, exists = _tile(time, image, slots, first, width, CHANNELS, REVERSE)
    step = _steps(delta, bias, at, exists, channel, width, SOFTPLUS)
    drive = step * tl.load(x + at, exists, 0.0).to(tl.float32)
    # the steps after a slot: those of the next slot on, summed from the chunk's end
    at, exists = _tile(time + 1, image, slots, first, width, CHANNELS, REVERSE)
    exists &= (time + 1 < start + CHUNK)[:, None]
    later = tl.cumsum(_steps(delta, bias, at, exists, channel, width, SOFTPLUS), 0, reverse=True)
    place = image.to(tl.int64) * tl.num_programs(0) + chunk
    tl.store(total + place * width + channel, tl.sum(step, 0), channel < width)
    for state in range(states):
        rate = tl.load(A + channel * states + state, channel < width, 0.0).to(tl.float32)
        into = _column(B, image, time, state, slots, states, REVERSE)
        end = tl.sum(tl.exp(rate[None, :] * later) * drive * into[:, None], 0)
        tl.store(added + (place * states + state) * width + channel, end, channel < width)


@triton.jit
def _add_back_kernel(
    dout, delta, A, C, z, bias, added, slots, width, states,
    SOFTPLUS: tl.constexpr, REVERSE: tl.constexpr, CHUNK: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """What every chunk adds to the gradient of the state before it, (B, K, S, D)."""
    chunk, image, first = tl.program_id(0), tl.program_id(2), tl.program_id(1) * CHANNELS
    time, channel = chunk * CHUNK + tl.arange(0, CHUNK), first + tl.arange(0, CHANNELS)
    at, exists = _tile(time, image, slots, first, width, CHANNELS, REVERSE)
    until = tl.cumsum(_steps(delta, bias, at, exists, channel, width, SOFTPLUS), 0)
    dy = _gated(dout, z, at, exists)
    place = image.to(tl.int64) * tl.num_programs(0) + chunk
    for state in range(states):
        rate = tl.load(A + channel * states + state, channel < width, 0.0).to(tl.float32)
        out = _column(C, image, time, state, slots, states, REVERSE)
        before = tl.sum(tl.exp(rate[None, :] * until) * dy * out[:, None], 0)
        tl.store(added + (place * states + state) * width + channel, before, channel < width)


@triton.jit
def _carry_kernel(added, total, A, chunks, width, states, BACKWARD: tl.constexpr, WIDE: tl.constexpr):
    """From chunk to chunk, or back: what each adds becomes, in place, what it is given."""
    channel, state = tl.program_id(0) * WIDE + tl.arange(0, WIDE), tl.program_id(1)
    exists, image = channel < width, tl.program_id(2).to(tl.int64)
    rate = tl.load(A + channel * states + state, exists, 0.0).to(tl.float32)
    given = tl.zeros((WIDE,), tl.float32)
    for count in range(chunks):
        place = image * chunks + (chunks - 1 - count if BACKWARD else count)
        at = added + (place * states + state) * width + channel
        own = tl.load(at, exists, 0.0)
        tl.store(at, given, exists)
        given = tl.exp(rate * tl.load(total + place * width + channel, exists, 0.0)) * given + own


@triton.jit
def _output_kernel(
    x, delta, A, B, C, D, z, bias, starts, y, slots, width, states,
    SOFTPLUS: tl.constexpr, REVERSE: tl.constexpr, CHUNK: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    chunk, image, first = tl.program_id(0), tl.program_id(2), tl.program_id(1) * CHANNELS
    time, channel = chunk * CHUNK + tl.arange(0, CHUNK), first + tl.arange(0, CHANNELS)
    at, exists = _tile(time, image, slots, first, width, CHANNELS, REVERSE)
    step = _steps(delta, bias, at, exists, channel, width, SOFTPLUS)
    value = tl.load(x + at, exists, 0.0).to(tl.float32)
    place = image.to(tl.int64) * tl.num_programs(0) + chunk
    total = tl.load(D + channel, channel < width, 0.0).to(tl.float32)[None, :] * value
    for state in range(states):
        rate = tl.load(A + channel * states + state, channel < width, 0.0).to(tl.float32)
        into = _column(B, image, time, state, slots, states, REVERSE)
        out = _column(C, image, time, state, slots, states, REVERSE)
        start = tl.load(starts + (place * states + state) * width + channel, channel < width, 0.0)
        kept, added = tl.associative_scan(
            (tl.exp(rate[None, :] * step), step * value * into[:, None]), 0, _follow
        )
        total += (kept * start[None, :] + added) * out[:, None]
    if z is not None:
        gate = tl.load(z + at, exists, 0.0).to(tl.float32)
        total *= gate * tl.sigmoid(gate)
    tl.store(y + at, total, exists)


@triton.jit
def _gradient_kernel(
    dout, x, delta, A, B, C, D, z, bias, starts, ends,
    dx, ddelta, dA, dB, dC, dD, dz, dbias, slots, width, states,
    SOFTPLUS: tl.constexpr, REVERSE: tl.constexpr, CHUNK: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Gradients of x, delta and z, and for every program its part of the others."""
    chunk, group, image = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, start = group * CHANNELS, chunk * CHUNK
    time, channel = start + tl.arange(0, CHUNK), first + tl.arange(0, CHANNELS)
    known = channel < width
    after, exists = _tile(time + 1, image, slots, first, width, CHANNELS, REVERSE)
    exists &= (time + 1 < start + CHUNK)[:, None]
    next_step = _steps(delta, bias, after, exists, channel, width, SOFTPLUS)
    at, exists = _tile(time, image, slots, first, width, CHANNELS, REVERSE)
    step = _steps(delta, bias, at, exists, channel, width, SOFTPLUS)
    value = tl.load(x + at, exists, 0.0).to(tl.float32)
    dy = _gated(dout, z, at, exists)
    place = image.to(tl.int64) * tl.num_programs(0) + chunk
    row = image.to(tl.int64) * slots + (slots - 1 - time if REVERSE else time)
    share = (group.to(tl.int64) * tl.num_programs(2) * slots + row) * states
    through = tl.load(D + channel, known, 0.0).to(tl.float32)
    y = through[None, :] * value
    grad_x, grad_step = through[None, :] * dy, tl.zeros_like(dy)
    for state in range(states):
        rate = tl.load(A + channel * states + state, known, 0.0).to(tl.float32)[None, :]
        into = _column(B, image, time, state, slots, states, REVERSE)[:, None]
        out = _column(C, image, time, state, slots, states, REVERSE)[:, None]
        at_state = (place * states + state) * width + channel
        kept, added = tl.associative_scan((tl.exp(rate * step), step * value * into), 0, _follow)
        h = kept * tl.load(starts + at_state, known, 0.0)[None, :] + added
        kept, added = tl.associative_scan((tl.exp(rate * next_step), out * dy), 0, _follow, reverse=True)
        grad = kept * tl.load(ends + at_state, known, 0.0)[None, :] + added
        y += h * out
        from_before = grad * (h - step * value * into)  # times exp(d_t A) h_{t-1}
        grad_x += grad * step * into
        grad_step += grad * value * into + from_before * rate
        tl.store(dA + at_state, tl.sum(from_before * step, 0), known)
        tl.store(dB + share + state, tl.sum(grad * step * value, 1), time < slots)
        tl.store(dC + share + state, tl.sum(dy * h, 1), time < slots)
    tl.store(dD + place * width + channel, tl.sum(dy * value, 0), known)
    if z is not None:
        gate = tl.load(z + at, exists, 0.0).to(tl.float32)
        slope = tl.sigmoid(gate) * (1.0 + gate * (1.0 - tl.sigmoid(gate)))
        tl.store(dz + at, tl.load(dout + at, exists, 0.0).to(tl.float32) * y * slope, exists)
    if SOFTPLUS:
        grad_step *= tl.sigmoid(_raw_steps(delta, bias, at, exists, channel, width))
    if bias is not None:
        tl.store(dbias + place * width + channel, tl.sum(tl.where(exists, grad_step, 0.0), 0), known)
    tl.store(dx + at, grad_x, exists)
    tl.store(ddelta + at, grad_step, exists)


class SelectiveScan(torch.autograd.Function):
    """y (B, N, D) of contiguous x and delta (B, N, D), A (D, S), B and C (B, N, S), D (D,), z, bias."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor,
        z: Tensor | None, bias: Tensor | None, softplus: bool, reverse: bool,
    ) -> Tensor:  # fmt: skip
        batch, slots, width = x.shape
        states, chunks = A.shape[1], triton.cdiv(slots, CHUNK)
        starts = torch.empty(batch, chunks, states, width, dtype=torch.float32, device=x.device)
        total = torch.empty(batch, chunks, width, dtype=torch.float32, device=x.device)
        y, sizes = torch.empty_like(x), (slots, width, states)
        grid = chunks, triton.cdiv(width, CHANNELS), batch
        options = {"SOFTPLUS": softplus, "REVERSE": reverse, "CHUNK": CHUNK, "CHANNELS": CHANNELS, **LAUNCH}
        _add_kernel[grid](x, delta, A, B, bias, starts, total, *sizes, **options)
        _carry_kernel[_carries(A, batch)](
            starts, total, A, chunks, width, states, BACKWARD=False, WIDE=WIDE, **LAUNCH
        )
        _output_kernel[grid](x, delta, A, B, C, D, z, bias, starts, y, *sizes, **options)
        ctx.save_for_backward(x, delta, A, B, C, D, z, bias, starts, total)
        ctx.options = options
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        x, delta, A, B, C, D, z, bias, starts, total = ctx.saved_tensors
        dout = dout.contiguous()
        batch, slots, width = x.shape
        sizes, grid = (slots, width, A.shape[1]), (starts.shape[1], triton.cdiv(width, CHANNELS), batch)
        ends, dA = torch.empty_like(starts), torch.empty_like(starts)
        _add_back_kernel[grid](dout, delta, A, C, z, bias, ends, *sizes, **ctx.options)
        _carry_kernel[_carries(A, batch)](
            ends, total, A, starts.shape[1], width, A.shape[1], BACKWARD=True, WIDE=WIDE, **LAUNCH
        )
        dx, ddelta = torch.empty_like(x), torch.empty_like(delta)
        dz = None if z is None else torch.empty_like(z)
        dB, dC = (torch.empty(grid[1], *B.shape, dtype=torch.float32, device=x.device) for _ in "BC")
        dD, dbias = torch.empty_like(total), None if bias is None else torch.empty_like(total)
        _gradient_kernel[grid](
            dout, x, delta, A, B, C, D, z, bias, starts, ends,
            dx, ddelta, dA, dB, dC, dD, dz, dbias, *sizes, **ctx.options,
        )  # fmt: skip
        if bias is not None and dbias is not None:
            dbias = dbias.sum((0, 1)).to(bias.dtype)
        shared = dA.sum((0, 1)).T.to(A.dtype), dB.sum(0).to(B.dtype), dC.sum(0).to(C.dtype)
        return dx, ddelta, *shared, dD.sum((0, 1)).to(D.dtype), dz, dbias, None, None


def _carries(A: Tensor, batch: int) -> tuple[int, int, int]:
    """The programs that go from chunk to chunk: groups of channels, states, images."""
    return triton.cdiv(A.shape[0], WIDE), A.shape[1], batch
