"""Anybody's sequence models as backbones: what they see, what they are given, and what is refused."""

import json

import pytest
import torch
from torch import nn

import reorder
from reorder.models.external import External, external

SIZE = "32/2/4"
SHAPES = {"image_size": (4, 6), "patch_size": 2, "channels": 1, "classes": 3}  # 2 x 3 patches
TYPES = {  # model types, and settings that make them small
    "gpt2": {},
    "mamba": {},
    "mamba2": {"chunk_size": 4},
    "mistral": {"sliding_window": 3},
    "longformer": {"attention_window": 4},
    "rwkv": {},
    "xlstm": {},
}


def build(backbone, seed=0, **options):
    torch.manual_seed(seed)
    return reorder.create_model(backbone, SIZE, **SHAPES, **options).eval()


def images(seed=0):
    return torch.randn(3, 1, 4, 6, generator=torch.Generator().manual_seed(seed))


ORDER = torch.tensor([4, 1, 5, 0, 3, 2])


def change(model, order=ORDER):
    """The largest change of a logit when images are read in an order."""
    with torch.no_grad():
        return (model(images(), order) - model(images())).abs().max().item()


@pytest.mark.parametrize("kind", TYPES)
def test_hugging_faces_sequence_models_care_about_the_order(kind):
    model = build(f"hf:{kind}", **TYPES[kind])
    with torch.no_grad():
        raster, each = model(images()), model(images(), torch.stack([ORDER, torch.arange(6), ORDER]))
        ordered = model(images(), ORDER)
    assert raster.shape == (3, 3)
    assert change(model) > 1e-3
    torch.testing.assert_close(each[1], raster[1])
    torch.testing.assert_close(each[[0, 2]], ordered[[0, 2]])
    assert model.backbone.width == 32


def encoder(**options):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def test_full_attention_without_positions_of_slots_does_not_care():
    torch.manual_seed(0)
    assert change(build(encoder())) < 1e-5
    assert change(build("hf:bert", slot_positions=False)) < 1e-5
    assert change(build("hf:bert")) > 1e-3


def test_slot_positions_are_zero_and_stay_so():
    model = build("hf:gpt2", slot_positions=False)
    table = model.backbone.module.wpe.weight
    assert not table.any()
    assert not table.requires_grad
    assert change(model) > 1e-3  # it is causal all the same


class Sum(nn.Module):
    """A causal model by hand: the sum of all tokens so far."""

    def forward(self, tokens):
        return tokens.cumsum(1)


@pytest.mark.parametrize(
    ("readout", "seen"), [("first", [0]), ("middle", [1, 2, 0]), ("last", [1, 2, 3, 4, 0])]
)
def test_the_class_token_stands_where_the_readout_says(readout, seen):
    tokens = torch.randn(2, 5, 7)
    read = External(Sum(), 7, readout)(tokens)
    torch.testing.assert_close(read[:, 0], tokens[:, seen].sum(1))


def test_the_mean_readout_is_the_mean_of_the_patches():
    tokens = torch.randn(2, 3, 7)
    read = External(Sum(), 7, "mean")(tokens)
    torch.testing.assert_close(read[:, 0], tokens[:, 0] + tokens[:, 1] + 0.5 * tokens[:, 2])


def test_by_default_a_causal_model_sees_all_patches():
    with torch.no_grad():
        model = build("hf:gpt2")
        assert not torch.allclose(model(images(0)), model(images(1)), atol=1e-3)
        model = build("hf:gpt2", readout="first")
        torch.testing.assert_close(model(images(0)), model(images(1)))


def test_a_model_with_a_head_is_read_below_it():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=32, n_layer=2, n_head=4, n_positions=16)).eval()
    before = {name: value.clone() for name, value in gpt2.state_dict().items()}
    model = build(gpt2)
    tokens = model.tokens(images(), ORDER)
    hidden = gpt2.transformer(inputs_embeds=torch.cat([tokens[:, 1:], tokens[:, :1]], 1)).last_hidden_state
    torch.testing.assert_close(model(images(), ORDER), model.head(model.norm(hidden[:, -1])))
    assert all(torch.equal(gpt2.state_dict()[name], value) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in gpt2.parameters())  # somebody else's: left alone


@pytest.mark.parametrize(
    ("module", "width"),
    [
        (lambda: encoder(), 16),
        (lambda: nn.LSTM(12, 12, batch_first=True), 12),
        (lambda: nn.Sequential(nn.Linear(8, 20), nn.Linear(20, 8)), 8),
    ],
)
def test_the_width_of_a_module_is_found(module, width):
    module = module().train()
    model = build(module)
    assert model.backbone.width == model.head.in_features == width
    assert model(images()).shape == (3, 3)


def test_looking_for_the_width_draws_nothing_and_changes_no_mode():
    class Noisy(nn.Linear):
        def forward(self, tokens):
            assert not self.training
            return super().forward(tokens) + torch.rand(())

    module = Noisy(8, 8).train()
    torch.manual_seed(3)
    assert external(module, 5).width == 8
    drawn = torch.rand(())
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(()))
    assert module.training


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        (nn.Identity(), {}, r"cannot find the width of Identity.*give D as width=\.\.\."),
        (nn.LSTM(8, 8), {}, r"LSTM mixes the images of a batch: it must read \(B, L, D\), batch first"),
        (nn.Linear(8, 4), {}, "cannot find the width of Linear"),
        (
            nn.Linear(8, 4),
            {"width": 8},
            r"Linear maps tokens of shape \(2, 7, 8\) to \(2, 7, 4\), not to tokens of",
        ),
        (nn.Linear(8, 8), {"width": 9}, r"Linear cannot read tokens of shape \(2, 7, 9\): mat1 and mat2"),
        (nn.Linear(8, 8), {"readout": "end"}, "unknown readout 'end'"),
        (
            nn.Linear(8, 8),
            {"window": 2},
            "unknown option 'window' of a module as backbone; "
            "choose from positions, pixel_norm, readout, width",
        ),
        ("hf:gpt3", {}, r"hf:gpt3 is not a model type \(gptj, gpt2, .*\), a config.json or OWNER/NAME"),
        ("hf:gpt2", {"hidden_sise": 3}, "hf:gpt2: unknown option 'hidden_sise'; choose .* hidden_size"),
        ("hf:gpt2", {"n_head": 5}, "cannot build hf:gpt2: .*"),
        ("hf:gpt2", {"n_head": "four"}, "hf:gpt2: .*expected int, got str"),
        ("hf:gpt2", {"n_positions": 3}, r"GPT2Model cannot read tokens of shape \(2, 7, 32\)"),
        ("hf:gpt2", {"pretrained": 1}, "'pretrained' of model hf:gpt2 must be true or false, got 1"),
        ("hf:mamba", {"slot_positions": False}, "hf:mamba has no table of positions"),
        ("hf:vit", {}, "hf:vit does not read tokens: ViTModel has no argument inputs_embeds"),
        ("hf:", {}, "unknown model 'hf:'"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(module, options, said):
    with pytest.raises(ValueError, match=said) as error:
        build(module, **options)
    assert "\n" not in str(error.value)


def test_sizes_go_by_the_names_of_each_configuration():
    config = build("hf:gpt2").backbone.module.config
    assert (config.n_embd, config.n_layer, config.n_head, config.vocab_size) == (32, 2, 4, 1)
    config = build("hf:mistral", num_key_value_heads=2).backbone.module.config
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (32, 4, 2)
    assert config.intermediate_size == 128


def test_a_configuration_file_keeps_its_numbers_but_for_the_options(tmp_path):
    settings = {"model_type": "gpt2", "n_embd": 20, "n_layer": 1, "n_head": 2, "n_positions": 9}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    for name in (tmp_path, tmp_path / "config.json"):
        model = build(f"hf:{name}", hidden_size=24)
        config = model.backbone.module.config
        assert (config.n_embd, config.n_layer, config.n_head, config.n_positions) == (24, 1, 2, 9)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "new"}))
    with pytest.raises(ValueError, match="its model_type is 'new', which is not known here"):
        build(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not a model type") as error:
        build(f"hf:{tmp_path}")
    assert "\n" not in str(error.value)


def test_pretrained_weights_are_those_of_the_directory(tmp_path):
    from transformers import MambaConfig, MambaModel

    torch.manual_seed(1)
    saved = MambaModel(MambaConfig(vocab_size=7, hidden_size=24, num_hidden_layers=1))
    saved.save_pretrained(tmp_path)
    loaded = build(f"hf:{tmp_path}", pretrained=True).backbone.module.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in saved.state_dict().items())
    drawn = build(f"hf:{tmp_path}").backbone.module.state_dict()
    assert not torch.equal(drawn["layers.0.mixer.in_proj.weight"], loaded["layers.0.mixer.in_proj.weight"])


@pytest.mark.parametrize("kind", [*TYPES, "bert"])
def test_every_parameter_that_learns_gets_a_gradient(kind):
    model = build(f"hf:{kind}", **TYPES.get(kind, {})).train()
    model(images(), ORDER).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
    assert model.tokens.patch_embed.proj.weight.grad.abs().max() > 0


def test_evaluation_leaves_the_weights_of_rwkv_alone():
    torch.manual_seed(0)
    model = reorder.create_model("hf:rwkv", "16/7/1", **SHAPES).train()  # it would change the seventh block
    with torch.no_grad():
        trained = model(images())
        before = {name: value.clone() for name, value in model.state_dict().items()}
        torch.testing.assert_close(model.eval()(images()), trained)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


def test_a_learner_gets_its_gradient_through_a_backbone_of_anybody():
    learner = reorder.OrderLearner(grid=(2, 3), total_steps=10, warmup_fraction=0.0)
    losses = torch.nn.functional.cross_entropy(
        build("hf:mamba")(images(), learner.sample(0)), torch.tensor([0, 1, 2]), reduction="none"
    )
    (losses.mean() + learner.loss(losses)).backward()
    assert learner.policy.logits.grad.abs().max() > 0
