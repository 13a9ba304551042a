"""Backbones and their kernels against peers: time in one process, peak memory in a fresh process each.

Forward and backward in float32 on two threads, training mode. Times are the shortest of alternating runs;
memory is how much the peak resident set grows over one step (Linux only). `reorder bench backbones` prints
the table; nothing else should be running. A tiny table only shows that everything runs.
"""

import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Column, Table
from torch import Tensor, nn

from reorder.models.backbones import BACKBONES, SIZES, Longformer, Size, TransformerXL
from reorder.models.kernels.selective_scan import selective_scan

Step = Callable[[], None]
THREADS = 2
WINDOW = 14


def mambapy_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The selective scan as mambapy's blocks compute it, with its parallel scan."""
    from mambapy.pscan import pscan

    decay = torch.exp(delta.unsqueeze(-1) * A)  # (B, N, D, S)
    drive = (delta * x).unsqueeze(-1) * B.unsqueeze(2)
    states = pscan(decay, drive)
    return (states @ C.unsqueeze(-1)).squeeze(3) + D * x


def scan_step(scan: Callable[..., Tensor], batch: int, channels: int, slots: int, states: int = 16) -> Step:
    torch.manual_seed(0)
    x, delta = torch.randn(batch, slots, channels), torch.rand(batch, slots, channels) * 0.1
    A, D = -torch.rand(channels, states) * 16, torch.randn(channels)
    B, C = torch.randn(batch, slots, states), torch.randn(batch, slots, states)
    inputs = [tensor.requires_grad_() for tensor in (x, delta, A, B, C, D)]

    def step() -> None:
        torch.autograd.grad(scan(*inputs).sum(), inputs)

    return step


def model_step(model: nn.Module, batch: int, length: int, width: int) -> Step:
    tokens = torch.randn(batch, length, width, requires_grad=True)

    def step() -> None:
        model.zero_grad()
        tokens.grad = None
        model(tokens).square().mean().backward()

    return step


def backbone_step(name: str, size: str, batch: int, patches: int, **options: object) -> Step:
    torch.manual_seed(0)
    side = math.isqrt(patches)
    model = BACKBONES[name](SIZES[size], (side, patches // side), **options)
    return model_step(model, batch, patches + 1, SIZES[size].width)


class HuggingFace(nn.Module):
    """Hugging Face's encoder, tokens (B, L, D) -> (B, L, D), which wants the length padded to the window."""

    def __init__(self, size: str):
        super().__init__()
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerEncoder

        width, depth, heads = SIZES[size]
        config = LongformerConfig(
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            attention_window=[WINDOW] * depth,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.encoder = LongformerEncoder(config)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, _ = tokens.shape
        padding = -length % WINDOW
        mask = torch.zeros(batch, length + padding)
        mask[:, 0], mask[:, length:] = 1, -1
        padded = F.pad(tokens, (0, 0, 0, padding))
        return self.encoder(padded, attention_mask=mask, padding_len=padding)[0]


def longformer_step(size: str, batch: int, length: int) -> Step:
    model = Longformer(SIZES[size], (1, length - 1), dropout=0.0, window=WINDOW)
    return model_step(model, batch, length, SIZES[size].width)


def short_memory_step(images: int, whole: bool) -> Step:
    """A narrow Transformer-XL with a short memory, read last: its class token alone, or all slots."""
    model = TransformerXL(Size(48, 2, 4), (7, 7), dropout=0.0, segment=1, memory=8, readout="last")
    tokens = torch.randn(images, 50, 48, requires_grad=True)

    def step() -> None:
        model.zero_grad()
        read = model(tokens)[:, 0] if whole else model.class_token(tokens)
        read.square().mean().backward()

    return step


class Sizes(NamedTuple):
    """What is measured: the size of the models, slots of both sequences, and patches for growth."""

    model: str
    short: int
    long_scan: int
    long: int
    few: int
    many: int


FULL = Sizes("base", 197, 12_545, 4097, 1024, 16384)
TINY = Sizes("mini", 17, 65, 65, 16, 64)
OPTIONS: dict[str, dict[str, object]] = {
    "transformer_xl": {"segment": 256, "dropout": 0.0},
    "longformer": {"dropout": 0.0},
    "mamba": {},
}


def steps_of(sizes: Sizes) -> dict[str, Callable[[], Step]]:
    """What makes each step that is measured, by its name."""
    model, width = sizes.model, SIZES[sizes.model].width
    steps: dict[str, Callable[[], Step]] = {
        "scan": partial(scan_step, selective_scan, 4, width, sizes.short),
        "scan mambapy": partial(scan_step, mambapy_scan, 4, width, sizes.short),
        "long scan": partial(scan_step, selective_scan, 1, 192, sizes.long_scan),
        "long scan mambapy": partial(scan_step, mambapy_scan, 1, 192, sizes.long_scan),
        "longformer": partial(longformer_step, model, 4, sizes.short),
        "longformer hf": lambda: model_step(HuggingFace(model), 4, sizes.short, width),
        "long longformer": partial(longformer_step, model, 1, sizes.long),
        "long longformer hf": lambda: model_step(HuggingFace(model), 1, sizes.long, width),
    }
    for name, whole in (("read last", False), ("read last all", True)):
        steps[name] = partial(short_memory_step, 32, whole)
    for name in ("vit", "transformer_xl", "mamba"):
        steps[name] = partial(backbone_step, name, model, 4, sizes.short - 1)
    for name, options in OPTIONS.items():
        for which, patches in (("few", sizes.few), ("many", sizes.many)):
            steps[f"{name} {which}"] = partial(backbone_step, name, "mini", 1, patches, **options)
    return steps


class Case(NamedTuple):
    what: str
    ours: str
    peer: str
    repeats: int
    aim: str  # for peer / ours


def cases_of(sizes: Sizes) -> list[Case]:
    size, short, long = sizes.model.capitalize(), f"B=4 L={sizes.short}", f"B=1 L={sizes.long:,}"
    scan = f"scan B=4 D={SIZES[sizes.model].width} N={sizes.short}; mambapy"
    long_scan = f"scan B=1 D=192 N={sizes.long_scan:,}; mambapy"
    hf, vit = "Hugging Face", f"our ViT {size}"
    return [
        Case(scan, "scan", "scan mambapy", 5, "15x, 1/5 MB"),
        Case(long_scan, "long scan", "long scan mambapy", 3, "15x"),
        Case(f"Longformer {size} {short}; {hf}", "longformer", "longformer hf", 5, "1.3x"),
        Case(f"Longformer {size} {long}; {hf}", "long longformer", "long longformer hf", 2, "2x, 1/2 MB"),
        Case(f"Transformer-XL {size} {short}; {vit}", "transformer_xl", "vit", 5, "1 / 1.3"),
        Case("Transformer-XL D=48 B=32 L=50, read last; all slots", "read last", "read last all", 50, "2x"),
        Case(f"Mamba {size} {short}; {vit}", "mamba", "vit", 5, "1 / 2.5"),
        *(
            Case(f"{name} mini N={sizes.many:,}; N={sizes.few:,}", f"{name} many", f"{name} few", 3, "1 / 20")
            for name in OPTIONS
        ),
    ]


def seconds(case: Case, steps_by_name: dict[str, Callable[[], Step]]) -> tuple[float, float]:
    """The shortest of alternating runs of ours and the peer; a first run of each is not counted."""
    steps = [steps_by_name[case.ours](), steps_by_name[case.peer]()]
    best = [math.inf, math.inf]
    for repeat in range(case.repeats + 1):
        for i, step in enumerate(steps):
            began = time.perf_counter()
            step()
            if repeat:
                best[i] = min(best[i], time.perf_counter() - began)
    return best[0], best[1]


def peaks(names: list[str], sizes: Sizes) -> list[float]:
    """How much one step of each makes the peak resident set of a fresh process grow, in MB."""
    # -P, or the files beside this one would hide packages of their names from what it imports.
    command = [sys.executable, "-P", __file__, "tiny" if sizes == TINY else "full", *names]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [float(line) for line in printed[-len(names) :]]


def high_water_mb() -> float:
    """Peak resident memory of this process; unlike getrusage's, it does not start from its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def print_peaks(names: list[str], sizes: Sizes) -> None:
    scan_step(selective_scan, 1, 16, 2)()  # compiling is not counted
    backbone_step("mamba", "mini", 1, 1)()
    for name in names:
        step = steps_of(sizes)[name]()
        before = high_water_mb()
        step()
        print(high_water_mb() - before)


def table(tiny: bool = False) -> Table:
    sizes = TINY if tiny else FULL
    if not tiny:
        torch.set_num_threads(THREADS)
    steps, cases = steps_of(sizes), cases_of(sizes)
    names = [name for case in cases for name in (case.ours, case.peer)]
    # A process for each; of tiny steps one for all, which measures little but runs everything.
    grown = peaks(names, sizes) if tiny else [mb for name in names for mb in peaks([name], sizes)]
    # Ours and the peer in one column each, so that all fits into 80 columns.
    headings = ("seconds", "peer / ours", "MB", "aim")
    table = Table("what; peer", *(Column(heading, no_wrap=True) for heading in headings), box=SIMPLE_HEAD)
    for number, case in enumerate(track(cases, description="backbones", transient=True)):
        ours, peer = seconds(case, steps)
        ratio = f"{peer / ours:.2f}" if peer > ours else f"1 / {ours / peer:.2f}"
        memory = ", ".join(f"{mb:.0f}" for mb in grown[2 * number : 2 * number + 2])
        table.add_row(case.what, f"{ours:.3f}, {peer:.3f}", ratio, memory, case.aim)
    return table


if __name__ == "__main__":
    if sys.argv[1] == "full":
        torch.set_num_threads(THREADS)
    print_peaks(sys.argv[2:], TINY if sys.argv[1] == "tiny" else FULL)
