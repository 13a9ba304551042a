"""Positions that a model gives by slot, inside its blocks, made to follow the patches that are read there."""

from typing import Any

import torch
from torch import Tensor, nn

# B images, N patches, L = prefix + N tokens, H heads, R orders: 1 for all images, or B


def position_modules(model: nn.Module) -> list[nn.Module]:
    """The modules of a Hugging Face model whose output is by slot: BEiT's biases, DINOv3's rotations."""
    ends = ("RelativePositionBias", "RopePositionEmbedding")
    return [module for module in model.modules() if type(module).__name__.endswith(ends)]


def follow(positions: Any, order: Tensor, prefix: int) -> Any:
    """What such a module gave, for tokens read in an order (N,) or (B, N)."""
    if isinstance(positions, Tensor):
        return follow_bias(positions, order, prefix)
    cosines, sines = positions
    return follow_rotation(cosines, order), follow_rotation(sines, order)


def follow_bias(bias: Tensor, order: Tensor, prefix: int) -> Tensor:
    """The bias of attention (1, H, L, L) between patches, as one between slots (R, H, L, L)."""
    order = order.reshape(-1, order.shape[-1]).to(bias.device)  # (R, N)
    special = torch.arange(prefix, device=bias.device).expand(len(order), -1)
    tokens = torch.cat([special, order + prefix], dim=1)  # (R, L)
    bias = bias.expand(len(order), -1, -1, -1)
    bias = bias.gather(2, tokens[:, None, :, None].expand_as(bias))
    return bias.gather(3, tokens[:, None, None, :].expand_as(bias))


def follow_rotation(rotation: Tensor, order: Tensor) -> Tensor:
    """A rotation of patches (N, D) as one of slots: (N, D), or (B, 1, N, D) for one order each."""
    read = rotation[order.to(rotation.device)]
    return read if order.dim() == 1 else read[:, None]
