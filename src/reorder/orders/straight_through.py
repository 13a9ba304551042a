"""Straight-through reading: forward, tokens are read exactly in an order; backward, the policy learns.

An order sorts noisy logits, its scores s. SoftSort (Prillo and Eisenschlos, 2020) relaxes the sorting to

    S[slot, patch] = softmax over patches of -|s_sorted[slot] - s[patch]| / width

and the scores get the gradient of (S - stop(S)) tokens: which patches would have been the better ones to read
in each slot, among those whose scores are near. It costs no forward pass and no term of the loss.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reorder.orders.paths import choose_path

# B images, N patches, D width, R orders: 1 for all images, or B; M blocks of C cells

BAND = 1024  # slots to either side that are compared, beyond which scores are too far apart to matter
CHUNK = 256  # slots that are computed at once


class Sampled(NamedTuple):
    """An order that came from a policy, with what the policy learns from when tokens are read in it."""

    order: Tensor  # (N,) or (B, N)
    scores: Tensor  # of the same shape: the noisy logits that the order sorts, with a gradient
    width: float  # of the softmax, in units of the scores
    layout: Tensor | None = None  # of a policy of blocks, whose scores are those of blocks and of cells

    def chunk(self, parts: int) -> "list[Sampled]":
        """The orders of so many parts of a batch; one order for all images is that of every part."""
        if self.order.dim() == 1:
            return [self] * parts
        pairs = zip(self.order.chunk(parts), self.scores.chunk(parts), strict=True)
        return [Sampled(order, scores, self.width) for order, scores in pairs]


def read_straight_through(tokens: Tensor, sampled: Sampled) -> Tensor:
    """Tokens (B, N, D) read in a sampled order, with a gradient to its scores."""
    order, scores = sampled.order.to(tokens.device), sampled.scores.to(tokens.device)
    if sampled.layout is not None:
        return _ReadBlocks.apply(tokens, scores, order, sampled.width, sampled.layout.to(tokens.device))
    return _Read.apply(tokens, scores, order, sampled.width)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, scores: Tensor, order: Tensor, width: float) -> Tensor:
        read = tokens.gather(1, _index(order, tokens)) if order.dim() == 2 else tokens.index_select(1, order)
        ctx.save_for_backward(read, scores, order)
        ctx.width = width
        return read

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        read, scores, order = ctx.saved_tensors
        grad_tokens = torch.empty_like(grad)
        grad_tokens.scatter_(1, _index(order, grad), grad)
        if not ctx.needs_input_grad[1]:
            return grad_tokens, None, None, None
        in_slots = scores_gradient(grad, read, scores.gather(-1, order), ctx.width)
        return grad_tokens, torch.empty_like(scores).scatter_(-1, order, in_slots.to(scores)), None, None


class _ReadBlocks(torch.autograd.Function):
    """As `_Read`, of an order of M blocks times one of the C cells in each, with scores (M + C,).

    A block is compared with other blocks as one long token of all its cells, and a cell with other cells as
    one of all its blocks; a cell that a block at the border lacks is zero.
    """

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, scores: Tensor, order: Tensor, width: float, layout: Tensor
    ) -> Tensor:
        read = tokens.index_select(1, order)
        ctx.save_for_backward(read, scores, order, layout)
        ctx.width = width
        return read

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        read, scores, order, layout = ctx.saved_tensors
        grad_tokens = torch.empty_like(grad)
        grad_tokens.scatter_(1, _index(order, grad), grad)
        if not ctx.needs_input_grad[1]:
            return grad_tokens, None, None, None, None
        found, parts = [], scores.split(list(layout.shape))
        blocks, cells = (part.argsort(descending=True, stable=True) for part in parts)
        inside = layout[blocks][:, cells] >= 0
        tables = _in_table(grad, inside), _in_table(read, inside)
        for axis, (part, place) in enumerate(zip(parts, (blocks, cells), strict=True)):
            grads, reads = (table.transpose(1, 1 + axis).flatten(2) for table in tables)
            in_slots = scores_gradient(grads, reads, part[place], ctx.width)
            found.append(torch.empty_like(part).scatter_(0, place, in_slots.to(part)))
        return grad_tokens, torch.cat(found), None, None, None


def _in_table(tokens: Tensor, inside: Tensor) -> Tensor:
    """Tokens (B, N, D) in slot order as (B, M, C, D), zero outside."""
    if inside.all():
        return tokens.unflatten(1, inside.shape)
    table = tokens.new_zeros(len(tokens), *inside.shape, tokens.shape[-1])
    table[:, inside] = tokens
    return table


def _index(order: Tensor, tokens: Tensor) -> Tensor:
    """An order (N,) or (B, N) as an index into tokens (B, N, D)."""
    return order[..., None].expand_as(tokens)


def scores_gradient(
    grad: Tensor, read: Tensor, scores: Tensor, width: float, band: int = BAND, path: str | None = None
) -> Tensor:
    """The gradient of scores in slot order, (N,) or (B, N), from that of what was read; both (B, N, D).

    With w = S of a slot and G[slot, other] = grad[slot] . read[other], the softmax's backward gives a score
    difference the gradient -w (G - sum(w G)) sign(s_slot - s_other) / width, which pulls on both scores.
    """
    if choose_path(path, read, ("torch", "triton")) == "triton":
        from reorder.orders import straight_through_triton

        return straight_through_triton.scores_gradient(grad, read, scores, width, band)
    scores = scores.float()
    total = torch.zeros_like(scores)
    for slots, near in _chunks(scores.shape[-1], band):
        if scores.dim() == 1:  # one order for all images: their products add up
            products = torch.einsum("bid,bjd->ij", grad[:, slots].float(), read[:, near].float())
        else:
            products = grad[:, slots].float() @ read[:, near].float().transpose(1, 2)
        difference = scores[..., slots, None] - scores[..., None, near]
        distance = -difference.abs() / width
        if slots.stop - slots.start < scores.shape[-1]:
            distance = distance.masked_fill(_apart(slots, near, scores.device) > band, -torch.inf)
        weights = distance.softmax(-1)
        centred = products - (weights * products).sum(-1, keepdim=True)
        pull = weights * centred * difference.sign() / -width
        total[..., slots] += pull.sum(-1)
        total[..., near] -= pull.sum(-2)
    return total


def _chunks(patches: int, band: int) -> Iterator[tuple[slice, slice]]:
    """Runs of slots that are computed at once, and the slots that each is compared with; one if it fits."""
    size = patches if patches <= band else CHUNK
    for start in range(0, patches, size):
        stop = min(patches, start + size)
        yield slice(start, stop), slice(max(0, start - band), min(patches, stop + band))


def _apart(slots: slice, near: slice, device: torch.device) -> Tensor:
    """How many slots lie between those of two runs."""
    first = torch.arange(slots.start, slots.stop, device=device)
    second = torch.arange(near.start, near.stop, device=device)
    return (first[:, None] - second).abs()
