"""Reading tokens in an order: the one place where an order touches a model, ours or anybody's."""

import torch
from torch import Tensor

# B images, N patches, D width


def read_in_order(tokens: Tensor, order: Tensor | None) -> Tensor:
    """Tokens (B, N, D) in raster order, read in an order (N,), one per image (B, N), or None for raster."""
    if order is None:
        return tokens
    if order.dtype != torch.long:
        raise ValueError(f"an order holds integers (torch.long), not {order.dtype}")
    order = order.to(tokens.device)
    if order.shape[-1] != tokens.shape[1] or order.dim() > 2:
        raise ValueError(f"an order of shape {tuple(order.shape)} cannot read {tokens.shape[1]} patches")
    if order.dim() == 1:
        return tokens.index_select(1, order)
    if order.shape[0] != tokens.shape[0]:
        raise ValueError(
            f"{order.shape[0]} orders cannot read {tokens.shape[0]} images: give one or one each"
        )
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))
