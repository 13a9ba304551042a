"""Whether a model cares in which order it reads: tried in three orders, without leaving a trace in it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# B images, N patches

TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}  # of the largest logit
FLOAT_TOLERANCE = 1e-4  # in single precision: some hundred roundings


def is_indifferent(
    model: nn.Module,
    reading_in: Callable[[Tensor], AbstractContextManager[None]],
    patches: int,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
) -> bool:
    """Whether a model's logits for some inputs are the same in three orders, up to rounding.

    Where there are no logits, or they are all the same, as of a head that starts at zero, it is not said.
    """
    row = torch.arange(patches)
    shuffled = torch.randperm(patches, generator=torch.Generator().manual_seed(0))
    found = []
    for order in (row, row.flip(0), shuffled):
        with evaluating(model), reading_in(order):
            found.append(logits_of(model(*inputs, **named)))
    first = found[0]
    if first is None or not first.is_floating_point() or first.max() == first.min():
        return False
    most = TOLERANCE.get(first.dtype, FLOAT_TOLERANCE) * first.abs().max()
    return all(other is not None and bool((other - first).abs().max() <= most) for other in found[1:])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model in evaluation, without gradients, and then as it was; random generators are too.

    The modes are set by hand: some models do more in `eval()`, such as merging weights.
    """
    modes = [(module, module.training) for module in model.modules()]
    cuda = {each.device.index for each in model.parameters() if each.device.type == "cuda"}
    with torch.no_grad(), torch.random.fork_rng(devices=cuda):
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, mode in modes:
                module.training = mode


def logits_of(output: Any) -> Tensor | None:
    """The logits in what a model gives: itself, by that name, or the first tensor."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, dict) and "logits" in output:
        return output["logits"]
    values = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else ()
    return next((value for value in values if isinstance(value, Tensor) and value.dim() > 0), None)
