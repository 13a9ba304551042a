"""Anybody's sequence model as a backbone: a module that maps tokens (B, L, D) to tokens (B, L, D)."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from reorder.models.readout import check_readout, move_class_token, move_class_token_back, read_out

# B images, N patches, L = N + 1 tokens, D width

# What a module raises when it is given tokens of a width or length that it cannot read.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError, AttributeError, KeyError)


class External(nn.Module):
    """A module, or a Hugging Face model that takes `inputs_embeds`, between class token and readout.

    `readout` is as for our own backbones, by default `last`: there the class token sees all patches if the
    module is causal, and if it is not.
    """

    def __init__(self, module: nn.Module, width: int, readout: str = "last"):
        super().__init__()
        self.module, self.width, self.readout = module, width, check_readout(readout)
        accepted = _arguments(module)
        self.embeds = "inputs_embeds" in accepted
        self.keywords = {"use_cache": False} if self.embeds and "use_cache" in accepted else {}

    def forward(self, tokens: Tensor) -> Tensor:
        mixed = self.run(move_class_token(tokens, self.readout))
        return read_out(move_class_token_back(mixed, self.readout), self.readout)

    def run(self, tokens: Tensor) -> Tensor:
        """Tokens (B, L, D) through the module, as they stand."""
        output = self.module(inputs_embeds=tokens, **self.keywords) if self.embeds else self.module(tokens)
        if isinstance(output, Tensor):
            return output
        hidden = getattr(output, "last_hidden_state", None)
        return output[0] if hidden is None else hidden  # of nn.LSTM, a pair


def external(
    module: nn.Module, length: int, *, readout: str = "last", width: int | None = None, **others: Any
) -> External:
    """A backbone from a module that reads L tokens; its width is found if it is not given."""
    if others:
        choices = "positions, pixel_norm, readout, width"
        raise ValueError(f"unknown option {min(others)!r} of a module as backbone; choose from {choices}")
    module = getattr(module, "base_model", module) if takes_embeddings(module) else module  # without a head
    if width is None:
        width = _embedded_width(module) if takes_embeddings(module) else _tried_width(module, length)
    backbone = External(module, width, readout)
    check_reads(backbone, length)
    return backbone


def check_reads(backbone: External, length: int) -> None:
    """Refuse a module that does not map (B, L, D) to (B, L, D), or mixes the images of a batch."""
    name, given = type(backbone.module).__name__, (2, length, backbone.width)
    if _device(backbone).type == "meta":
        return
    try:
        tokens, mixed = _try(backbone, given)
    except REFUSALS as error:
        line = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name} cannot read tokens of shape {given}: {line}") from None
    if not isinstance(mixed, Tensor) or mixed.shape != given:
        got = tuple(mixed.shape) if isinstance(mixed, Tensor) else type(mixed).__name__
        raise ValueError(f"{name} maps tokens of shape {given} to {got}, not to tokens of the same shape")
    other = torch.stack([-tokens[0], tokens[1]])
    if not torch.allclose(_try(backbone, given, other)[1][1], mixed[1], rtol=1e-3, atol=1e-4):
        raise ValueError(f"{name} mixes the images of a batch: it must read (B, L, D), batch first")


def _try(backbone: External, shape: tuple[int, ...], tokens: Tensor | None = None) -> tuple[Tensor, Any]:
    """Tokens, random if none are given, and what the module makes of them; nothing else changes."""
    kind = next((parameter.dtype for parameter in backbone.parameters()), torch.get_default_dtype())
    if tokens is None:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0), device="cpu")
        tokens = drawn.to(_device(backbone), kind)
    was_training = {module: module.training for module in backbone.modules()}
    backbone.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return tokens, backbone.run(tokens)
    finally:
        for module, training in was_training.items():
            module.training = training


def _tried_width(module: nn.Module, length: int) -> int:
    """The width that a module reads, found by trying the sizes of its parameters."""
    sizes = dict.fromkeys(size for p in module.parameters() for size in reversed(p.shape) if size > 1)
    for width in sizes:
        try:
            mixed = _try(External(module, width), (2, length, width))[1]
        except REFUSALS:
            continue
        if isinstance(mixed, Tensor) and mixed.shape == (2, length, width):
            return width
    raise ValueError(
        f"cannot find the width of {type(module).__name__}: it must map tokens (B, {length}, D) to tokens of "
        "the same shape; give D as width=..."
    )


def _embedded_width(module: Any) -> int:
    """The width of what a Hugging Face model takes in the place of embedded words."""
    table = module.get_input_embeddings()
    width = getattr(table, "embedding_dim", None) or getattr(module.config, "hidden_size", None)
    if not isinstance(width, int):
        raise ValueError(f"cannot find the width of {type(module).__name__}; give it as width=...")
    return width


def takes_embeddings(module: nn.Module) -> bool:
    """Is it a Hugging Face model that reads vectors in the place of words?"""
    return "inputs_embeds" in _arguments(module) and hasattr(module, "get_input_embeddings")


def _arguments(module: nn.Module) -> set[str]:
    return set(inspect.signature(module.forward).parameters)


def _device(module: nn.Module) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), torch.get_default_device())
