"""The gradient of straight-through scores for GPUs in Triton: no matrix of slots by slots is kept.

A slot's own score is at distance 0 from itself, so its softmax's largest exponent is 0 and needs no search.
One pass over the slots near it gives the softmax's sums and its own pull, a second what others pull on it.
"""
# mypy: disable-error-code="no-untyped-def"
# B images, N slots, D channels, R orders: 1 for all images, or B

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from reorder.orders.paths import interprets

SLOTS = 64  # of one program, and of a step through those near them
DEPTH = 32  # channels of a step of a product
LAUNCH: dict[str, Any] = {"num_warps": 8, "enable_fp_fusion": True}


@triton.jit
def _products(
    grad, read, first, images, row, column, slots, channels,
    KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Sums of grad[row] read[column], (B, N, D), over channels and so many images from `first` on."""
    total = tl.zeros((SLOTS, SLOTS), tl.float32)
    for count in range(images):
        start = (first + count).to(tl.int64) * slots
        for depth in range(0, channels, DEPTH):
            channel = depth + tl.arange(0, DEPTH)
            exists = channel < channels
            rows = tl.load(
                grad + (start + row)[:, None] * channels + channel, (row < slots)[:, None] & exists, 0.0
            )
            columns = tl.load(
                read + (start + column)[:, None] * channels + channel, (column < slots)[:, None] & exists, 0.0
            )
            total = tl.dot(rows.to(KIND), tl.trans(columns.to(KIND)), total, input_precision="ieee")
    return total


@triton.jit
def _compare(scores, order, row, column, slots, width, band):
    """exp(-|s_row - s_column| / width), zero where they are not both there and near, and the sign."""
    start = scores + order.to(tl.int64) * slots
    one = tl.load(start + row, row < slots, 0.0)
    other = tl.load(start + column, column < slots, 0.0)
    difference = one[:, None] - other[None, :]
    near = (
        (tl.abs(row[:, None] - column[None, :]) <= band) & (column < slots)[None, :] & (row < slots)[:, None]
    )
    sign = (difference > 0).to(tl.float32) - (difference < 0).to(tl.float32)
    return tl.where(near, tl.exp(-tl.abs(difference) / width), 0.0), sign


@triton.jit
def _own_kernel(
    grad, read, scores, total, mean, pull, images, slots, channels, width, band,
    KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """For every slot its softmax's sum, the mean product under it, and the pull of its own softmax."""
    order, start = tl.program_id(1), tl.program_id(0) * SLOTS
    row = start + tl.arange(0, SLOTS)
    sums, means = tl.zeros((SLOTS,), tl.float32), tl.zeros((SLOTS,), tl.float32)
    signs, signed = tl.zeros((SLOTS,), tl.float32), tl.zeros((SLOTS,), tl.float32)
    for begin in range(tl.maximum(start - band, 0), tl.minimum(start + SLOTS + band, slots), SLOTS):
        column = begin + tl.arange(0, SLOTS)
        weight, sign = _compare(scores, order, row, column, slots, width, band)
        product = _products(grad, read, order, images, row, column, slots, channels, KIND, SLOTS, DEPTH)
        sums += tl.sum(weight, 1)
        means += tl.sum(weight * product, 1)
        signs += tl.sum(weight * sign, 1)
        signed += tl.sum(weight * sign * product, 1)
    at, exists = order.to(tl.int64) * slots + row, row < slots
    means /= sums
    tl.store(total + at, sums, exists)
    tl.store(mean + at, means, exists)
    tl.store(pull + at, (means * signs - signed) / (sums * width), exists)


@triton.jit
def _others_kernel(
    grad, read, scores, total, mean, pull, images, slots, channels, width, band,
    KIND: tl.constexpr, SLOTS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Adds to every slot's pull that of the softmaxes of the slots near it."""
    order, start = tl.program_id(1), tl.program_id(0) * SLOTS
    column = start + tl.arange(0, SLOTS)
    pulled = tl.zeros((SLOTS,), tl.float32)
    for begin in range(tl.maximum(start - band, 0), tl.minimum(start + SLOTS + band, slots), SLOTS):
        row = begin + tl.arange(0, SLOTS)
        weight, sign = _compare(scores, order, row, column, slots, width, band)
        product = _products(grad, read, order, images, row, column, slots, channels, KIND, SLOTS, DEPTH)
        at = order.to(tl.int64) * slots + row
        sums = tl.load(total + at, row < slots, 1.0)
        means = tl.load(mean + at, row < slots, 0.0)
        pulled += tl.sum(weight * sign * (product - means[:, None]) / sums[:, None], 0)
    at, exists = order.to(tl.int64) * slots + column, column < slots
    tl.store(pull + at, tl.load(pull + at, exists, 0.0) + pulled / width, exists)


def product_type(dtype: torch.dtype) -> tl.dtype:
    """What products multiply: their inputs' type; the interpreter would take bfloat16 for integers."""
    if dtype == torch.float32 or interprets():
        return tl.float32
    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float16


def scores_gradient(grad: Tensor, read: Tensor, scores: Tensor, width: float, band: int) -> Tensor:
    """The gradient of scores in slot order, (N,) or (B, N), from that of what was read; both (B, N, D)."""
    grad, read, scores = grad.to(read.dtype).contiguous(), read.contiguous(), scores.float().contiguous()
    images, slots, channels = read.shape
    orders = scores.numel() // slots
    total, mean, pull = (torch.empty_like(scores) for _ in range(3))
    sizes = (images // orders, slots, channels, width, min(band, slots))
    grid = triton.cdiv(slots, SLOTS), orders
    options = {"KIND": product_type(read.dtype), "SLOTS": SLOTS, "DEPTH": DEPTH, **LAUNCH}
    for kernel in (_own_kernel, _others_kernel):
        kernel[grid](grad, read, scores, total, mean, pull, *sizes, **options)
    return pull
