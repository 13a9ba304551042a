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
# n segments of S slots; K = G + M + S keys of a segment: the global one, the memory, the segment itself

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


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

    @property
    def segments(self) -> int:
        return -(-self.slots // self.segment)

    @property
    def window(self) -> int:
        return self.memory + self.segment


def cut_of(length: int, segment: int | None, memory: int, has_global: bool) -> Cut:
    """How L slots are cut; with None they are one segment."""
    slots = length - has_global
    if segment is None or segment >= slots:
        return Cut(slots, slots, 0, int(has_global))
    return Cut(slots, segment, min(memory, slots), int(has_global))


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
    """`segment_attention` with dense (L, L) weights: slow, for tests."""
    weights = segment_weights(query, own.key, remembered.key, relative, cut)
    in_memory = _in_memory(torch.arange(query.shape[2], device=query.device), cut)
    return (weights * ~in_memory) @ own.value + (weights * in_memory) @ remembered.value


def segment_attention(
    query: Tensor, own: Keys, remembered: Keys | None, relative: Relative, cut: Cut
) -> Tensor:
    """What the slots (B, H, L, d) read.

    `remembered` has the values of `own`; its gradient is that of what later segments read. With None,
    that is part of the gradient of `own`.
    """
    distances, u, v = (tensor.to(query.dtype) for tensor in relative)
    with torch.autocast(query.device.type, enabled=False):  # one precision, that of the projections
        # A global slot is one query for all keys; its scale is that of scaled_dot_product_attention.
        first = F.scaled_dot_product_attention(query[:, :, :1] + u, own.key, own.value) if cut.first else None
        scaled = query[:, :, cut.first :] * query.shape[3] ** -0.5
        u, v = u * query.shape[3] ** -0.5, v * query.shape[3] ** -0.5
        rest = _Segments.apply(scaled + u, scaled + v, *own, *(remembered or own), distances, cut)
        return rest if first is None else torch.cat([first, rest], dim=2)


def _split(rows: Tensor, cut: Cut) -> Tensor:
    """Rows (B, H, L - G, d) as segments (B * H, n, S, d), zeros after the last."""
    padded = F.pad(rows, (0, 0, 0, cut.segments * cut.segment - cut.slots))
    return padded.reshape(-1, cut.segments, cut.segment, rows.shape[-1])


def _join(segments: Tensor, cut: Cut, heads: int) -> Tensor:
    """The inverse of `_split`: (B * H, n, S, d) to (B, H, L - G, d)."""
    return segments.reshape(-1, heads, cut.segments * cut.segment, segments.shape[-1])[:, :, : cut.slots]


def _windows(rows: Tensor, cut: Cut) -> Tensor:
    """Slots (B, H, L, d) as (B * H, n, K, d): the global one, then each segment with its memory."""
    start = torch.arange(cut.segments, device=rows.device)[:, None] * cut.segment
    slots = start + torch.arange(-cut.memory, cut.segment, device=rows.device)
    slots = slots.clamp_(0, cut.slots - 1) + cut.first  # outside the sequence any slot will do: it is masked
    slots = F.pad(slots, (cut.first, 0))
    return rows.index_select(2, slots.flatten()).view(-1, *slots.shape, rows.shape[-1])


def _sum_windows(grads: Tensor, cut: Cut, heads: int) -> tuple[Tensor, Tensor]:
    """Gradients (B * H, n, K, d) of windows to those of own and of remembered slots, both (B, H, L, d)."""
    grads = grads.view(-1, heads, *grads.shape[1:])
    first, remembered, own = grads.split([cut.first, cut.memory, cut.segment], dim=3)
    own = torch.cat([first.sum(2), own.flatten(2, 3)[:, :, : cut.slots]], dim=2)
    total = torch.zeros_like(own)
    for number in range(1, cut.segments):
        start = cut.first + number * cut.segment  # the window's memory ends here
        low = max(cut.first, start - cut.memory)
        total[:, :, low:start] += remembered[:, :, number, cut.memory - (start - low) :]
    return own, total


def _skewed(by_distance: Tensor, columns: int) -> Tensor:
    """Scores (..., S, M + S) for distances M + S - 1 ... 0, seen as scores for the window's keys.

    Column w of row i is M + i - w slots away, and is found S - 1 - i columns further right. The view runs
    over into the next row where w is later than i, which is masked.
    """
    rows, width = by_distance.shape[-2:]
    return by_distance.as_strided(
        (*by_distance.shape[:-1], columns), (*by_distance.stride()[:-2], width - 1, 1), rows - 1
    )


def _bias(cut: Cut, like: Tensor) -> Tensor:
    """Zero (n, S, K) where a query of a segment sees a key, else minus infinity."""
    start = torch.arange(cut.segments, device=like.device)[:, None, None] * cut.segment
    query = start + torch.arange(cut.segment, device=like.device)[:, None]
    key = start + torch.arange(-cut.memory, cut.segment, device=like.device)
    seen = F.pad((key >= 0) & (key <= query), (cut.first, 0), value=True)
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, -torch.inf)


def _table(distances: Tensor, cut: Cut) -> Tensor:
    """Distances M + S - 1 ... 0 as (H, M + S, d); those that no two slots have are zero."""
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
        remembered_key: Tensor,
        remembered_value: Tensor,
        distances: Tensor,
        cut: Cut,
    ) -> Tensor:
        heads = content.shape[1]
        scores = _split(content, cut) @ _windows(key, cut).transpose(2, 3)  # (B * H, n, S, K)
        by_distance = _by_distance(position, distances, cut)
        scores[..., cut.first :] += _skewed(by_distance, cut.window)
        if cut.first:
            scores[..., 0] += _split(_to_global(position, distances)[..., None], cut)[..., 0]
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.add_(_bias(cut, scores)).softmax(-1, dtype=wide).to(scores.dtype)
        ctx.save_for_backward(content, position, key, value, distances, weights)
        ctx.cut = cut
        return _join(weights @ _windows(value, cut), cut, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        content, position, key, value, distances, weights = ctx.saved_tensors
        cut, heads = ctx.cut, content.shape[1]
        grad = _split(grad, cut)
        grad_weights = grad @ _windows(value, cut).transpose(2, 3)
        own_value, remembered_value = _sum_windows(weights.transpose(2, 3) @ grad, cut, heads)
        # of the scores: a softmax's backward, in place
        grad_scores = grad_weights.sub_((grad_weights * weights).sum(-1, keepdim=True)).mul_(weights)
        grad_content = _join(grad_scores @ _windows(key, cut), cut, heads)
        own_key, remembered_key = _sum_windows(grad_scores.transpose(2, 3) @ _split(content, cut), cut, heads)
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
    """Scores (B * H, n, S, M + S) of queries (B, H, L - G, d) for distances M + S - 1 ... 0."""
    images, heads = position.shape[:2]
    queries = _split(position, cut).view(images, heads, cut.segments * cut.segment, -1)
    scores = queries @ _table(distances, cut).transpose(1, 2)
    return scores.view(images * heads, cut.segments, cut.segment, cut.window)


def _to_global(position: Tensor, distances: Tensor) -> Tensor:
    """Relative scores (B, H, L - 1) of queries (B, H, L - 1, d) for slot 0, as far away as their slot."""
    return (position * distances[:, 1 : 1 + position.shape[2]]).sum(-1)


def _relative_backward(
    grad_scores: Tensor, position: Tensor, distances: Tensor, cut: Cut
) -> tuple[Tensor, Tensor]:
    """Gradients of queries (B, H, L - G, d) and distances (H, L, d) from those of scores (B * H, n, S, K)."""
    images, heads, slots, d = position.shape
    band = grad_scores[..., cut.first :]
    by_distance = torch.zeros(band.shape, dtype=band.dtype, device=band.device)
    # The last column overlaps with the first of the next row; it is seen by the last query alone.
    _skewed(by_distance, cut.window - 1).copy_(band[..., :-1])
    by_distance[..., -1, -1] = band[..., -1, -1]
    by_distance = by_distance.view(images, heads, cut.segments * cut.segment, cut.window)
    grad_position = (by_distance @ _table(distances, cut))[:, :, :slots]
    queries = _split(position, cut).view(images, heads, cut.segments * cut.segment, d)
    by_table = torch.einsum("bhqw,bhqd->hwd", by_distance, queries).flip(1)
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
