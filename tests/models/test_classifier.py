"""Whole models: the paper's parameter counts, its proposition, and names others rely on."""

import pytest
import torch

import reorder

# The paper's table of models, at 224x224 pixels in patches of 16, 3 channels, 1000 classes.
PARAMETERS = {
    ("vit", "base"): 86_570_728,
    ("vit", "large"): 304_330_216,
    ("transformer_xl", "base"): 93_764_584,
    ("transformer_xl", "large"): 329_601_512,
    ("mamba", "base"): 85_036_264,
    ("mamba", "large"): 297_041_352,
    # The paper's Longformers have fixed positions (107,683,048 and 379,702,760); ours are learned by default.
    ("longformer", "base"): 107_834_344,
    ("longformer", "large"): 379_904_488,
}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "size"), PARAMETERS)
def test_parameter_counts_are_the_papers(name, size):
    with torch.device("meta"):
        model = reorder.create_model(name, size)
    assert count(model) == PARAMETERS[name, size]


def test_the_papers_longformers_have_fixed_positions():
    with torch.device("meta"):
        models = [reorder.create_model("longformer", size, positions="sincos") for size in ("base", "large")]
    assert [count(model) for model in models] == [107_683_048, 379_702_760]


MODELS = ["vit", "transformer_xl", "longformer", "mamba"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", ["mini", "tiny", "small", "base", "large"])
def test_every_size_can_be_built_for_any_rectangle_and_channels(name, size):
    with torch.device("meta"):
        model = reorder.create_model(name, size, image_size=(64, 96), patch_size=8, channels=5, classes=7)
    assert model.grid == (8, 12)
    assert model.head.out_features == 7
    assert model.tokens.patch_embed.proj.in_features == 5 * 8 * 8


def logits_in_two_orders(name):
    torch.manual_seed(0)
    model = reorder.create_model(name, "mini", image_size=(16, 24), patch_size=4, classes=5).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # far from the symmetric start
    images = torch.randn(3, 3, 16, 24, dtype=torch.float64)
    order = torch.randperm(24)
    with torch.no_grad():
        return (
            model(images),
            model(images, order),
            model(images, torch.stack([order, torch.arange(24), order])),
        )


def test_vit_does_not_depend_on_the_order():
    # Proposition 1 of the paper: self-attention is permutation-equivariant.
    raster, ordered, each = logits_in_two_orders("vit")
    torch.testing.assert_close(raster, ordered, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(raster, each, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS[1:])
def test_the_other_three_depend_on_the_order_image_by_image(name):
    raster, ordered, each = logits_in_two_orders(name)
    assert (raster - ordered).abs().amax(1).min() > 1e-4
    torch.testing.assert_close(each[[0, 2]], ordered[[0, 2]])
    torch.testing.assert_close(each[1], raster[1])


def test_vit_parameters_are_named_as_in_timm():
    model = reorder.create_model("vit", "mini", image_size=8, patch_size=4, classes=2)
    names = {name.removeprefix("backbone.").removeprefix("tokens.") for name, _ in model.named_parameters()}
    block = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    expected = {
        f"blocks.{i}.{part}.{kind}" for i in range(4) for part in block for kind in ("weight", "bias")
    }
    expected |= {"cls_token", "pos_embed", "norm.weight", "norm.bias", "head.weight", "head.bias"}
    assert expected == {name for name in names if not name.startswith("patch_embed.")}


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in MODELS), ("transformer_xl", {"segment": 2})]
)
def test_models_work_in_float64_and_bfloat16(name, options):
    model = reorder.create_model(name, "mini", image_size=8, patch_size=4, classes=2, **options)
    images = torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images, torch.tensor([3, 1, 0, 2]))
    logits.float().square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.double()(images.double()).dtype == torch.float64


def test_mambas_vertical_scans_can_follow_the_order():
    torch.manual_seed(0)
    make = {"name": "mamba", "size": "mini", "image_size": (8, 12), "patch_size": 4, "classes": 3}
    by_grid, by_order = (reorder.create_model(**make, vertical=v).double().eval() for v in ("grid", "order"))
    by_order.load_state_dict(by_grid.state_dict())
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    torch.testing.assert_close(by_order(images), by_grid(images))  # in raster the two are the same
    order = torch.tensor([5, 0, 4, 1, 3, 2])
    assert (by_order(images, order) - by_grid(images, order)).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "resnet"}, "unknown model 'resnet'; choose from vit, transformer_xl, longformer, mamba"),
        ({"size": "huge"}, "unknown size 'huge'; choose from mini, tiny, small, base, large"),
        ({"image_size": 30}, "image size 30x30 is not divisible by patch size 16"),
        ({"window": 3}, "unknown option 'window' of model vit; choose from positions, pixel_norm, dropout"),
        ({"classes": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        reorder.create_model(**({"name": "vit", "size": "mini", "image_size": 32} | arguments))


@pytest.mark.parametrize("name", ["vit", "transformer_xl"])
@pytest.mark.parametrize(("size", "std"), [("mini", 1 / 8), ("tiny", 0.02)])
def test_a_narrow_model_starts_with_weights_that_keep_the_scale_of_its_inputs(name, size, std):
    torch.manual_seed(0)
    model = reorder.create_model(name, size, 28, 4, channels=1, classes=100)
    drawn = {
        name: p.std().item() for name, p in model.named_parameters() if p.std() > 0 and "norm" not in name
    }
    assert {"tokens.pos_embed", "tokens.patch_embed.proj.weight", "head.weight"} <= drawn.keys()
    assert drawn == {name: pytest.approx(std, rel=0.3) for name in drawn}


@pytest.mark.parametrize(("segment", "memory"), [(1, 3), (4, 3), (None, 3)])
def test_patches_that_cannot_reach_the_answer_are_not_embedded_and_change_nothing(segment, memory):
    """4 x 6 patches; two blocks that remember 3 slots see the last 6, or whole segments of 4."""
    torch.manual_seed(0)
    options = {"segment": segment, "memory": memory, "readout": "last"}
    model = reorder.create_model("transformer_xl", "16/2/2", (8, 12), 2, 1, 5, **options).double().eval()
    images, order = torch.randn(3, 1, 8, 12, dtype=torch.float64), torch.randperm(24)
    embedded = []
    model.tokens.patch_embed.proj.register_forward_hook(lambda *call: embedded.append(call[2].shape[1]))
    found = model(images, order)
    assert embedded == [{1: 6, 4: 8, None: 24}[segment]]
    tokens = model.backbone(model.tokens(images, order))
    torch.testing.assert_close(found, model.head(model.norm(tokens[:, 0])))
    orders = torch.stack([torch.randperm(24) for _ in range(3)])
    tokens = model.backbone(model.tokens(images, orders))
    torch.testing.assert_close(model(images, orders), model.head(model.norm(tokens[:, 0])))
