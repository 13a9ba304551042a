"""The selective scan on the CPU: fused loops that keep the states in the cache.

Sixteen channels advance together. Forward stores the states only at the start of every CHUNK slots; backward
restores the states of one chunk from there, so no array of size B * N * D * S ever exists. Arrays are flat
and contiguous; D is a multiple of 16.
"""
# mypy: disable-error-code="no-untyped-def"
# B images, N slots, D channels, S states per channel, G groups of channels, K = ceil(N / CHUNK) chunks

from typing import NamedTuple

import numpy as np
from numba import njit

from reorder.models.kernels.simd import FASTMATH, LOG2_E, WIDTH, exp2, load, splat, store, total
from reorder.models.kernels.threads import run

CHUNK = 16


class Shape(NamedTuple):
    """What a task must know: the sizes, how many sixteens of channels it takes, and the direction."""

    slots: int
    channels: int
    states: int
    sixteens: int
    reverse: bool

    @property
    def groups(self) -> int:
        return -(-self.channels // (WIDTH * self.sixteens))

    @property
    def chunks(self) -> int:
        return -(-self.slots // CHUNK)


def plan(batch: int, slots: int, channels: int, states: int, reverse: bool) -> Shape:
    """A Shape whose tasks hold up to 64 channels, fewer if there would not be six tasks to share out.

    The number of threads plays no part, so that results do not depend on it.
    """
    return Shape(slots, channels, states, max(1, min(4, batch * channels // WIDTH // 6)), reverse)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _forward_task(task, shape, x, delta, A, B, C, D, y, starts):
    N, width, S, sixteens, reverse = shape
    groups = -(-width // (WIDTH * sixteens))
    chunks = -(-N // CHUNK)
    image, first = task // groups, task % groups * sixteens * WIDTH
    count = min(sixteens, (width - first) // WIDTH)
    rates = np.empty(count * S * WIDTH, x.dtype)
    h = np.zeros(count * S * WIDTH, x.dtype)
    for k in range(count):
        for s in range(S):
            store(rates, (k * S + s) * WIDTH, load(A, s * width + first + k * WIDTH) * LOG2_E)
    for t in range(N):
        slot = image * N + (N - 1 - t if reverse else t)
        for k in range(count):
            channel = first + k * WIDTH
            if t % CHUNK == 0:
                for s in range(S):
                    start = ((image * chunks + t // CHUNK) * S + s) * width + channel
                    store(starts, start, load(h, (k * S + s) * WIDTH))
            step = load(delta, slot * width + channel)
            value = load(x, slot * width + channel)
            drive = step * value
            out = value * load(D, channel)
            for s in range(S):
                at = (k * S + s) * WIDTH
                state = exp2(step * load(rates, at)) * load(h, at) + drive * B[slot * S + s]
                store(h, at, state)
                out = out + state * C[slot * S + s]
            store(y, slot * width + channel, out)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _restore(image, chunk, channel, shape, x, delta, A, B, starts, decay, h):
    """Redo a chunk for 16 channels: decay[t] = exp(delta_t A), h[0] the state before it, h[t + 1] after t."""
    N, width, S, _, reverse = shape
    chunks = -(-N // CHUNK)
    for s in range(S):
        store(h, s * WIDTH, load(starts, ((image * chunks + chunk) * S + s) * width + channel))
    for t in range(min(CHUNK, N - chunk * CHUNK)):
        time = chunk * CHUNK + t
        slot = image * N + (N - 1 - time if reverse else time)
        step = load(delta, slot * width + channel)
        drive = step * load(x, slot * width + channel)
        step = step * LOG2_E
        for s in range(S):
            at = (t * S + s) * WIDTH
            factor = exp2(step * load(A, s * width + channel))
            store(decay, at, factor)
            store(h, at + S * WIDTH, factor * load(h, at) + drive * B[slot * S + s])


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _backward_chunk(image, chunk, k, channel, shape, inputs, outputs, buffers):
    """Gradients of one chunk for 16 channels, from the states that _restore left."""
    N, width, S, _, reverse = shape
    grad, x, delta, A, B, C, D = inputs
    dx, ddelta = outputs
    decay, h, dh, dA, dB, dC, dD = buffers
    zero = splat(grad.dtype.type(0))
    for t in range(min(CHUNK, N - chunk * CHUNK) - 1, -1, -1):
        time = chunk * CHUNK + t
        slot = image * N + (N - 1 - time if reverse else time)
        here = slot * width + channel
        step, value, dy = load(delta, here), load(x, here), load(grad, here)
        drive = step * value
        through_input, through_decay = zero, zero
        for s in range(S):
            at, carry = (t * S + s) * WIDTH, (k * S + s) * WIDTH
            gradient = load(dh, carry) + dy * C[slot * S + s]
            store(dC, at, load(dC, at) + dy * load(h, at + S * WIDTH))
            store(dB, at, load(dB, at) + gradient * drive)
            before = gradient * load(decay, at)
            store(dh, carry, before)
            weight = before * load(h, at)
            through_input = through_input + gradient * B[slot * S + s]
            through_decay = through_decay + weight * load(A, s * width + channel)
            store(dA, carry, load(dA, carry) + weight * step)
        store(dx, here, through_input * step + dy * load(D, channel))
        store(ddelta, here, through_input * value + through_decay)
        store(dD, k * WIDTH, load(dD, k * WIDTH) + dy * value)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _backward_task(task, shape, grad, x, delta, A, B, C, D, starts, dx, ddelta, dA, dB, dC, dD):
    N, width, S, sixteens, reverse = shape
    groups = -(-width // (WIDTH * sixteens))
    image, group = task // groups, task % groups
    first = group * sixteens * WIDTH
    count = min(sixteens, (width - first) // WIDTH)
    zero = splat(x.dtype.type(0))
    decay, h = np.empty(CHUNK * S * WIDTH, x.dtype), np.empty((CHUNK + 1) * S * WIDTH, x.dtype)
    lanes_dB, lanes_dC = np.empty(CHUNK * S * WIDTH, x.dtype), np.empty(CHUNK * S * WIDTH, x.dtype)
    lanes_dA, dh = np.zeros(count * S * WIDTH, x.dtype), np.zeros(count * S * WIDTH, x.dtype)
    lanes_dD = np.zeros(count * WIDTH, x.dtype)
    inputs, outputs = (grad, x, delta, A, B, C, D), (dx, ddelta)
    buffers = (decay, h, dh, lanes_dA, lanes_dB, lanes_dC, lanes_dD)
    for chunk in range(-(-N // CHUNK) - 1, -1, -1):
        length = min(CHUNK, N - chunk * CHUNK)
        for i in range(length * S):
            store(lanes_dB, i * WIDTH, zero)
            store(lanes_dC, i * WIDTH, zero)
        for k in range(count):
            channel = first + k * WIDTH
            _restore(image, chunk, channel, shape, x, delta, A, B, starts, decay, h)
            _backward_chunk(image, chunk, k, channel, shape, inputs, outputs, buffers)
        for t in range(length):
            time = chunk * CHUNK + t
            slot = (image * groups + group) * N + (N - 1 - time if reverse else time)
            for s in range(S):
                dB[slot * S + s] = total(load(lanes_dB, (t * S + s) * WIDTH))
                dC[slot * S + s] = total(load(lanes_dC, (t * S + s) * WIDTH))
    for k in range(count):
        store(dD, image * width + first + k * WIDTH, load(lanes_dD, k * WIDTH))
        for s in range(S):
            store(dA, (image * S + s) * width + first + k * WIDTH, load(lanes_dA, (k * S + s) * WIDTH))


@njit(cache=True, nogil=True)
def _forward(first, last, shape, x, delta, A, B, C, D, y, starts):
    for task in range(first, last):
        _forward_task(task, shape, x, delta, A, B, C, D, y, starts)


@njit(cache=True, nogil=True)
def _backward(first, last, shape, grad, x, delta, A, B, C, D, starts, dx, ddelta, dA, dB, dC, dD):
    for task in range(first, last):
        _backward_task(task, shape, grad, x, delta, A, B, C, D, starts, dx, ddelta, dA, dB, dC, dD)


def forward(x, delta, A, B, C, D, *, reverse):
    """y (B, N, D) and the states at the chunks' starts (B, K, S, D), from numpy arrays; A is (S, D)."""
    batch, slots, channels = x.shape
    shape = plan(batch, slots, channels, A.shape[0], reverse)
    y = np.empty_like(x)
    starts = np.empty((x.shape[0], shape.chunks, *A.shape), x.dtype)
    arrays = [array.reshape(-1) for array in (x, delta, A, B, C, D, y, starts)]
    run(_forward, x.shape[0] * shape.groups, tuple(shape), *arrays)
    return y, starts


def backward(grad, x, delta, A, B, C, D, starts, *, reverse):
    """Gradients of x, delta (B, N, D), A (S, D), B, C (B, N, S) and D (D,), as numpy arrays."""
    batch, slots, channels = x.shape
    shape = plan(batch, slots, channels, A.shape[0], reverse)
    dx, ddelta = np.empty_like(x), np.empty_like(x)
    dA, dD = np.empty((batch, *A.shape), x.dtype), np.empty((batch, *D.shape), x.dtype)
    dB, dC = (np.empty((batch, shape.groups, slots, A.shape[0]), x.dtype) for _ in range(2))
    arrays = [a.reshape(-1) for a in (grad, x, delta, A, B, C, D, starts, dx, ddelta, dA, dB, dC, dD)]
    run(_backward, batch * shape.groups, tuple(shape), *arrays)
    return dx, ddelta, dA.sum(0), dB.sum(1), dC.sum(1), dD.sum(0)
