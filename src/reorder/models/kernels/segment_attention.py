"""Transformer-XL's attention: causal, with relative distances, in segments that see a memory before them.

Slots are cut into segments; a slot sees those of its segment up to itself, and the `memory` slots before the
segment. With q scaled by 1 / sqrt(d), the score of query slot i for key slot j is (Dai et al., 2019, 3.3)

    (q_i + u) . k_j + (q_i + v) . r_{i-j}

Slot 0 may be global, and is in no segment then: a key for every slot, at its distance; as a query it sees
every slot and has no relative term. The gradient of remembered keys and values is kept apart, so that it can
be stopped.

All segments of a layer are computed at once: time and memory grow with L * (memory + segment).
"""

# B images, H heads, L slots, G of them global (0 or 1), d width of a head
# n blocks of c slots; K = G + M + c keys of a block: the global one, the memory before it, the block itself

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from reorder.orders.paths import choose_path

BLOCK = 16  # slots at least: products of smaller segments would be too small to be quick
CACHED = 16  # cuts whose masks are kept


class Keys(NamedTuple):
    """Keys and values (B, H, L, d) of one kind: those a segment has itself, or those it remembers."""

    key: Tensor
    value: Tensor


class Relative(NamedTuple):
    """Projected distances (H, L, d), row = distance, and the biases u and v (H, 1, d)."""

    distances: Tensor
    u: Tensor
    v: Tensor


class Cut(NamedTuple):
    """L - G slots in segments, and how many slots before it a segment remembers."""

    slots: int
    segment: int
    memory: int
    first: int  # the first slot that is not global: G
    block: int  # how many slots are computed at once: whole segments, or all

    @property
    def segments(self) -> int:
        return -(-self.slots // self.segment)

    @property
    def blocks(self) -> int:
        return -(-self.slots // self.block)

    @property
    def before(self) -> int:
        """How many slots before a block it sees."""
        return self.memory if self.blocks > 1 else 0

    @property
    def window(self) -> int:
        return self.before + self.block


def cut_of(length: int, segment: int | None, memory: int, has_global: bool) -> Cut:
    """How L slots are cut; with None they are one segment."""
    slots = length - has_global
    if segment is None or segment >= slots:
        return Cut(slots, slots, 0, int(has_global), slots)
    memory = min(memory, slots)
    block = segment if has_global else _block(slots, segment, memory)
    return Cut(slots, segment, memory, int(has_global), block)


def _block(slots: int, segment: int, memory: int) -> int:
    """How many slots to compute at once: small segments together, in blocks of one size."""
    block = max(BLOCK, memory // 2)
    if segment >= block:
        return segment
    if slots <= 2 * (memory + block):  # nearly all is seen by some query of every block
        return slots
    blocks = -(-slots // block)
    return -(-slots // (blocks * segment)) * segment


def segment_weights(query: Tensor, own: Tensor, remembered: Tensor, relative: Relative, cut: Cut) -> Tensor:
    """Attention weights (B, H, L, L) of queries for keys, all (B, H, L, d): dense and slow."""
    length, d = query.shape[2], query.shape[3]
    slot = torch.arange(length, device=query.device)
    distance = slot[:, None] - slot
    is_global = slot < cut.first
    seen = (distance >= 0) & (slot >= _start(slot, cut)[:, None] - cut.memory)
    seen = seen | is_global | is_global[:, None]
    content = torch.where(
        _in_memory(slot, cut),
        (query + relative.u) @ remembered.transpose(2, 3),
        (query + relative.u) @ own.transpose(2, 3),
    )
    by_distance = (query + relative.v) @ relative.distances.transpose(1, 2)
    term = by_distance.gather(3, distance.clamp(min=0).expand_as(by_distance))
    scores = content + term * ~is_global[:, None]
    return (scores * d**-0.5).masked_fill(~seen, -torch.inf).softmax(-1)


def _start(slot: Tensor, cut: Cut) -> Tensor:
    """The first slot of the segment that each slot (L,) is in."""
    return (slot - cut.first) // cut.segment * cut.segment + cut.first


def _in_memory(slot: Tensor, cut: Cut) -> Tensor:
    """Whether query i has key j in its memory or further back, (L, L)."""
    cut_up = slot >= cut.first
    return (slot < _start(slot, cut)[:, None]) & cut_up & cut_up[:, None]


def segment_attention_reference(
    query: Tensor, own: Keys, remembered: Keys, relative: Relative, cut: Cut
) -> Tensor:
    """`segment_attention` with dense (L, L) weights: slow, for exported models and tests."""
    weights = segment_weights(query, own.key, remembered.key, relative, cut)
    in_memory = _in_memory(torch.arange(query.shape[2], device=query.device), cut)
    return (weights * ~in_memory) @ own.value + (weights * in_memory) @ remembered.value


def segment_attention(
    query: Tensor,
    own: Keys,
    remembered: Keys | None,
    relative: Relative,
    cut: Cut,
    path: str | None = None,
) -> Tensor:
    """What the slots (B, H, L, d) read.

    `remembered` has the values of `own`; its gradient is that of what later segments read. With None,
    that is part of the gradient of `own`. `path` is as for selective_scan.
    """
    if torch.compiler.is_exporting():  # the views of `_skewed` would be exported as something else
        return segment_attention_reference(query, own, remembered or own, relative, cut)
    distances, u, v = (tensor.to(query.dtype) for tensor in relative)
    with torch.autocast(query.device.type, enabled=False):  # one precision, that of the projections
        # A global slot is one query for all keys; its scale is that of scaled_dot_product_attention.
        first = F.scaled_dot_product_attention(query[:, :, :1] + u, own.key, own.value) if cut.first else None
        scaled = query[:, :, cut.first :].contiguous() * query.shape[3] ** -0.5
        u, v = u * query.shape[3] ** -0.5, v * query.shape[3] ** -0.5
        if choose_path(path, query, ("torch", "triton")) == "triton":
            rest = _banded(scaled + u, scaled + v, own, remembered, distances, cut)
        else:
            rest = _Segments.apply(
                *(scaled + u, scaled + v),
                *(own.key.contiguous(), own.value.contiguous()),  # once, not whenever they are cut
                *(remembered or (None, None)),
                distances,
                cut,
            )
        return rest if first is None else torch.cat([first, rest], dim=2)


def _banded(
    content: Tensor, position: Tensor, own: Keys, remembered: Keys | None, distances: Tensor, cut: Cut
) -> Tensor:
    """What slots (B, H, L - G, d) that are not global read, by Triton."""
    from reorder.models.kernels.band_attention import Band, BandAttention

    band = Band(first_query=cut.first, first=cut.first, segment=cut.segment, memory=cut.memory, ahead=0)
    to_global = None
    if cut.first:
        to_global = (content @ own.key[:, :, 0, :, None])[..., 0] + _to_global(position, distances)
    return BandAttention.apply(
        content, position, own.key, own.value, *(remembered or (None, None)), distances, to_global, band, 0.0
    )


def _split(rows: Tensor, cut: Cut) -> Tensor:
    """Rows (B, H, L - G, d) as blocks (B * H, n, c, d), zeros after the last."""
    padding = cut.blocks * cut.block - cut.slots
    rows = F.pad(rows, (0, 0, 0, padding)) if padding else rows
    return rows.reshape(-1, cut.blocks, cut.block, rows.shape[-1])


def _join(blocks: Tensor, cut: Cut, heads: int) -> Tensor:
    """The inverse of `_split`: (B * H, n, c, d) to (B, H, L - G, d)."""
    return blocks.reshape(-1, heads, cut.blocks * cut.block, blocks.shape[-1])[:, :, : cut.slots]


def _windows(rows: Tensor, cut: Cut) -> Tensor:
    """Slots (B, H, L, d) as (B * H, n, K, d): the global one, then each block with the memory before it."""
    if cut.blocks == 1:
        return rows.reshape(-1, 1, *rows.shape[2:])
    slots = _window_slots(cut, rows.device)
    return rows.index_select(2, slots).view(-1, cut.blocks, cut.first + cut.window, rows.shape[-1])


@lru_cache(CACHED)
def _window_slots(cut: Cut, device: torch.device) -> Tensor:
    """The slots (n * K,) of all windows; outside the sequence any slot will do: it is masked."""
    start = torch.arange(cut.blocks, device=device)[:, None] * cut.block
    slots = start + torch.arange(-cut.before, cut.block, device=device)
    return F.pad(slots.clamp_(0, cut.slots - 1) + cut.first, (cut.first, 0)).flatten()


def _sum_windows(grads: Tensor, cut: Cut, heads: int) -> tuple[Tensor, Tensor]:
    """Gradients (B * H, n, K, d) of windows summed, (B, H, L, d): of blocks, of the memory before."""
    grads = grads.view(-1, heads, *grads.shape[1:])
    first, before, inside = grads.split([cut.first, cut.before, cut.block], dim=3)
    total = torch.zeros_like(inside)
    for back in range(1, -(-cut.before // cut.block) + 1):
        stop = cut.before - (back - 1) * cut.block  # of the memory that lies so many blocks back
        part = before[:, :, back:, max(0, stop - cut.block) : stop]
        total[:, :, : cut.blocks - back, cut.block - part.shape[3] :] += part
    inside, total = (part.flatten(2, 3)[:, :, : cut.slots] for part in (inside, total))
    if cut.first == 0:
        return inside, total
    return torch.cat([first.sum(2), inside], dim=2), F.pad(total, (0, 0, 1, 0))


def _key_gradients(
    scores: Tensor, rows: Tensor, cut: Cut, heads: int, apart: bool
) -> tuple[Tensor, Tensor | None]:
    """Gradients (B, H, L, d) of own and of remembered keys; of all and None if they are not kept apart.

    They are products of the gradient of scores (B * H, n, c, K) and queries (B * H, n, c, d), for values of
    weights and the gradient of what was read.
    """
    inside, before = _sum_windows(scores.transpose(2, 3) @ rows, cut, heads)
    if not apart:
        return inside + before if cut.before else inside, None
    if cut.block == cut.segment:
        return inside, before
    own = scores[..., cut.first + cut.before :] * _own(cut, scores.dtype, scores.device)
    own = _join(own.transpose(2, 3) @ rows, cut, heads)
    return own, inside - own + before


@lru_cache(CACHED)
def _own(cut: Cut, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One (c, c) where a query of a block and a key are in one segment, else zero."""
    segment = torch.arange(cut.block, device=device) // cut.segment
    return (segment[:, None] == segment).to(dtype)


def _skewed(by_distance: Tensor, columns: int) -> Tensor:
    """Scores (..., c, M + c) for distances M + c - 1 ... 0, seen as scores for the window's keys.

    Column w of row i is M + i - w slots away, and is found c - 1 - i columns further right. The view runs
    over into the next row where w is later than i, which is masked.
    """
    rows, width = by_distance.shape[-2:]
    return by_distance.as_strided(
        (*by_distance.shape[:-1], columns), (*by_distance.stride()[:-2], width - 1, 1), rows - 1
    )


@lru_cache(CACHED)
def _bias(cut: Cut, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zero (n, c, K) where a query of a block sees a key, else minus infinity."""
    start = torch.arange(cut.blocks, device=device)[:, None, None] * cut.block
    query = start + torch.arange(cut.block, device=device)[:, None]
    key = start + torch.arange(-cut.before, cut.block, device=device)
    low = (query // cut.segment * cut.segment - cut.memory).clamp_(min=0)
    seen = F.pad((key >= low) & (key <= query), (cut.first, 0), value=True)
    return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)


def _table(distances: Tensor, cut: Cut) -> Tensor:
    """Distances M + c - 1 ... 0 as (H, M + c, d); those that no two slots have are zero."""
    rows = distances[:, : cut.window]
    return F.pad(rows, (0, 0, 0, cut.window - rows.shape[1])).flip(1)


class _Segments(torch.autograd.Function):
    """What slots in segments read; remembered keys and values get gradients apart from a segment's own."""

    @staticmethod
    def forward(
        ctx: Any,
        content: Tensor,
        position: Tensor,
        key: Tensor,
        value: Tensor,
        remembered_key: Tensor | None,
        remembered_value: Tensor | None,
        distances: Tensor,
        cut: Cut,
    ) -> Tensor:
        heads = content.shape[1]
        scores = _split(content, cut) @ _windows(key, cut).transpose(2, 3)  # (B * H, n, c, K)
        by_distance = _by_distance(position, distances, cut)
        scores[..., cut.first :] += _skewed(by_distance, cut.window)
        if cut.first:
            scores[..., 0] += _split(_to_global(position, distances)[..., None], cut)[..., 0]
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = (
            scores.add_(_bias(cut, scores.dtype, scores.device)).softmax(-1, dtype=wide).to(scores.dtype)
        )
        ctx.save_for_backward(content, position, key, value, distances, weights)
        ctx.cut, ctx.apart = cut, remembered_key is not None
        return _join(weights @ _windows(value, cut), cut, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        content, position, key, value, distances, weights = ctx.saved_tensors
        cut, heads = ctx.cut, content.shape[1]
        grad = _split(grad, cut)
        grad_weights = grad @ _windows(value, cut).transpose(2, 3)
        own_value, remembered_value = _key_gradients(weights, grad, cut, heads, ctx.apart)
        # of the scores: a softmax's backward, in place
        grad_scores = grad_weights.sub_((grad_weights * weights).sum(-1, keepdim=True)).mul_(weights)
        grad_content = _join(grad_scores @ _windows(key, cut), cut, heads)
        queries = _split(content, cut)
        own_key, remembered_key = _key_gradients(grad_scores, queries, cut, heads, ctx.apart)
        grad_position, grad_distances = _relative_backward(grad_scores, position, distances, cut)
        return (
            grad_content,
            grad_position,
            own_key,
            own_value,
            remembered_key,
            remembered_value,
            grad_distances,
            None,
        )


def _by_distance(position: Tensor, distances: Tensor, cut: Cut) -> Tensor:
    """Scores (B * H, n, c, M + c) of queries (B, H, L - G, d) for distances M + c - 1 ... 0."""
    images, heads = position.shape[:2]
    queries = _split(position, cut).view(images, heads, cut.blocks * cut.block, -1)
    scores = queries @ _table(distances, cut).transpose(1, 2)
    return scores.view(images * heads, cut.blocks, cut.block, cut.window)


def _to_global(position: Tensor, distances: Tensor) -> Tensor:
    """Relative scores (B, H, L - 1) of queries (B, H, L - 1, d) for slot 0, as far away as their slot."""
    return (position * distances[:, 1 : 1 + position.shape[2]]).sum(-1)


def _relative_backward(
    grad_scores: Tensor, position: Tensor, distances: Tensor, cut: Cut
) -> tuple[Tensor, Tensor]:
    """Gradients of queries (B, H, L - G, d) and distances (H, L, d) from those of scores (B * H, n, c, K)."""
    images, heads, slots, d = position.shape
    band = grad_scores[..., cut.first :]
    # `_skewed` read the other way: its rows follow each other but for the last column, which is masked (zero)
    # except for the last query.
    before = band.new_zeros(*band.shape[:2], cut.block - 1)
    by_distance = torch.cat([before, band[..., :-1].flatten(2), band[..., -1, -1:]], dim=2)
    by_distance = by_distance.view(images, heads, cut.blocks * cut.block, cut.window)
    grad_position = (by_distance @ _table(distances, cut))[:, :, :slots]
    queries = _split(position, cut).view(images, heads, cut.blocks * cut.block, d)
    by_table = (by_distance.transpose(2, 3) @ queries).sum(0).flip(1)  # as an einsum it would be copied
    grad_distances = torch.zeros_like(distances)
    known = min(cut.window, distances.shape[1])
    grad_distances[:, :known] += by_table[:, :known]
    if cut.first:
        to_global = _join(grad_scores[..., :1], cut, heads)  # (B, H, L - 1, 1)
        grad_position = grad_position + to_global * distances[:, 1 : 1 + slots]
        grad_distances[:, 1 : 1 + slots] += (to_global * position).sum(0)
    return grad_position, grad_distances


class _Remember(torch.autograd.Function):
    """A linear map with two outputs of one value: the second's gradient reaches the weight, not the input."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(tokens, weight)
        rows = F.linear(tokens, weight)
        return rows, rows.view_as(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, own: Tensor, remembered: Tensor) -> tuple[Tensor, Tensor]:
        tokens, weight = ctx.saved_tensors
        with torch.autocast(own.device.type, enabled=False):
            total = (own + remembered).flatten(0, -2)
            grad_weight = total.t() @ tokens.to(total.dtype).flatten(0, -2)
            return (own @ weight.to(own.dtype)).to(tokens.dtype), grad_weight.to(weight.dtype)


def remember(tokens: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (B, L, D) mapped by a weight (E, D), twice (B, L, E): as they are, and as a memory of them."""
    return _Remember.apply(tokens, weight)
