"""Segment attention against a recurrence from segment to segment, written out with stopped gradients."""

import pytest
import torch

from reorder.models.backbones import Size, TransformerXL
from reorder.models.kernels.segment_attention import (
    Keys,
    Relative,
    cut_of,
    remember,
    segment_attention,
    segment_attention_reference,
)

# (slots, segment, memory): dividing and not, memory shorter and longer than a segment, more than there is
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
    (50, 1, 3),  # several blocks of several segments each
    (61, 5, 8),
]


def inputs(slots, heads=2, d=3):
    generator = torch.Generator().manual_seed(slots)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    query, key, value = (draw(2, heads, slots, d) for _ in range(3))
    return query, key, value, draw(heads, slots, d), draw(heads, 1, d), draw(heads, 1, d)


def gradients_of(out, leaves):
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = torch.autograd.grad(out, leaves, upstream, allow_unused=True)
    return [torch.zeros(()) if g is None or not g.any() else g for g in gradients]


@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.parametrize(("slots", "segment", "memory"), CASES)
def test_blocked_equals_dense_with_all_gradients(slots, segment, memory, has_global):
    results = []
    cut = cut_of(slots + has_global, segment, memory, has_global)
    for function in (segment_attention, segment_attention_reference):
        query, key, value, distances, u, v = inputs(slots + has_global)
        # values are shared, gradients are not
        remembered = Keys(key.detach().clone().requires_grad_(), value.detach().clone().requires_grad_())
        out = function(query, Keys(key, value), remembered, Relative(distances, u, v), cut)
        results.append([out, *gradients_of(out, [query, key, value, *remembered, distances, u, v])])
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth)


@pytest.mark.parametrize("has_global", [True, False])
@pytest.mark.parametrize(("slots", "segment", "memory"), CASES)
def test_a_memory_with_gradient_is_plain_autograd_through_a_mask(slots, segment, memory, has_global):
    """Scores, mask and softmax written out, slot by slot, for one set of keys."""
    length = slots + has_global
    query, key, value, distances, u, v = inputs(length)
    scores = ((query + u) @ key.transpose(2, 3)) * 3**-0.5
    hidden = torch.ones(length, length, dtype=torch.bool)
    term = torch.zeros(2, 2, length, length, dtype=torch.float64)
    for i in range(length):
        start = i - (i - has_global) % segment  # of the segment slot i is in
        for j in range(length):
            if has_global and i == 0:
                hidden[i, j] = False
            elif j <= i and (j >= start - memory or (has_global and j == 0)):
                hidden[i, j] = False
                term[..., i, j] = ((query[:, :, i] + v[:, 0]) * distances[:, i - j]).sum(-1) * 3**-0.5
    expected = (scores + term).masked_fill(hidden, -torch.inf).softmax(-1) @ value
    leaves = [query, key, value, distances, u, v]
    cut = cut_of(length, segment, memory, has_global)
    ours = segment_attention(query, Keys(key, value), None, Relative(distances, u, v), cut)
    torch.testing.assert_close(ours, expected)
    for found, truth in zip(gradients_of(ours, leaves), gradients_of(expected, leaves), strict=True):
        torch.testing.assert_close(found, truth)


def literal_layer(model, block, x):
    """One layer of one image (L, D), segment after segment, with a memory whose gradient may stop."""
    attention, memory = block.attn, block.attn.memory
    heads, width = attention.heads, x.shape[1]
    d = width // heads
    w_query, w_key, w_value = attention.qkv.weight.chunk(3)
    r = model.distances @ attention.relative.weight.T

    def attend(queries, states, slots, keys, sees_all=False):
        """Queries (q, D) at slots over states (k, D) at key slots; one that sees all has no relative term."""
        read = []
        for q, slot in zip(queries @ w_query.T, slots, strict=True):
            parts = []
            for h in range(heads):
                part = slice(h * d, (h + 1) * d)
                scores = []
                for state, key in zip(states, keys, strict=True):
                    score = (q[part] + model.u[h, 0]) @ (w_key[part] @ state)
                    if not sees_all:
                        score = score + (q[part] + model.v[h, 0]) @ r[slot - key][part]
                    seen = sees_all or key <= slot
                    scores.append(score / d**0.5 if seen else torch.tensor(-torch.inf, dtype=x.dtype))
                weights = torch.stack(scores).softmax(0)
                parts.append(weights @ (states @ w_value[part].T))
            read.append(torch.cat(parts))
        return torch.stack(read)

    slots, first = list(range(len(x))), int(memory.has_global)
    outputs = [attend(x[:1], x, [0], slots, sees_all=True)] if memory.has_global else []
    remembered = x.new_zeros(0, width)
    segment = memory.segment or len(x)
    for start in range(first, len(x), segment):
        own = slots[start : start + segment]
        keys = [*slots[:first], *range(start - len(remembered), start), *own]
        kept = remembered if memory.gradient else remembered.detach()
        outputs.append(attend(x[own], torch.cat([x[:first], kept, x[own]]), own, keys))
        remembered = torch.cat([remembered, x[own]])[-memory.slots :]
    x = block.norm1(x + torch.cat(outputs) @ attention.proj.weight.T)
    return block.norm2(x + block.fc2(block.fc1(x).relu()))


def literal_model(model, tokens, readout):
    """Tokens of one image (L, D), class token first, moved by hand: to the middle, or the end, and back."""
    class_token, patches = tokens[:1], tokens[1:]
    before = {"first": 0, "mean": 0, "middle": len(patches) // 2, "last": len(patches)}[readout]
    x = torch.cat([patches[:before], class_token, patches[before:]])
    for block in model.blocks:
        x = literal_layer(model, block, x)
    patches = torch.cat([x[:before], x[before + 1 :]])
    answer = sum(patches) / len(patches) if readout == "mean" else x[before]
    return torch.cat([answer[None], patches])


@pytest.mark.parametrize("readout", ["first", "middle", "last", "mean"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    ("patches", "segment", "memory"), [(8, 3, 2), (7, 2, 5), (6, 3, 3), (6, 1, 2), (5, 2, 20), (6, None, 4)]
)
def test_a_whole_model_equals_the_recurrence_from_segment_to_segment(
    patches, segment, memory, gradient, readout
):
    torch.manual_seed(0)
    options = {"segment": segment, "memory": memory, "memory_gradient": gradient, "readout": readout}
    model = TransformerXL(Size(6, 2, 2), (1, patches), **options).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    tokens = torch.randn(1, patches + 1, 6, dtype=torch.float64, requires_grad=True)
    ours, truth = model(tokens)[0], literal_model(model, tokens[0], readout)
    torch.testing.assert_close(ours, truth)
    leaves = [tokens, *model.parameters()]
    upstream = torch.randn_like(truth)
    expected = torch.autograd.grad(truth, leaves, upstream)
    for found, each in zip(torch.autograd.grad(ours, leaves, upstream), expected, strict=True):
        torch.testing.assert_close(found, each)


@pytest.mark.parametrize(("depth", "memory"), [(1, 3), (2, 3), (3, 2)])
@pytest.mark.parametrize("gradient", [False, True])
def test_read_last_the_class_token_sees_depth_times_memory_slots(depth, memory, gradient):
    torch.manual_seed(0)
    options = {"segment": 1, "memory": memory, "memory_gradient": gradient, "readout": "last"}
    model = TransformerXL(Size(12, depth, 2), (3, 4), **options).double().eval()
    tokens = torch.randn(1, 13, 12, dtype=torch.float64)
    before = model(tokens)[0, 0]
    seen = []
    for patch in range(1, 13):
        other = tokens.clone()
        other[0, patch] += torch.randn(12, dtype=torch.float64)
        seen.append(bool((model(other)[0, 0] - before).abs().max() > 1e-12))
    assert seen == [False] * (12 - depth * memory) + [True] * (depth * memory)


@pytest.mark.parametrize("readout", ["first", "middle", "last", "mean"])
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(("segment", "memory"), [(1, 2), (1, 5), (3, 2), (4, 6), (20, 1), (None, 3)])
def test_the_class_token_alone_is_that_of_all_tokens(segment, memory, gradient, readout):
    torch.manual_seed(0)
    options = {"segment": segment, "memory": memory, "memory_gradient": gradient, "readout": readout}
    model = TransformerXL(Size(6, 2, 2), (2, 8), checkpointing=True, **options).double().eval()
    tokens = torch.randn(2, 17, 6, dtype=torch.float64, requires_grad=True)
    alone, whole = model.class_token(tokens), model(tokens)[:, 0]
    torch.testing.assert_close(alone, whole)
    leaves = [tokens, *model.parameters()]
    for found, truth in zip(gradients_of(alone, leaves), gradients_of(whole, leaves), strict=True):
        torch.testing.assert_close(found, truth)


@pytest.mark.parametrize(("segment", "expected"), [(1, [7, 4]), (4, [9, 5]), (None, [17, 17])])
def test_for_a_class_token_that_is_last_only_slots_that_reach_it_are_computed(segment, expected):
    """Of 17 slots the last block is given 1 + 3, and the first 1 + 3 + 3; in segments of 4, whole ones."""
    model = TransformerXL(Size(6, 2, 2), (2, 8), segment=segment, memory=3, readout="last")
    lengths = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    model.class_token(torch.randn(1, 17, 6))
    assert lengths == expected


def test_a_memory_passes_its_gradient_on_only_if_asked():
    """One layer, segments of one slot: patches reach a last class token through the memory alone."""
    found = []
    for gradient in (False, True):
        options = {"segment": 1, "memory": 3, "memory_gradient": gradient, "readout": "last"}
        torch.manual_seed(0)
        model = TransformerXL(Size(12, 1, 2), (2, 3), **options).double().eval()
        tokens = torch.randn(1, 7, 12, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(model(tokens)[0, 0].square().sum(), tokens)
        found.append(grad.abs().amax(-1)[0].gt(0).tolist())
    assert found == [[True] + [False] * 6, [True, False, False, False, True, True, True]]


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


@pytest.mark.parametrize(("option", "value"), [("segment", 0), ("segment", -1), ("memory", 0)])
def test_impossible_lengths_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option} must be at least 1.*got {value}"):
        TransformerXL(Size(6, 1, 2), (2, 2), **{option: value})
