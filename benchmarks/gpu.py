"""The Triton kernels on a GPU against torch's path, and mamba_ssm's where it is installed.

Forward and backward in bfloat16 (the scan's step sizes in float32), at sizes of the Base models. `reorder
bench gpu` prints the table: milliseconds, the time that docs/kernels.md expects of an A100, and by how much
the gradient of the first input differs from torch's, of its largest number. A tiny table is of Triton's
interpreter on the CPU, and only shows that everything runs.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from torch import Tensor

from reorder.models.kernels.causal_conv import causal_conv_silu
from reorder.models.kernels.segment_attention import Keys, Relative, cut_of, segment_attention
from reorder.models.kernels.selective_scan import selective_scan
from reorder.models.kernels.sliding_window import sliding_window_attention
from reorder.orders.paths import INSTALLED
from reorder.orders.straight_through import scores_gradient

REPEATS = 20


class Case(NamedTuple):
    what: str
    run: Callable[[str], Tensor]  # forward and backward by a path; the gradient of the first input
    paths: tuple[str, ...]
    expected: str  # milliseconds on an A100, docs/kernels.md


def draw(*shape: int, device: str, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device=device).to(dtype).requires_grad_()


def backward(out: Tensor, first: Tensor) -> Tensor:
    return torch.autograd.grad(out.float().square().mean(), first)[0]


def scan(batch: int, slots: int, width: int, states: int, device: str) -> Callable[[str], Tensor]:
    x, B, C = (draw(batch, slots, size, device=device) for size in (width, states, states))
    delta, A, D = (
        draw(*shape, device=device, dtype=torch.float32)
        for shape in ((batch, slots, width), (width, states), (width,))
    )

    def run(path: str) -> Tensor:
        return backward(selective_scan(x, delta, -A.exp(), B, C, D, delta_softplus=True, path=path), x)

    return run


def convolution(batch: int, slots: int, width: int, device: str) -> Callable[[str], Tensor]:
    x = draw(batch, slots, width, device=device)
    weight, bias = (draw(*shape, device=device, dtype=torch.float32) for shape in ((width, 4), (width,)))
    return lambda path: backward(causal_conv_silu(x, weight, bias, path=path), x)


def window(batch: int, slots: int, heads: int, d: int, device: str) -> Callable[[str], Tensor]:
    query, key, value = (draw(batch, heads, slots, d, device=device) for _ in range(3))
    return lambda path: backward(sliding_window_attention(query, key, value, 14, path=path), query)


def segments(batch: int, slots: int, heads: int, d: int, device: str) -> Callable[[str], Tensor]:
    query, key, value = (draw(batch, heads, slots, d, device=device) for _ in range(3))
    distances, u, v = (draw(heads, rows, d, device=device) for rows in (slots, 1, 1))
    cut = cut_of(slots, 128, 128, has_global=False)

    def run(path: str) -> Tensor:
        relative = Relative(distances, u, v)
        return backward(segment_attention(query, Keys(key, value), None, relative, cut, path), query)

    return run


def reading(batch: int, slots: int, width: int, device: str) -> Callable[[str], Tensor]:
    grad, read = (draw(batch, slots, width, device=device).detach() for _ in range(2))
    scores = torch.randn(batch, slots, device=device).sort(dim=-1, descending=True).values
    return lambda path: scores_gradient(grad, read, scores, 0.05, path=path)


def cases_of(tiny: bool, device: str) -> list[Case]:
    batch, short, long, width, states, heads, d = (
        (1, 5, 17, 16, 1, 1, 16) if tiny else (64, 197, 12_545, 768, 16, 12, 64)
    )
    both, three = ("torch", "triton"), ("torch", "triton", "mamba_ssm")
    expected = [""] * 8 if tiny else ["1.5", "1.5", "0.1", "0.5", "0.5", "1.3", "0.2", "1.0"]
    makers = [
        (f"scan B={batch} N={short}", scan(batch, short, width, states, device), three),
        (f"scan B=1 N={long:,}", scan(1, long, width, states, device), three),
        (f"convolution B={batch} N={short}", convolution(batch, short, width, device), both),
        (f"window 14, B={batch} L={short}", window(batch, short, heads, d, device), both),
        (f"window 14, B=1 L={long:,}", window(1, long, heads, d, device), both),
        (f"segments 128 + 128, B=1 L={long:,}", segments(1, long, heads, d, device), both),
        (f"reading B={batch} N={short}", reading(batch, short, width, device), both),
        (f"reading B=1 N={long:,}", reading(1, long, width, device), both),
    ]
    return [Case(*maker, time) for maker, time in zip(makers, expected, strict=True)]


def milliseconds(case: Case, path: str, device: str, repeats: int) -> float:
    """The shortest of several runs, after one that compiles."""
    best = math.inf
    for repeat in range(repeats + 1):
        began = time.perf_counter()
        case.run(path)
        if device == "cuda":
            torch.cuda.synchronize()
        if repeat:
            best = min(best, time.perf_counter() - began)
    return 1000 * best


def table(tiny: bool = False) -> Table:
    if not tiny and not torch.cuda.is_available():
        raise ValueError("the timings of GPU kernels need a GPU, and torch sees none")
    device = "cpu" if tiny else "cuda"
    columns = (
        Column(heading, no_wrap=True) for heading in ("torch", "triton", "mamba_ssm", "A100", "differs")
    )
    table = Table("what", *columns, box=SIMPLE_HEAD)
    for case in cases_of(tiny, device):
        paths = [path for path in case.paths if path in INSTALLED]
        times = {path: f"{milliseconds(case, path, device, 1 if tiny else REPEATS):.2f}" for path in paths}
        ours, truth = (case.run(path).float() for path in ("triton", "torch"))
        differs = float((ours - truth).abs().max() / truth.abs().max())
        shown = (times.get(path, "-") for path in ("torch", "triton", "mamba_ssm"))
        table.add_row(case.what, *shown, case.expected, f"{differs:.0e}")
    return table
