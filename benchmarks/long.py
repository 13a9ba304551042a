"""Patches against time and peak memory of a step of training: four mini models, from 196 to 135,424 patches.

An image of patches of 16x16 pixels in three colours, forward, backward and AdamW in float32, each in a fresh
process on two threads. Time is of the first step after a small one; beside it stands the processors' time,
which says more where other programs run, and by which growth is judged. `reorder bench long` prints the table
and draws build/long.png. Base models, with checkpointing, are measured on one large grid each. A process
that takes more than LIMIT of address space fails, and one that takes more than PATIENCE is stopped.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Column, Table
from torch.nn.functional import cross_entropy

import reorder

THREADS = 2
LIMIT = 24 * 2**30  # bytes of address space, of which libraries take about 4
PATIENCE = 300  # seconds
PATCH = 16
SIDES = (14, 23, 56, 92, 224, 368)  # of grids; every second one has 16 times the patches
MODELS: dict[str, dict[str, int]] = {
    "vit": {},
    "transformer_xl": {"segment": 256, "memory": 128},
    "longformer": {},
    "mamba": {},
}
BASE = {"transformer_xl": 92, "longformer": 92, "mamba": 152}  # sides of grids
FIGURE = Path("build/long.png")


class Cost(NamedTuple):
    """Of one step."""

    seconds: float
    processor: float  # seconds of all threads
    mb: float  # by which the peak resident set grows


def step(name: str, side: int, size: str) -> None:
    """One step of training on one image of side x side patches; a Base model computes its blocks again."""
    torch.manual_seed(0)
    pixels = side * PATCH
    options: dict[str, Any] = MODELS[name] | {"checkpointing": size == "base"}
    model = reorder.create_model(name, size, pixels, PATCH, classes=10, **options)
    optimizer = torch.optim.AdamW(model.parameters())
    image = torch.randint(256, (1, 3, pixels, pixels), dtype=torch.uint8)
    order = torch.randperm(side * side)
    cross_entropy(model(image.float() / 255, order), torch.tensor([3])).backward()
    optimizer.step()


def high_water_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def measured(name: str, side: int, size: str) -> Cost:
    step(name, 2, "mini")  # what is compiled, and what is loaded late
    before, began, used = high_water_mb(), time.perf_counter(), time.process_time()
    step(name, side, size)
    return Cost(time.perf_counter() - began, time.process_time() - used, high_water_mb() - before)


def cost(name: str, side: int, size: str) -> Cost | str:
    """What a step takes, measured in a process of its own, or why it ends before."""
    # -P, or the files beside this one would hide packages of their names from what it imports.
    command = [sys.executable, "-P", __file__, name, str(side), size]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"over {PATIENCE} s"
    if done.returncode:
        return "no memory" if "alloc" in done.stderr else f"failed: {done.stderr.splitlines()[-1]}"
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def table(tiny: bool = False) -> Table:
    if tiny:
        return shown({(name, side): measured(name, side, "mini") for name in MODELS for side in (2, 8)})
    cases = [(name, side) for name in MODELS for side in SIDES]
    found = {case: cost(*case, "mini") for case in track(cases, description="mini", transient=True)}
    draw(found).savefig(FIGURE, dpi=150, bbox_inches="tight")
    base = track(BASE.items(), description="base", transient=True)
    return shown(found | {(f"{name}, base", side): cost(name, side, "base") for name, side in base})


def shown(found: dict[tuple[str, int], Cost | str]) -> Table:
    headings = ("patches", "seconds", "processor", "MB", "x16: s", "x16: MB")
    table = Table("model", *(Column(heading, no_wrap=True, justify="right") for heading in headings),
                  box=SIMPLE_HEAD)  # fmt: skip
    for (name, side), now in found.items():
        before = found.get((name, side // 4))
        grown = ["", ""]
        if isinstance(now, Cost) and isinstance(before, Cost):
            grown = [f"{now.processor / before.processor:.1f}", f"{now.mb / max(before.mb, 1):.1f}"]
        cells = (
            [now, "", ""]
            if isinstance(now, str)
            else [f"{now.seconds:.2f}", f"{now.processor:.2f}", f"{now.mb:.0f}"]
        )
        table.add_row(name, f"{side * side:,}", *cells, *grown)
    return table


def draw(found: dict[tuple[str, int], Cost | str]) -> Figure:
    """Time and memory against patches, a line per model."""
    figure = Figure(figsize=(9, 3.6))
    for axes, key, label in zip(figure.subplots(1, 2), ("processor", "mb"), ("seconds of processors", "MB"),
                                strict=True):  # fmt: skip
        for name in MODELS:
            points = [(side * side, getattr(now, key)) for (n, side), now in found.items()
                      if n == name and isinstance(now, Cost)]  # fmt: skip
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
        axes.set(xscale="log", yscale="log", xlabel="patches", ylabel=f"{label} of a step")
        axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    FIGURE.parent.mkdir(exist_ok=True)
    return figure


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    torch.set_num_threads(THREADS)
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
