"""Attention coverage against the maps that theory gives."""

import json

import pytest
import torch

import reorder
from reorder.models import coverage as analysis
from reorder.models.sizes import Size

SIDE = 7  # 224 pixels in patches of 32: 49 patches and a class token


@pytest.fixture(scope="module")
def found():
    return analysis.coverage()


def as_list(found, name):
    model = found["models"][name]
    return [model["class_token"], *(count for row in model["patches"] for count in row)]


@pytest.mark.parametrize("name", ["vit", "mamba"])
def test_every_token_attends_to_every_token(found, name):
    assert as_list(found, name) == [50] * 50


def test_transformer_xl_is_a_triangle_with_the_class_tokens_row_and_column(found):
    # The patch in slot j is seen by the class token and by the patches in slots j ... 49.
    assert as_list(found, "transformer_xl") == [50] + [1 + 50 - slot for slot in range(1, 50)]


def test_longformer_is_a_window_and_the_class_token(found):
    # A patch is seen by the class token and by the patches at most seven slots away.
    expected = [1 + sum(1 for other in range(1, 50) if abs(other - slot) <= 7) for slot in range(1, 50)]
    assert as_list(found, "longformer") == [50, *expected]
    assert expected[:2] + expected[23:25] == [9, 10, 16, 16]


@pytest.mark.parametrize("readout", ["first", "middle", "last", "mean", "last_patch"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("longformer", {"window": 4}), ("transformer_xl", {"segment": 3, "memory": 2, "memory_gradient": True})],
)
def test_what_attends_to_what_is_what_gradients_say(name, options, readout):
    torch.manual_seed(0)
    model = reorder.create_model(name, Size(12, 1, 3), 32, 4, classes=2, readout=readout, **options).eval()
    images = torch.randn(1, 3, 32, 32)
    tokens = model.tokens(images).detach()
    assert torch.equal(analysis._by_gradient(model.backbone, tokens), analysis.attends(model, images))


@pytest.mark.parametrize("name", ["longformer", "transformer_xl"])
def test_a_class_token_that_is_read_last_attends_to_the_slots_before_it(name):
    options = {"longformer": {"window": 4}, "transformer_xl": {"segment": 1, "memory": 2}}[name]
    model = reorder.create_model(name, Size(12, 1, 3), 16, 4, readout="last", **options)
    seen = analysis.attends(model, torch.randn(1, 3, 16, 16))
    assert seen[0].nonzero().flatten().tolist() == [0, 15, 16]
    assert seen[:, 0].nonzero().flatten().tolist() == ([0, 15, 16] if name == "longformer" else [0])


def test_a_segmented_transformer_xl_and_a_one_way_mamba_see_less():
    images = torch.randn(1, 3, 16, 16)
    one_layer = Size(12, 1, 3)
    segmented = reorder.create_model("transformer_xl", one_layer, 16, 4, segment=4, memory=2)
    seen = analysis.attends(segmented, images)
    # Slot 10 is in the segment of slots 9..12, which remembers slots 7 and 8.
    assert seen[10].nonzero().flatten().tolist() == [0, 7, 8, 9, 10]
    one_way = reorder.create_model("mamba", one_layer, 16, 4, scans=1)
    assert torch.equal(analysis.attends(one_way, images), torch.ones(17, 17, dtype=torch.bool).tril())
    assert one_way.training


@pytest.mark.parametrize("name", ["vit", "transformer_xl", "mamba"])
def test_looking_into_a_model_in_training_drops_nothing_out(name):
    model = reorder.create_model(name, Size(12, 2, 3), 16, 4, dropout=0.5, drop_path=0.5)
    before = torch.get_rng_state()
    images = torch.zeros(1, 3, 16, 16)
    analysis.attends(model, images)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_the_numbers_are_written_as_json(found, tmp_path):
    analysis.write_coverage(found, tmp_path / "sub" / "coverage.json")
    assert json.loads((tmp_path / "sub" / "coverage.json").read_text()) == found
