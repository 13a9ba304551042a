"""What the paper's runs took, and what they should take of an A100 on paper: `reorder bench hours`.

The paper gives hours of a run by model and dataset (appendix, "Additional Model Training Details"), and its
total of 9,336 GPU hours is that of its 96 main runs. What ours should take is counted, not measured: dense
products by torch's counter of operations at a part of the A100's peak that is assumed, and what our kernels
add by the roofline of docs/kernels.md. Images must arrive as fast, which they did not in the paper.
"""

from typing import NamedTuple

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from torch.utils.flop_counter import FlopCounterMode

from reorder.experiments.presets import RELEASE_GPUS, preset
from reorder.models.classifier import model_of

HOURS = {
    "imagenet": {"vit": 8.5, "transformer_xl": 10, "longformer": 12, "mamba": 19},
    "fmow": {"vit": 17.5, "transformer_xl": 21, "longformer": 26, "mamba": 31},
}
RUNS = 12  # of a model and dataset: six scans, fixed and with REOrder
EPOCHS = 100
TRAIN, VALIDATION = {"imagenet": 1_281_167, "fmow": 363_572}, {"imagenet": 50_000, "fmow": 53_041}
PEAK, REACHED = 312e12, 0.4  # operations a second of an A100 in bfloat16, and the part of it that is assumed
BLOCKS, AT_ONCE = 12, 64
# Milliseconds of a block for 64 images of 197 tokens, forward and backward, beyond its dense products: docs/
# kernels.md. Mamba's four scans and convolutions; 100 bytes an element for Transformer-XL's one segment.
KERNELS = {"vit": 0.0, "transformer_xl": 0.6, "longformer": 0.5, "mamba": 4 * (1.5 + 0.1)}


class Cost(NamedTuple):
    paper: float  # GPU hours of a run
    rate: float  # images a second of a GPU in it
    ours: float  # GPU hours, on paper


def operations(name: str, tiny: bool) -> int:
    """Of an image, forward and backward, in dense products and attention."""
    settings = preset(f"paper/{name}-imagenet-row").model
    if tiny:
        settings.size, settings.image_size, settings.patch_size = "mini", 8, 4
    model = model_of(settings, 3, 1000)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 3, settings.image_size, settings.image_size)).sum().backward()
    return counter.get_total_flops()


def cost(name: str, data: str, per_image: float) -> Cost:
    """Of a run whose images take a GPU so many seconds each."""
    paper = HOURS[data][name] * RELEASE_GPUS[data]
    images = EPOCHS * (TRAIN[data] + VALIDATION[data] / 3)  # forward alone is a third
    return Cost(paper, EPOCHS * TRAIN[data] / (3600 * paper), images * per_image / 3600)


def table(tiny: bool = False) -> Table:
    """GPU hours of one run and of all twelve, in the paper and on paper."""
    headings = ("GFLOP", "hours of a run", "images a second", "on paper", "12 runs", "on paper")
    named = (Column(heading, no_wrap=True) for heading in ("model", "data"))
    numbers = (Column(heading, justify="right") for heading in headings)
    table = Table(*named, *numbers, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    paper = ours = 0.0
    for name in HOURS["imagenet"]:
        flop = operations(name, tiny)
        per_image = flop / (PEAK * REACHED) + BLOCKS * KERNELS[name] / 1000 / AT_ONCE
        for data in HOURS:
            one = cost(name, data, per_image)
            paper, ours = paper + RUNS * one.paper, ours + RUNS * one.ours
            sums = f"{RUNS * one.paper:,.0f}", f"{RUNS * one.ours:,.0f}"
            table.add_row(
                *(
                    name,
                    data,
                    f"{flop / 1e9:.0f}",
                    f"{one.paper:.0f}",
                    f"{one.rate:.0f}",
                    f"{one.ours:.0f}",
                    *sums,
                )
            )
    table.add_row("all", "", "", "", "", "", f"{paper:,.0f}", f"{ours:,.0f}")
    return table
