"""What the backbones share: stochastic depth, and running a stack of blocks."""

# B images, N patches, L = N + 1 tokens, D width

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class DropPath(nn.Module):
    """Stochastic depth: drops a residual branch for whole images with probability `rate`."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return branch
        keep = branch.new_empty(branch.shape[0], 1, 1).bernoulli_(1 - self.rate)
        return branch * keep / (1 - self.rate)


def drop_path_rates(last: float, depth: int) -> list[float]:
    """Rates that grow linearly from 0 in the first block to `last` in the last."""
    return [last * block / max(1, depth - 1) for block in range(depth)]


def run_blocks(blocks: nn.ModuleList, tokens: Tensor, checkpointing: bool, *shared: Tensor | None) -> Tensor:
    """Tokens (B, L, D) through all blocks; with checkpointing, activations are recomputed backward."""
    for block in blocks:
        tokens = run_block(block, tokens, checkpointing, *shared)
    return tokens


def run_block(block: Callable[..., Tensor], tokens: Tensor, checkpointing: bool, *others: Any) -> Tensor:
    if checkpointing and torch.is_grad_enabled():
        return checkpoint(block, tokens, *others, use_reentrant=False)
    return block(tokens, *others)


def head_width(width: int, heads: int) -> int:
    """The width d of one of `heads` attention heads."""
    if width % heads:
        raise ValueError(f"width {width} is not divisible by {heads} heads")
    return width // heads
