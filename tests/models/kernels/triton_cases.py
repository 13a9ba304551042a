"""Calls of the Triton kernels at the sizes of our Base models, forward and backward."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

SLOTS, WIDTH, STATES = 197, 768, 16


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


def scan(dtype: torch.dtype, gated: bool) -> None:
    from reorder.models.kernels.selective_scan_triton import SelectiveScan

    x, z = (draw(2, SLOTS, WIDTH, dtype=dtype) for _ in "xz")
    B, C = (draw(2, SLOTS, STATES, dtype=dtype) for _ in "BC")
    optional = (z, draw(WIDTH)) if gated else (None, None)
    y = SelectiveScan.apply(
        *(x, draw(2, SLOTS, WIDTH), draw(WIDTH, STATES), B, C, draw(WIDTH)), *optional, gated, not gated
    )
    y.sum().backward()


def convolution(dtype: torch.dtype) -> None:
    from reorder.models.kernels.causal_conv_triton import CausalConvSilu

    CausalConvSilu.apply(
        draw(2, SLOTS, WIDTH, dtype=dtype), draw(WIDTH, 4), draw(WIDTH), False
    ).sum().backward()


def reading(dtype: torch.dtype) -> None:
    from reorder.orders.straight_through_triton import scores_gradient

    grad, read = (torch.zeros(2, SLOTS, WIDTH, dtype=dtype) for _ in range(2))
    scores_gradient(grad, read, torch.zeros(2, SLOTS), 0.5, 1024)


def window(dtype: torch.dtype, dropout: float) -> None:
    from reorder.models.kernels.sliding_window import _banded

    _banded(*(draw(2, 12, SLOTS, 64, dtype=dtype) for _ in range(3)), 7, 1, dropout).sum().backward()


def segments(dtype: torch.dtype) -> None:
    from reorder.models.kernels.segment_attention import Keys, _banded, cut_of

    rows = [draw(2, 12, SLOTS, 64, dtype=dtype) for _ in range(4)]
    content, position = (draw(2, 12, SLOTS - 1, 64, dtype=dtype) for _ in range(2))
    distances, cut = draw(12, SLOTS, 64, dtype=dtype), cut_of(SLOTS, 32, 64, True)
    _banded(content, position, Keys(*rows[:2]), Keys(*rows[2:]), distances, cut).sum().backward()


CASES: dict[str, Callable[[], None]] = {
    "scan": partial(scan, torch.float32, False),
    "gated scan, bfloat16": partial(scan, torch.bfloat16, True),
    "convolution": partial(convolution, torch.float32),
    "convolution, bfloat16": partial(convolution, torch.bfloat16),
    "window": partial(window, torch.float32, 0.1),
    "window, bfloat16": partial(window, torch.bfloat16, 0.1),
    "segments": partial(segments, torch.float32),
    "segments, bfloat16": partial(segments, torch.bfloat16),
    "reading": partial(reading, torch.float32),
    "reading, bfloat16": partial(reading, torch.bfloat16),
}
