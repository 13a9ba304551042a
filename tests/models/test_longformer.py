"""The Longformer backbone against Hugging Face's, with its weights copied in."""

import shutil

import pytest
import torch
import transformers
from torch import Tensor, nn

from reorder.models.longformer import Longformer
from reorder.models.sizes import SIZES, Size

SMALL = Size(width=24, depth=2, heads=3)
GRID = (1, 1)


def hugging_face_model(size: Size, window: int) -> nn.Module:
    """A LongformerModel without positions, so that its embeddings are a token type and a LayerNorm."""
    config = transformers.LongformerConfig(
        hidden_size=size.width,
        num_hidden_layers=size.depth,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        attention_window=[window] * size.depth,
        layer_norm_eps=1e-5,
        vocab_size=2,
        max_position_embeddings=512,
        type_vocab_size=1,
        pad_token_id=1,
    )
    torch.manual_seed(0)
    model = transformers.LongformerModel(config, add_pooling_layer=False).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    nn.init.zeros_(model.embeddings.position_embeddings.weight)
    return model


def hugging_face_name(name: str) -> str:
    """What Hugging Face calls our parameter `name`."""
    if name == "token_type":
        return "embeddings.token_type_embeddings.weight"
    if name.startswith("norm."):
        return f"embeddings.LayerNorm.{name.removeprefix('norm.')}"
    _, number, name = name.split(".", 2)
    for ours, theirs in {
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "attention.": "attention.self.",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm": "output.LayerNorm",
    }.items():
        if name.startswith(ours):
            return f"encoder.layer.{number}.{theirs}{name.removeprefix(ours)}"
    raise KeyError(name)


def with_hugging_face_weights(peer: nn.Module, size: Size, window: int, readout: str = "first") -> Longformer:
    model = Longformer(size, GRID, window=window, readout=readout).double().eval()
    model.load_state_dict({name: peer.get_parameter(hugging_face_name(name)) for name in model.state_dict()})
    return model


def peer_output(peer: nn.Module, tokens: Tensor, has_global: bool = True) -> Tensor:
    """Pads to the window, and masks what it padded, by itself."""
    attention = torch.ones(tokens.shape[:2])
    is_global = torch.zeros(tokens.shape[:2])
    is_global[:, 0] = has_global
    return peer(
        inputs_embeds=tokens, attention_mask=attention, global_attention_mask=is_global
    ).last_hidden_state


@pytest.mark.parametrize(
    ("window", "length"),
    [(4, 1), (4, 2), (4, 60), (6, 30), (6, 44), (6, 120), (14, 84), (14, 83), (14, 197), (64, 50), (64, 200)],
)
def test_outputs_and_gradients_equal_hugging_face(window, length):
    """Down to a window of 4: Hugging Face's fails at 2, which the tests of the kernel cover."""
    peer = hugging_face_model(SMALL, window)
    model = with_hugging_face_weights(peer, SMALL, window)
    tokens = torch.randn(2, length, SMALL.width, dtype=torch.float64, requires_grad=True)
    ours, truth = model(tokens), peer_output(peer, tokens)
    # Hugging Face's softmax is in single precision whatever its input.
    torch.testing.assert_close(ours, truth, atol=1e-5, rtol=1e-5)
    upstream = torch.randn_like(truth)
    names = ["", *dict(model.named_parameters())]
    ours = torch.autograd.grad(ours, [tokens, *model.parameters()], upstream)
    theirs = [peer.get_parameter(hugging_face_name(name)) for name in names[1:]]
    truth = torch.autograd.grad(truth, [tokens, *theirs], upstream)
    for name, found, expected in zip(names, ours, truth, strict=True):
        torch.testing.assert_close(
            found, expected, atol=1e-5 * max(1.0, expected.abs().max().item()), rtol=1e-5, msg=name
        )


@pytest.mark.parametrize("readout", ["middle", "last", "mean"])
@pytest.mark.parametrize(("window", "length"), [(4, 2), (4, 61), (14, 84)])
def test_without_a_global_token_it_is_hugging_faces_with_the_class_token_moved(window, length, readout):
    peer = hugging_face_model(SMALL, window)
    model = with_hugging_face_weights(peer, SMALL, window, readout)
    tokens = torch.randn(2, length, SMALL.width, dtype=torch.float64)
    ours = model(tokens)
    before = {"middle": (length - 1) // 2, "last": length - 1, "mean": 0}[readout]
    slots = list(range(1, length))
    slots.insert(before, 0)  # the token in each slot
    truth = torch.empty_like(ours)
    truth[:, slots] = peer_output(peer, tokens[:, slots], has_global=False)
    if readout == "mean":
        truth[:, 0] = sum(truth[:, patch] for patch in range(1, length)) / (length - 1)
    torch.testing.assert_close(ours, truth, atol=1e-5, rtol=1e-5)


def test_read_last_the_class_token_sees_half_a_window_per_layer():
    torch.manual_seed(0)
    model = Longformer(SMALL, GRID, window=6, readout="last").double().eval()
    tokens = torch.randn(1, 15, SMALL.width, dtype=torch.float64)
    before = model(tokens)[0, 0]
    seen = []
    for patch in range(1, 15):
        other = tokens.clone()
        other[0, patch] += torch.randn(SMALL.width, dtype=torch.float64)
        seen.append(bool((model(other)[0, 0] - before).abs().max() > 1e-12))
    assert seen == [False] * 8 + [True] * 6


@pytest.mark.parametrize("readout", ["middle", "last", "mean"])
def test_without_a_global_token_no_parameter_is_left_unused(readout):
    model = Longformer(SMALL, GRID, readout=readout)
    assert not any("global" in name for name, _ in model.named_parameters())
    model(torch.randn(2, 9, SMALL.width))[:, 0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_every_parameter_of_hugging_faces_encoder_is_used():
    peer = hugging_face_model(SMALL, 14)
    names = {hugging_face_name(name) for name, _ in Longformer(SMALL, GRID).named_parameters()}
    unused = {name for name, _ in peer.named_parameters()} - names
    assert unused == {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"}


@pytest.mark.parametrize(
    ("name", "count"), [("base", 12 * 8_859_648 + 2_304), ("large", 24 * 15_745_024 + 3_072)]
)
def test_parameter_count(name, count):
    with torch.device("meta"):
        model = Longformer(SIZES[name], (14, 14))
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(("size", "std"), [("mini", 1 / 8), ("tiny", 0.02)])
def test_initial_weights_are_normal_and_biases_zero(size, std):
    torch.manual_seed(0)
    model = Longformer(SIZES[size], GRID)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1.0 if name.endswith("weight") else 0.0)).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            assert parameter.std().item() == pytest.approx(std, rel=0.3), name


def gradients(model: nn.Module, tokens: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(model(tokens).square().sum(), list(model.parameters())))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_checkpointing_changes_nothing(dropout):
    torch.manual_seed(0)
    plain = Longformer(SMALL, GRID, dropout=dropout, drop_path=dropout).double()
    saving = Longformer(SMALL, GRID, dropout=dropout, drop_path=dropout, checkpointing=True).double()
    saving.load_state_dict(plain.state_dict())
    tokens = torch.randn(2, 90, SMALL.width, dtype=torch.float64)
    torch.manual_seed(1)
    expected = gradients(plain, tokens)
    torch.manual_seed(1)
    for found, other in zip(gradients(saving, tokens), expected, strict=True):
        torch.testing.assert_close(found, other)


@pytest.mark.slow
def test_compiles_without_a_break():
    torch.manual_seed(0)
    model = Longformer(SMALL, GRID, dropout=0.0)
    tokens = torch.randn(2, 90, SMALL.width)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), model(tokens), atol=1e-5, rtol=1e-5)
    for found, expected in zip(gradients(compiled, tokens), gradients(model, tokens), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_computes_the_same():
    torch.manual_seed(0)
    model = Longformer(SMALL._replace(depth=1), GRID).eval()
    tokens = torch.randn(2, 90, SMALL.width)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True)(tokens)
        torch.testing.assert_close(compiled, model(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("length", [20, 90])
def test_autocast_is_close_to_single_precision(length):
    torch.manual_seed(0)
    model = Longformer(SMALL, GRID).eval()
    tokens = torch.randn(2, length, SMALL.width)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(tokens)
    torch.testing.assert_close(low.float(), model(tokens), atol=0.05, rtol=0.05)
    low.float().square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters()
    )


@pytest.mark.parametrize("window", [2, 6])
def test_patches_see_their_window_and_the_class_token_sees_all(window):
    """One layer: which outputs a token's input can change."""
    torch.manual_seed(0)
    model = Longformer(SMALL._replace(depth=1), GRID, window=window).double().eval()
    tokens = torch.randn(1, 80, SMALL.width, dtype=torch.float64)
    moved = tokens.clone()
    moved[0, 50, 0] += 1
    changed = (model(moved) - model(tokens)).abs().amax((0, 2)) > 0
    assert changed.nonzero().flatten().tolist() == [0, *range(50 - window // 2, 51 + window // 2)]
    moved = tokens.clone()
    moved[0, 0, 0] += 1
    assert (model(moved) - model(tokens)).abs().amax((0, 2)).gt(0).all()


def test_dropout_only_in_training():
    torch.manual_seed(0)
    model = Longformer(SMALL, GRID, dropout=0.2, drop_path=0.2)
    tokens = torch.randn(2, 60, SMALL.width)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_dropped_path_leaves_the_residual():
    """With every branch of the last layer dropped, it is two LayerNorms."""
    torch.manual_seed(0)
    model = Longformer(SMALL._replace(depth=2), GRID, dropout=0.0, drop_path=1 - 1e-6)
    tokens = torch.randn(2, 60, SMALL.width)
    first = model.layers[0](model.norm(tokens + model.token_type))
    last = model.layers[1]
    torch.testing.assert_close(model(tokens), last.norm(last.attention_norm(first)))


@pytest.mark.parametrize("window", [0, -4, 13])
def test_bad_window_is_named(window):
    with pytest.raises(ValueError, match=f"not {window}"):
        Longformer(SMALL, GRID, window=window)


def test_width_must_divide_into_heads():
    with pytest.raises(ValueError, match="width 24 is not divisible by 5 heads"):
        Longformer(SMALL._replace(heads=5), GRID)
