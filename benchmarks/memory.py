"""What a run of the paper takes of a GPU's memory, without a GPU: `reorder bench memory` prints the table.

A model is run forward on the CPU with a few images, and what autograd keeps for the backward pass is added up
by hooks on saved tensors, each storage once; two batches give bytes per image and bytes that stay. Kernels
take their Triton path, which is noted, not started: their outputs are of the right shape and hold anything.
bfloat16 is torch.autocast's on the CPU, and stands for float16 too. Weights, gradients, what the ranks
exchange (DistributedDataParallel's copy of the gradients) and AdamW's two averages are 20 bytes a weight. Not
counted: what a kernel needs only while it runs, the allocator's gaps, CUDA itself (about half a GB).
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest.mock import patch

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from torch import Tensor

from reorder.experiments.presets import RELEASE_GPUS, preset
from reorder.models.backbones import BACKBONES
from reorder.models.classifier import Classifier, model_of
from reorder.orders.paths import INSTALLED

WEIGHT_BYTES = 4 + 4 + 4 + 8
GB = 1e9
A100 = {"imagenet": 80 * GB, "fmow": 40 * GB}  # what the paper had
SPARE = 0.1  # of the memory, for what is not counted
MODELS = tuple(BACKBONES)


class Kept(NamedTuple):
    """Bytes that autograd keeps of a forward pass."""

    fixed: float
    per_image: float


@contextmanager
def pretended_kernels() -> Iterator[None]:
    """Kernels allocate as on a GPU, and compute nothing; without Triton, they are the CPU's."""
    if "triton" not in INSTALLED:
        yield
        return
    from triton.runtime import JITFunction
    from triton.runtime.interpreter import InterpretedFunction

    with ExitStack() as stack:
        stack.enter_context(patch("reorder.orders.paths.interprets", lambda: True))
        stack.enter_context(patch.dict("os.environ", {"REORDER_KERNELS": "triton"}))
        for kernel in (JITFunction, InterpretedFunction):
            stack.enter_context(patch.object(kernel, "run", lambda *_, **__: None))
        yield


def saved_bytes(model: Classifier, images: int, precision: str) -> int:
    """What autograd keeps for so many images, but for the weights themselves."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}  # held, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    rows, columns = model.grid
    side = model.tokens.patch_embed.patch_size
    batch = torch.zeros(images, 3, rows * side, columns * side)
    half = precision != "float32"
    with (
        pretended_kernels(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=half),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of values that the kernels did not compute
        model(batch, torch.arange(rows * columns))
    return sum(storage.nbytes() for storage in kept.values())


def kept_of(model: Classifier, precision: str) -> Kept:
    """By two batches: a line through both."""
    two, four = (saved_bytes(model, images, precision) for images in (2, 4))
    return Kept(2 * two - four, (four - two) / 2)


def parts_that_fit(weights: int, kept: Kept, share: int, memory: float) -> int:
    """The smallest divisor of a GPU's share of a batch such that a part of it fits."""
    free = memory * (1 - SPARE) - WEIGHT_BYTES * weights - kept.fixed
    divisors = (parts for parts in range(1, share + 1) if share % parts == 0)
    return next(parts for parts in divisors if share // parts * kept.per_image <= free)


def table(tiny: bool = False) -> Table:
    """By model, precision and data; `parts` is the train.accumulate that fits the paper's GPUs."""
    headings = ("bits", "stays (GB)", "image (MB)", "batch", "all (GB)", "parts", "part (GB)")
    named = (Column(heading, no_wrap=True) for heading in ("model", "data"))
    numbers = (Column(heading, justify="right") for heading in headings)
    table = Table(*named, *numbers, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in MODELS:
        settings = preset(f"paper/{name}-imagenet-row").model
        if tiny:
            settings.size, settings.image_size, settings.patch_size = "mini", 8, 4
        model = model_of(settings, 3, 1000)  # 62 classes of fmow make no difference here
        weights = sum(parameter.numel() for parameter in model.parameters())
        for precision, bits in (("float32", "32"), ("bfloat16", "16")):
            kept = kept_of(model, precision)
            stays = WEIGHT_BYTES * weights + kept.fixed
            for data, memory in A100.items():
                share = preset(f"paper/{name}-{data}-row").train.batch_size // RELEASE_GPUS[data]
                parts = parts_that_fit(weights, kept, share, memory)
                whole, part = ((stays + images * kept.per_image) / GB for images in (share, share // parts))
                sizes = f"{stays / GB:.1f}", f"{kept.per_image / 1e6:.0f}"
                table.add_row(name, data, bits, *sizes, str(share), f"{whole:.0f}", str(parts), f"{part:.0f}")
    return table
