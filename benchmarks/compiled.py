"""Does `train.compile=true` pay on the CPU? A step of each model, as it is and by torch.compile's inductor.

Forward, backward and AdamW in float32 on one thread, 14x14 patches and, as `stream`, the narrow
Transformer-XL of `reorder bench learners`. The shortest of alternating steps counts; what compiling takes is
beside it.
A tiny table only shows that everything runs.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.nn.functional import cross_entropy

import reorder
from reorder.experiments.presets import STREAM

STEPS = 15
SIZE, IMAGES = "mini", 16


class Case(NamedTuple):
    name: str
    size: str
    pixels: int  # of an image's side, in patches of 2x2
    images: int
    options: dict[str, object]


CASES = {name: Case(name, SIZE, 28, IMAGES, {}) for name in ("vit", "transformer_xl", "longformer", "mamba")}
CASES["stream"] = Case("transformer_xl", "48/2/4", 14, 32, STREAM | {"memory": 7})


def step_of(case: Case, backend: str | None) -> Callable[[], None]:
    torch.manual_seed(0)
    model: nn.Module = reorder.create_model(
        case.name, case.size, case.pixels, 2, channels=1, classes=10, **case.options
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ready = torch.compile(model, backend=backend) if backend else model
    images, labels = torch.randn(case.images, 1, case.pixels, case.pixels), torch.arange(case.images) % 10
    order = torch.randperm((case.pixels // 2) ** 2)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(ready(images, order), labels).backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def table(tiny: bool = False) -> Table:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    table = Table("model", "ms", "ms, compiled", "plain / compiled", "s to compile")
    for name in track(["stream"] if tiny else CASES, description="compiled", transient=True):
        plain, compiled = (
            step_of(CASES[name], backend) for backend in (None, "eager" if tiny else "inductor")
        )
        seconds(plain)
        to_compile = seconds(compiled)
        pairs = [(seconds(plain), seconds(compiled)) for _ in range(2 if tiny else STEPS)]
        ours, theirs = (min(column) for column in zip(*pairs, strict=True))
        table.add_row(
            name, f"{1000 * ours:.1f}", f"{1000 * theirs:.1f}", f"{ours / theirs:.2f}", f"{to_compile:.0f}"
        )
    torch.set_num_threads(threads)
    return table
