"""Segment attention against a recurrence from segment to segment, written out with stopped gradients."""

import pytest
import torch

from reorder.models.backbones import Size, TransformerXL
from reorder.models.kernels.segment_attention import (
    Keys,
    Relative,
    remember,
    segment_attention,
    segment_attention_reference,
)

# (patches, segment, memory): dividing and not, memory shorter and longer than a segment, more than there is
CASES = [
    (12, 4, 4),
    (13, 4, 4),
    (13, 5, 3),
    (10, 3, 7),
    (9, 4, 20),
    (7, 1, 1),
    (7, 7, 3),
    (8, 20, 2),
    (1, 1, 1),
]


def inputs(patches, heads=2, d=3):
    generator = torch.Generator().manual_seed(patches)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    slots = patches + 1
    query, key, value = (draw(2, heads, slots, d) for _ in range(3))
    return query, key, value, draw(heads, slots, d), draw(heads, 1, d), draw(heads, 1, d)


@pytest.mark.parametrize(("patches", "segment", "memory"), CASES)
def test_blocked_equals_dense_with_all_gradients(patches, segment, memory):
    results = []
    for function in (segment_attention, segment_attention_reference):
        query, key, value, distances, u, v = inputs(patches)
        # values are shared, gradients are not
        remembered = Keys(key.detach().clone().requires_grad_(), value.detach().clone().requires_grad_())
        out = function(query, Keys(key, value), remembered, Relative(distances, u, v), segment, memory)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        leaves = [query, key, value, *remembered, distances, u, v]
        gradients = torch.autograd.grad(out, leaves, upstream, allow_unused=True)
        results.append([out, *(torch.zeros(()) if g is None or not g.any() else g for g in gradients)])
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth)


def literal_layer(block, x, distances, u, v, segment, memory):
    """One layer of one image (L, D), segment after segment, each with a memory of slots without gradient."""
    attention = block.attn
    heads, width = attention.heads, x.shape[1]
    d = width // heads
    w_query, w_key, w_value = attention.qkv.weight.chunk(3)
    r = distances @ attention.relative.weight.T

    def attend(queries, states, slots, keys):
        """Queries (q, D) at slots over states (k, D) at key slots; slot 0 asks without a relative term."""
        read = []
        for q, slot in zip(queries @ w_query.T, slots, strict=True):
            parts = []
            for h in range(heads):
                part = slice(h * d, (h + 1) * d)
                scores = []
                for state, key in zip(states, keys, strict=True):
                    score = (q[part] + u[h, 0]) @ (w_key[part] @ state)
                    if slot > 0:
                        score = score + (q[part] + v[h, 0]) @ r[slot - key][part]
                    seen = slot == 0 or key <= slot
                    scores.append(score / d**0.5 if seen else torch.tensor(-torch.inf, dtype=x.dtype))
                weights = torch.stack(scores).softmax(0)
                parts.append(weights @ (states @ w_value[part].T))
            read.append(torch.cat(parts))
        return torch.stack(read)

    slots = list(range(len(x)))
    outputs = [attend(x[:1], x, [0], slots)]
    remembered = x.new_zeros(0, width)
    for start in range(1, len(x), segment):
        own = slots[start : start + segment]
        keys = [0, *range(start - len(remembered), start), *own]
        states = torch.cat([x[:1], remembered.detach(), x[own]])
        outputs.append(attend(x[own], states, own, keys))
        remembered = torch.cat([remembered, x[own]])[-memory:]
    x = block.norm1(x + torch.cat(outputs) @ attention.proj.weight.T)
    return block.norm2(x + block.fc2(block.fc1(x).relu()))


@pytest.mark.parametrize(("patches", "segment", "memory"), [(8, 3, 2), (8, 2, 5), (6, 3, 3), (6, None, 4)])
def test_a_whole_model_equals_the_recurrence_from_segment_to_segment(patches, segment, memory):
    torch.manual_seed(0)
    model = TransformerXL(Size(6, 2, 2), (1, patches), segment=segment, memory=memory).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    tokens = torch.randn(1, patches + 1, 6, dtype=torch.float64, requires_grad=True)
    ours = model(tokens)
    x = tokens[0]
    for block in model.blocks:
        x = literal_layer(block, x, model.distances, model.u, model.v, segment or patches, memory)
    torch.testing.assert_close(ours[0], x)
    upstream = torch.randn_like(x)
    leaves = [tokens, *model.parameters()]
    truth = torch.autograd.grad(x, leaves, upstream)
    for found, expected in zip(torch.autograd.grad(ours[0], leaves, upstream), truth, strict=True):
        torch.testing.assert_close(found, expected)


def test_segments_limit_what_a_patch_sees():
    model = TransformerXL(Size(6, 1, 2), (1, 9), segment=3, memory=2).double().eval()
    tokens = torch.randn(1, 10, 6, dtype=torch.float64)
    before = model(tokens)
    # Patch 8 (slot 8) is in the segment of slots 7..9, which remembers slots 5 and 6.
    seen = []
    for slot in range(10):
        other = tokens.clone()
        other[0, slot] += 1.0 * torch.arange(6)
        seen.append(bool((model(other) - before)[0, 8].abs().max() > 1e-12))
    assert seen == [True, False, False, False, False, True, True, True, True, False]


def test_memory_passes_gradients_to_the_weight_alone():
    tokens = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    own, remembered = remember(tokens, weight)
    assert torch.equal(own, remembered)
    torch.testing.assert_close(own, tokens @ weight.T)
    remembered.sum().backward(retain_graph=True)
    assert tokens.grad is None or not tokens.grad.any()
    torch.testing.assert_close(weight.grad, tokens.detach().sum((0, 1)).expand(5, 4))
    own.sum().backward()
    torch.testing.assert_close(tokens.grad, weight.detach().sum(0).expand(1, 3, 4))


def test_segments_without_a_memory_to_remember_are_refused():
    query, key, value, distances, u, v = inputs(6)
    with pytest.raises(ValueError, match="more than one segment needs"):
        segment_attention(query, Keys(key, value), None, Relative(distances, u, v), 2, 2)


@pytest.mark.parametrize(("option", "value"), [("segment", 0), ("segment", -1), ("memory", 0)])
def test_impossible_lengths_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option} must be at least 1.*got {value}"):
        TransformerXL(Size(6, 1, 2), (2, 2), **{option: value})
