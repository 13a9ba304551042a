"""What an order is: a LongTensor (N,), or (B, N) with one per image.

`order[slot] = patch`, the raster index of the patch read in that slot; `slot_of`, its inverse, is
`slot_of[patch] = slot`.
"""

import torch
from torch import Tensor

# B images, N patches


def invert(order: Tensor) -> Tensor:
    """The slot of every patch: slot_of (..., N) of an order (..., N), and the other way round."""
    slots = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, slots)


def validate(order: Tensor, patches: int) -> Tensor:
    """The order itself, if it is (N,) or (B, N) and each row names every one of `patches` patches once."""
    if order.dtype != torch.long:
        raise ValueError(f"an order holds integers (torch.long), not {order.dtype}")
    if order.dim() not in (1, 2) or order.shape[-1] != patches:
        raise ValueError(f"an order of shape {tuple(order.shape)} does not fit {patches} patches")
    expected = torch.arange(patches, device=order.device)
    for row in order.reshape(-1, patches):
        if torch.equal(row.sort().values, expected):
            continue
        outside = row[(row < 0) | (row >= patches)]
        if len(outside):
            raise ValueError(f"not an order: patch {int(outside[0])} is outside 0..{patches - 1}")
        first_slot = torch.full((patches,), patches, device=row.device)
        first_slot.scatter_reduce_(0, row, torch.arange(patches, device=row.device), "amin")
        again = (first_slot[row] != torch.arange(patches, device=row.device)).nonzero()[0]
        repeated, missing = int(row[again]), int((first_slot == patches).nonzero()[0])
        raise ValueError(f"not an order: patch {repeated} is repeated and patch {missing} is missing")
    return order
