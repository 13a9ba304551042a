"""The short causal convolution and SiLU of Mamba on the CPU, in one pass over the tokens.

Arrays are flat and contiguous; D is a multiple of 16; weight is (T, D).
"""
# mypy: disable-error-code="no-untyped-def"
# B images, N slots, D channels, T taps

import numpy as np
from numba import njit

from reorder.models.kernels.simd import FASTMATH, WIDTH, load, sigmoid, splat, store
from reorder.models.kernels.threads import run

GROUP = 4 * WIDTH  # channels of one task: four cache lines of float32


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _position(image, time, slots, reverse):
    """The row of (B * N) that is read at `time`."""
    return image * slots + (slots - 1 - time if reverse else time)


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _convolve(image, time, channel, shape, x, weight, bias):
    """What SiLU is applied to, for 16 channels."""
    N, width, taps, reverse = shape
    total = load(bias, channel)
    for tap in range(max(0, taps - 1 - time), taps):
        row = _position(image, time - taps + 1 + tap, N, reverse)
        total = total + load(weight, tap * width + channel) * load(x, row * width + channel)
    return total


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _forward_task(task, shape, x, weight, bias, y):
    N, width, _, reverse = shape
    groups = -(-width // GROUP)
    image, first = task // groups, task % groups * GROUP
    for time in range(N):
        row = _position(image, time, N, reverse) * width
        for channel in range(first, min(first + GROUP, width), WIDTH):
            value = _convolve(image, time, channel, shape, x, weight, bias)
            store(y, row + channel, value * sigmoid(value))


@njit(cache=True, nogil=True, fastmath=FASTMATH)
def _backward_task(task, shape, grad, x, weight, bias, dx, dweight, dbias):
    """From the last slot to the first; `recent` is a ring of the latest T convolutions' gradients."""
    N, width, taps, reverse = shape
    groups = -(-width // GROUP)
    image, first = task // groups, task % groups * GROUP
    zero = splat(x.dtype.type(0))
    recent = np.zeros(taps * GROUP, x.dtype)
    for time in range(N - 1, -1, -1):
        row = _position(image, time, N, reverse) * width
        for channel in range(first, min(first + GROUP, width), WIDTH):
            value = _convolve(image, time, channel, shape, x, weight, bias)
            gate = sigmoid(value)
            gradient = load(grad, row + channel) * gate * (1.0 + value * (1.0 - gate))
            store(recent, time % taps * GROUP + channel - first, gradient)
            at = image * width + channel
            store(dbias, at, load(dbias, at) + gradient)
            back = zero
            for tap in range(taps):
                later = (time + taps - 1 - tap) % taps * GROUP + channel - first
                back = back + load(weight, tap * width + channel) * load(recent, later)
            store(dx, row + channel, back)
            for tap in range(max(0, taps - 1 - time), taps):
                read = _position(image, time - taps + 1 + tap, N, reverse) * width + channel
                at = (image * taps + tap) * width + channel
                store(dweight, at, load(dweight, at) + gradient * load(x, read))


@njit(cache=True, nogil=True)
def _forward(first, last, shape, x, weight, bias, y):
    for task in range(first, last):
        _forward_task(task, shape, x, weight, bias, y)


@njit(cache=True, nogil=True)
def _backward(first, last, shape, grad, x, weight, bias, dx, dweight, dbias):
    for task in range(first, last):
        _backward_task(task, shape, grad, x, weight, bias, dx, dweight, dbias)


def forward(x, weight, bias, *, reverse):
    """SiLU of the convolution, (B, N, D)."""
    batch, slots, width = x.shape
    y = np.empty_like(x)
    arrays = [array.reshape(-1) for array in (x, weight, bias, y)]
    shape = (slots, width, weight.shape[0], reverse)
    run(_forward, batch * -(-width // GROUP), shape, *arrays)
    return y


def backward(grad, x, weight, bias, *, reverse):
    """Gradients of x (B, N, D), weight (T, D) and bias (D,)."""
    batch, slots, width = x.shape
    dx = np.empty_like(x)
    dweight, dbias = np.zeros((batch, *weight.shape), x.dtype), np.zeros((batch, width), x.dtype)
    arrays = [array.reshape(-1) for array in (grad, x, weight, bias, dx, dweight, dbias)]
    shape = (slots, width, weight.shape[0], reverse)
    run(_backward, batch * -(-width // GROUP), shape, *arrays)
    return dx, dweight.sum(0), dbias.sum(0)
