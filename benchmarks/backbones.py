"""Backbones and their kernels against peers: time in one process, peak memory in a fresh process each.

Forward and backward in float32 on two threads, training mode. Times are the shortest of alternating runs;
memory is how much the peak resident set grows over one step (Linux only). `reorder bench backbones` prints
the table; nothing else should be running.
"""

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from reorder.backbones import BACKBONES, SIZES, Longformer
from reorder.kernels.selective_scan import selective_scan

Step = Callable[[], None]
THREADS = 2
WINDOW = 14
SHORT, LONG = 1024, 16384  # patches, for growth


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


def longformer_step(batch: int, length: int) -> Step:
    model = Longformer(SIZES["base"], (1, length - 1), dropout=0.0, window=WINDOW)
    return model_step(model, batch, length, SIZES["base"].width)


STEPS: dict[str, Callable[[], Step]] = {
    "scan": lambda: scan_step(selective_scan, 4, 768, 197),
    "scan mambapy": lambda: scan_step(mambapy_scan, 4, 768, 197),
    "long scan": lambda: scan_step(selective_scan, 1, 192, 12_545),
    "long scan mambapy": lambda: scan_step(mambapy_scan, 1, 192, 12_545),
    "longformer": lambda: longformer_step(4, 197),
    "longformer hf": lambda: model_step(HuggingFace("base"), 4, 197, 768),
    "long longformer": lambda: longformer_step(1, 4097),
    "long longformer hf": lambda: model_step(HuggingFace("base"), 1, 4097, 768),
    "vit": lambda: backbone_step("vit", "base", 4, 196),
    "transformer_xl": lambda: backbone_step("transformer_xl", "base", 4, 196),
    "mamba": lambda: backbone_step("mamba", "base", 4, 196),
}
OPTIONS: dict[str, dict[str, object]] = {
    "transformer_xl": {"segment": 256, "dropout": 0.0},
    "longformer": {"dropout": 0.0},
    "mamba": {},
}
for _name, _options in OPTIONS.items():
    for _patches in (SHORT, LONG):
        STEPS[f"{_name} {_patches}"] = lambda n=_name, p=_patches, o=_options: backbone_step(
            n, "mini", 1, p, **o
        )


class Case(NamedTuple):
    what: str
    ours: str
    peer: str
    repeats: int
    bar: str


CASES = [
    Case("selective scan B=4 D=768 N=197; mambapy", "scan", "scan mambapy", 5, "15x faster, 5x less memory"),
    Case("selective scan B=1 D=192 N=12,545; mambapy", "long scan", "long scan mambapy", 3, "15x faster"),
    Case("Longformer Base B=4 L=197; Hugging Face", "longformer", "longformer hf", 5, "1.3x faster"),
    Case(
        "Longformer Base B=1 L=4,097; Hugging Face",
        "long longformer",
        "long longformer hf",
        2,
        "2x faster, half the memory",
    ),
    Case("Transformer-XL Base B=4 L=197; our ViT Base", "transformer_xl", "vit", 5, "at most 1.3x its time"),
    Case("Mamba Base B=4 L=197; our ViT Base", "mamba", "vit", 5, "at most 2.5x its time"),
    *(
        Case(
            f"{name} mini N=16,384; itself at N=1,024", f"{name} {LONG}", f"{name} {SHORT}", 3, "at most 20x"
        )
        for name in OPTIONS
    ),
]


def seconds(case: Case) -> tuple[float, float]:
    """The shortest of alternating runs of ours and the peer; a first run of each is not counted."""
    steps = [STEPS[case.ours](), STEPS[case.peer]()]
    best = [math.inf, math.inf]
    for repeat in range(case.repeats + 1):
        for i, step in enumerate(steps):
            began = time.perf_counter()
            step()
            if repeat:
                best[i] = min(best[i], time.perf_counter() - began)
    return best[0], best[1]


def peak_mb(name: str) -> float:
    """How much one step makes the peak resident set of a fresh process grow, in MB."""
    command = [sys.executable, __file__, "--peak", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def high_water_mb() -> float:
    """Peak resident memory of this process; unlike getrusage's, it does not start from its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def print_peak(name: str) -> None:
    scan_step(selective_scan, 1, 16, 2)()  # compiling is not counted
    backbone_step("mamba", "mini", 1, 1)()
    step = STEPS[name]()
    before = high_water_mb()
    step()
    print(high_water_mb() - before)


def table() -> Table:
    torch.set_num_threads(THREADS)
    table = Table("what; peer", "ours (s)", "peer (s)", "peer / ours", "ours (MB)", "peer (MB)", "bar")
    for case in track(CASES, description="backbones", transient=True):
        ours, peer = seconds(case)
        memory, peer_memory = peak_mb(case.ours), peak_mb(case.peer)
        ratio = f"{peer / ours:.2f}" if peer > ours else f"1 / {ours / peer:.2f}"
        table.add_row(
            case.what, f"{ours:.3f}", f"{peer:.3f}", ratio, f"{memory:.0f}", f"{peer_memory:.0f}", case.bar
        )
    return table


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    print_peak(sys.argv[sys.argv.index("--peak") + 1])
