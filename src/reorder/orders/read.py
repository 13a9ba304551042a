"""Reading tokens in an order: the one place where an order touches a model, ours or anybody's."""

import torch
from torch import Tensor

from reorder.orders.image_policy import OwnOrders
from reorder.orders.straight_through import Sampled, read_straight_through

# B images, N patches, D width

Known = Tensor | Sampled  # an order (N,), one per image (B, N), or a sample of a policy
Reading = Known | OwnOrders  # what tokens are read in: an order, or orders that depend on the tokens


def read(tokens: Tensor, order: Reading | None, prefix: int = 0) -> Tensor:
    """Tokens (B, prefix + N, D) with their N patches, in raster order, read in an order.

    The order is (N,), one per image (B, N), None for raster, or what a learner sampled: then the learner's
    policy gets a gradient if it is a straight-through one. The first `prefix` tokens stay where they are.

        tokens = embed(images) + positions  # (B, N, D)
        tokens = reorder.read(tokens, learner.sample(step))
    """
    if order is None:
        return tokens
    if prefix:
        return torch.cat([tokens[:, :prefix], read(tokens[:, prefix:], order)], dim=1)
    order = known(tokens, order)
    if isinstance(order, Sampled):
        check_fits(tokens.shape[0], tokens.shape[1], order.order)
        return read_straight_through(tokens, order)
    return read_in_order(tokens, order)


def read_in_order(tokens: Tensor, order: Tensor | None) -> Tensor:
    """Tokens (B, N, D) in raster order, read in an order (N,), one per image (B, N), or None for raster."""
    if order is None:
        return tokens
    check_fits(tokens.shape[0], tokens.shape[1], order)
    order = order.to(tokens.device)
    if order.dim() == 1:
        return tokens.index_select(1, order)
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))


def known(tokens: Tensor, order: Reading | None) -> Known | None:
    """The order itself; where every image has its own, those for patches (B, N, D)."""
    return order.of(tokens) if isinstance(order, OwnOrders) else order


def plain(order: Known | None) -> Tensor | None:
    """The order itself, without the way to a policy."""
    return order.order if isinstance(order, Sampled) else order


def check_fits(images: int, patches: int, order: Tensor) -> None:
    """Refuse an order that cannot read so many patches of so many images."""
    if order.dtype != torch.long:
        raise ValueError(f"an order holds integers (torch.long), not {order.dtype}")
    if order.shape[-1] != patches or order.dim() > 2:
        raise ValueError(f"an order of shape {tuple(order.shape)} cannot read {patches} patches")
    if order.dim() == 2 and order.shape[0] != images:
        raise ValueError(f"{order.shape[0]} orders cannot read {images} images: give one or one each")
