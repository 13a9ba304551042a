"""Sliding-window attention with or without a global token (Longformer), linear in the sequence's length."""

# B images, H heads, L tokens, d channels of a head
# half = window // 2; n blocks of c queries; m keys seen by a block: a global one, its own, two halos

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from reorder.orders.paths import choose_path

# Small blocks waste less arithmetic on keys that few of their queries see; large ones copy a key less often
# and give better-shaped products, which are quickest when c and m are multiples of 8.
BLOCK = 24


def sliding_window_reference(
    query: Tensor, key: Tensor, value: Tensor, window: int, has_global: bool = True
) -> Tensor:
    """`sliding_window_attention` without dropout, (B, H, L, d), under a dense (L, L) mask."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    hidden = ~window_pattern(query.shape[-2], window // 2, has_global, query.device)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


def sliding_window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    dropout: float = 0.0,
    has_global: bool = True,
    path: str | None = None,
) -> Tensor:
    """Attention (B, H, L, d) of every token to the tokens at most window // 2 away, and to a global token 0.

    `dropout` acts on the probabilities. Row 0 follows the same rule; replace it if token 0 sees all.
    `path` is as for selective_scan.
    """
    if window < 1 or window % 2:
        raise ValueError(f"window must be even and positive, not {window}")
    if choose_path(path, query, ("torch", "triton")) == "triton":
        return _banded(query, key, value, window // 2, int(has_global), dropout)
    length = query.shape[2]
    cut = _cut(length, window // 2, int(has_global))
    if cut.half + cut.size + cut.right >= length or torch.compiler.is_exporting():
        mask = window_pattern(length, cut.half, has_global, query.device)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return _Blocked.apply(query, key, value, cut, dropout)


def _banded(query: Tensor, key: Tensor, value: Tensor, half: int, first: int, dropout: float) -> Tensor:
    """The same by Triton."""
    from reorder.models.kernels.band_attention import Band, BandAttention

    scaled = query * query.shape[-1] ** -0.5
    to_global = (scaled @ key[:, :, 0, :, None])[..., 0] if first else None
    band = Band(first_query=0, first=first, segment=1, memory=half, ahead=half)
    return BandAttention.apply(scaled, None, key, value, None, None, None, to_global, band, dropout)


class _Cut(NamedTuple):
    """L tokens in `blocks` blocks of `size` queries, which see `half` keys before and `right` after them."""

    length: int
    half: int
    size: int
    blocks: int
    right: int
    first: int  # the first token that is not global: 1, or 0 if none is


def _cut(length: int, half: int, first: int) -> _Cut:
    """Blocks of BLOCK queries, or more where a halo would else reach beyond one neighbour."""
    size = _round_up(max(BLOCK, half + 7), 8)
    right = _round_up(first + half + size + half, 8) - (first + half + size)
    return _Cut(length, half, size, _round_up(length, size) // size, right, first)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def window_pattern(length: int, half: int, has_global: bool, device: torch.device) -> Tensor:
    """Whether query i sees key j, (L, L)."""
    position = torch.arange(length, device=device)
    return ((position[:, None] - position).abs() <= half) | (position < has_global)


def _key_positions(cut: _Cut, device: torch.device) -> Tensor:
    """Positions (n, m) of the keys without the global one; halos of the outer blocks leave the sequence."""
    start = torch.arange(cut.blocks, device=device)[:, None] * cut.size
    return start + torch.arange(-cut.half, cut.size + cut.right, device=device)


def _bias(cut: _Cut, like: Tensor) -> Tensor:
    """Zero (n, c, m) where a query sees a key, else minus infinity; a global token counts once."""
    position = _key_positions(cut, like.device)[:, None]
    query = torch.arange(cut.blocks * cut.size, device=like.device).view(cut.blocks, cut.size, 1)
    seen = ((query - position).abs() <= cut.half) & (position >= cut.first) & (position < cut.length)
    seen |= query >= cut.length  # after the last, so that no query sees nothing
    seen = F.pad(seen, (cut.first, 0), value=True)
    return torch.zeros_like(seen, dtype=like.dtype).masked_fill_(~seen, float("-inf"))


def _query_blocks(rows: Tensor, cut: _Cut) -> Tensor:
    """Rows (B, H, L, d) as (B * H * n, c, d), zeros after the last."""
    return F.pad(rows, (0, 0, 0, cut.blocks * cut.size - cut.length)).reshape(-1, cut.size, rows.shape[-1])


def _key_blocks(rows: Tensor, cut: _Cut) -> Tensor:
    """Rows (B, H, L, d) as (B * H * n, m, d): a global row, then those of each block with both halos."""
    position = F.pad(_key_positions(cut, rows.device), (cut.first, 0)).clamp_(0, cut.length - 1)
    return rows.index_select(2, position.flatten()).view(-1, position.shape[1], rows.shape[-1])


def _sum_key_blocks(blocks: Tensor, cut: _Cut, heads: int) -> Tensor:
    """The adjoint of `_key_blocks`: gradients (B * H * n, m, d) of a row's copies summed, (B, H, L, d)."""
    _, half, size, count, right, first = cut
    shared, before, own, after = blocks.unflatten(0, (-1, heads, count)).split([first, half, size, right], 3)
    # Kept token by token, (B, L, H, d), which is how the projections before this want their gradient.
    total = torch.empty_like(own.permute(0, 2, 3, 1, 4), memory_format=torch.contiguous_format)
    total = total.permute(0, 3, 1, 2, 4)
    total.copy_(own)
    total[:, :, :-1, size - half :] += before[:, :, 1:]
    total[:, :, 1:, :right] += after[:, :, :-1]
    if first:
        total[:, :, 0, 0] += shared.sum((2, 3))
    return total.flatten(2, 3)[:, :, : cut.length]


def _probabilities(query: Tensor, key: Tensor, cut: _Cut) -> Tensor:
    """What queries (B, H, L, d) give to keys (B, H, L, d), (B * H * n, c, m)."""
    scores = _query_blocks(query, cut) @ _key_blocks(key, cut).transpose(1, 2)
    scores = scores.unflatten(0, (-1, cut.blocks))
    scores = torch.add(_bias(cut, scores), scores, alpha=query.shape[-1] ** -0.5)
    return scores.softmax(-1).to(query.dtype).flatten(0, 1)


class _Blocked(torch.autograd.Function):
    """Attention by blocks that keeps its inputs alone: backward gathers and multiplies the blocks again."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, cut: _Cut, dropout: float) -> Tensor:
        probabilities, keep = _probabilities(query, key, cut), None
        if dropout > 0:
            probabilities, keep = torch.native_dropout(probabilities, dropout, True)
        ctx.save_for_backward(query, key, value, keep)
        ctx.cut, ctx.dropout = cut, dropout
        blocks = probabilities @ _key_blocks(value, cut)
        rows = blocks.unflatten(0, (-1, query.shape[1], cut.blocks)).flatten(2, 3)[:, :, : cut.length]
        return rows.transpose(1, 2).contiguous().transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, keep = ctx.saved_tensors
        with torch.autocast(query.device.type, enabled=False):
            grads = _blocked_backward(query, key, value, ctx.cut, ctx.dropout, keep, grad.to(value.dtype))
        return *grads, None, None


def _blocked_backward(
    query: Tensor, key: Tensor, value: Tensor, cut: _Cut, dropout: float, keep: Tensor | None, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients (B, H, L, d) of query, key and value from that of the output, (B, H, L, d)."""
    heads, scale, grad = query.shape[1], query.shape[-1] ** -0.5, _query_blocks(grad, cut)
    probabilities = kept = _probabilities(query, key, cut)
    grad_scores = grad @ _key_blocks(value, cut).transpose(1, 2)
    if keep is not None:
        kept = probabilities * keep / (1 - dropout)
        grad_scores = grad_scores * keep / (1 - dropout)
    grad_value = _sum_key_blocks(kept.transpose(1, 2) @ grad, cut, heads)
    grad_scores = torch._softmax_backward_data(grad_scores, probabilities, -1, probabilities.dtype) * scale
    grad_query = (grad_scores @ _key_blocks(key, cut)).unflatten(0, (-1, heads, cut.blocks)).flatten(2, 3)
    grad_key = _sum_key_blocks(grad_scores.transpose(1, 2) @ _query_blocks(query, cut), cut, heads)
    return grad_query[:, :, : cut.length], grad_key, grad_value
