"""Backbones against other implementations: torch's encoder layer for ViT, loops for Transformer-XL."""

import math

import pytest
import torch
from torch import nn

from reorder.models.backbones import BACKBONES, SIZES, Size, TransformerXL, ViT
from reorder.models.layers import DropPath, drop_path_rates

SMALL = Size(width=12, depth=2, heads=3)


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_map_tokens_to_tokens(name):
    tokens = torch.randn(2, 7, 12)
    assert BACKBONES[name](SMALL, (2, 3))(tokens).shape == tokens.shape


def test_sizes_are_the_table_of_the_design():
    assert SIZES == {
        "mini": (64, 4, 4),
        "tiny": (192, 12, 3),
        "small": (384, 12, 6),
        "base": (768, 12, 12),
        "large": (1024, 24, 16),
    }


def test_vit_equals_torchs_encoder_layers_with_copied_weights():
    torch.manual_seed(0)
    vit = ViT(SMALL, (2, 3)).double().eval()
    layers = []
    for block in vit.blocks:
        for parameter in block.parameters():
            nn.init.normal_(parameter)
        layer = nn.TransformerEncoderLayer(
            12,
            3,
            48,
            0.0,
            "gelu",
            layer_norm_eps=1e-6,
            batch_first=True,
            norm_first=True,
            dtype=torch.float64,
        )
        pairs = {
            layer.self_attn.in_proj_weight: block.attn.qkv.weight,
            layer.self_attn.in_proj_bias: block.attn.qkv.bias,
            layer.self_attn.out_proj.weight: block.attn.proj.weight,
            layer.self_attn.out_proj.bias: block.attn.proj.bias,
        }
        modules = [("linear1", block.mlp.fc1), ("linear2", block.mlp.fc2)]
        modules += [("norm1", block.norm1), ("norm2", block.norm2)]
        for name, ours in modules:
            pairs[getattr(layer, name).weight] = ours.weight
            pairs[getattr(layer, name).bias] = ours.bias
        with torch.no_grad():
            for theirs, ours in pairs.items():
                theirs.copy_(ours)
        layers.append(layer)
    tokens = torch.randn(2, 7, 12, dtype=torch.float64)
    expected = tokens
    for layer in layers:
        expected = layer(expected)
    torch.testing.assert_close(vit(tokens), expected)


@pytest.mark.parametrize("readout", ["first", "middle", "last"])
def test_vit_does_not_care_where_its_class_token_stands(readout):
    torch.manual_seed(0)
    model = ViT(SMALL, (2, 3), readout=readout).double().eval()
    tokens = torch.randn(2, 7, 12, dtype=torch.float64)
    slots = {"first": [0, 1, 2, 3, 4, 5, 6], "middle": [1, 2, 3, 0, 4, 5, 6], "last": [1, 2, 3, 4, 5, 6, 0]}
    moved = tokens[:, slots[readout]]
    for block in model.blocks:
        moved = block(moved)
    expected = torch.empty_like(moved)
    expected[:, slots[readout]] = moved
    torch.testing.assert_close(model(tokens), expected)


@pytest.mark.parametrize("name", BACKBONES)
def test_with_mean_the_first_token_is_the_mean_of_the_others(name):
    torch.manual_seed(0)
    out = BACKBONES[name](SMALL, (2, 3), readout="mean")(torch.randn(2, 7, 12))
    torch.testing.assert_close(out[:, 0], sum(out[:, patch] for patch in range(1, 7)) / 6)
    assert not torch.allclose(out[:, 0], out[:, 1])


@pytest.mark.parametrize("name", BACKBONES)
def test_an_unknown_readout_is_named(name):
    with pytest.raises(ValueError, match=r"unknown readout 'end'; choose from \['first', 'middle'"):
        BACKBONES[name](SMALL, (2, 3), readout="end")


def literal_attention(attention, x, table, u, v):
    """Relative attention of one image (L, D) by loops over heads, queries and keys; slot 0 is the class."""
    length, width = x.shape
    d = width // attention.heads
    q, k, value = (attention.qkv.weight @ x.T).T.chunk(3, dim=1)
    r = (attention.relative.weight @ table.T).T  # row = distance
    read = torch.zeros_like(x)
    for head in range(attention.heads):
        part = slice(head * d, (head + 1) * d)
        for i in range(length):
            scores = {}
            for j in range(length):
                content = (q[i, part] + u[head, 0]) @ k[j, part]
                if i == 0:
                    scores[j] = content / math.sqrt(d)
                elif j <= i:
                    scores[j] = (content + (q[i, part] + v[head, 0]) @ r[i - j, part]) / math.sqrt(d)
            total = sum(math.exp(s) for s in scores.values())
            read[i, part] = sum(math.exp(s) / total * value[j, part] for j, s in scores.items())
    return read @ attention.proj.weight.T


def test_transformer_xl_equals_its_equations_written_as_loops():
    torch.manual_seed(0)
    model = TransformerXL(SMALL, (2, 3)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    tokens = torch.randn(2, 7, 12, dtype=torch.float64)
    with torch.no_grad():
        for image, ours in zip(tokens, model(tokens), strict=True):
            x = image
            for block in model.blocks:
                x = block.norm1(x + literal_attention(block.attn, x, model.distances, model.u, model.v))
                hidden = (block.fc1(x)).clamp(min=0)
                x = block.norm2(x + block.fc2(hidden))
            torch.testing.assert_close(ours, x)


def test_transformer_xl_is_causal_except_for_the_class_token():
    model = TransformerXL(Size(12, 1, 3), (2, 3)).double().eval()
    tokens = torch.randn(1, 7, 12, dtype=torch.float64)
    before = model(tokens)
    for changed in range(7):
        other = tokens.clone()
        other[0, changed] += torch.randn(12, dtype=torch.float64)
        moved = (model(other) - before).abs().amax(-1)[0] > 1e-12
        reached = [slot == 0 or changed == 0 or slot >= changed for slot in range(7)]
        assert moved.tolist() == reached


@pytest.mark.parametrize("name", BACKBONES)
def test_checkpointing_changes_no_gradient(name):
    tokens = torch.randn(2, 7, 12)
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = BACKBONES[name](SMALL, (2, 3), dropout=0.1, checkpointing=checkpointing)
        model(tokens).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", BACKBONES)
def test_dropout_is_active_in_training_only(name):
    tokens = torch.randn(2, 7, 12)
    model = BACKBONES[name](SMALL, (2, 3), dropout=0.5)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_stochastic_depth_drops_whole_images_and_keeps_the_mean():
    torch.manual_seed(0)
    drop = DropPath(0.25)
    out = drop(torch.ones(4000, 2, 3))
    assert {round(v, 4) for v in out.unique().tolist()} == {0.0, round(1 / 0.75, 4)}
    assert (out == out[:, :1, :1]).all()
    assert out.mean().item() == pytest.approx(1, abs=0.05)
    assert drop.eval()(torch.ones(1, 2, 3)).eq(1).all()
    assert drop_path_rates(0.3, 4) == pytest.approx([0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize("name", ["vit", "transformer_xl"])
def test_width_must_divide_into_heads(name):
    with pytest.raises(ValueError, match="width 10 is not divisible by 3 heads"):
        BACKBONES[name](Size(10, 1, 3), (2, 2))


def test_too_many_tokens_for_the_table_of_distances_are_refused():
    with pytest.raises(ValueError, match="9 tokens given; the table holds distances for 7"):
        TransformerXL(SMALL, (2, 3))(torch.zeros(1, 9, 12))
