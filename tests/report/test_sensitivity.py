"""Does a classifier that others have trained care about the order? Tables against logits read by hand."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from external_models import PATCHES, WIDTH, TimmVit
from torch import nn

from reorder.cli import app
from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.models.pretrained import load_pretrained
from reorder.report.sensitivity import pretrained_sensitivity


class Last(nn.Module):
    """Tokens (B, 1 + N, D) to running sums: the later ones know more."""

    def forward(self, tokens):
        return tokens.cumsum(1).tanh()


class Causal(TimmVit):
    """Of timm's shape, and answers from the token in the middle, which knows half of the patches."""

    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.Sequential(Last()), nn.Linear(WIDTH, 2)
        self.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}

    def forward(self, images):
        tokens = self.patch_drop(self._pos_embed(self.patch_embed(images)))
        return self.head(self.norm(self.blocks(tokens))[:, PATCHES // 2])

    def logits_by_hand(self, images, order):
        tokens = self._pos_embed(self.patch_embed(images))
        seen = tokens[:, 0] + tokens[:, 1:][:, order[: PATCHES // 2]].sum(1)
        return self.head(self.norm(seen.tanh())).detach()


@pytest.fixture
def causal(monkeypatch):
    torch.manual_seed(0)
    model = Causal().eval()
    made = SimpleNamespace(create_model=lambda name, pretrained: {"small": model}[name])
    monkeypatch.setitem(sys.modules, "timm", made)
    return model


def values(table, heading):
    return {str(row[0]): row[table.headings.index(heading)].value for row in table.rows}


def test_a_model_that_cares_is_said_to_and_its_answers_are_counted(causal, pictures):
    table = pretrained_sensitivity("timm:small", [f"root={pictures}", "workers=0"])
    split = load_dataset(Data("image_folder", str(pictures)), (16, 16)).validation
    pixels = np.stack([split.read(index).numpy() for index in range(8)]).transpose(0, 2, 3, 1) / 255
    pixels = (pixels - np.array([0.5, 0.4, 0.3])) / np.array([0.2, 0.3, 0.4])
    images = torch.tensor(pixels, dtype=torch.float32).permute(0, 3, 1, 2)
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])  # dark, light
    row = torch.arange(PATCHES)
    own, other = (causal.logits_by_hand(images, order) for order in (row, row.flip(0)))
    change = ((other - own).abs().amax(1) / own.std(1)).max().item()
    same = 100 * (own.argmax(1) == other.argmax(1)).double().mean().item()
    assert values(table, "change of logits")["row-reversed"] == pytest.approx(change, rel=1e-4)
    assert values(table, "change of logits")["row"] == 0
    assert values(table, "same answer (%)")["row-reversed"] == pytest.approx(same)
    top1 = {
        name: 100 * (logits.argmax(1) == labels).double().mean().item()
        for name, logits in (("row", own), ("row-reversed", other))
    }
    found = values(table, "top-1 (%)")
    assert {name: found[name] for name in top1} == pytest.approx(top1)
    difference = values(table, "against row (points)")["row-reversed"]
    assert difference == pytest.approx(top1["row-reversed"] - top1["row"])
    assert "on 8 images of" in table.caption
    assert "It cares" in table.caption
    assert causal.logits_by_hand(images, row).allclose(causal(images), atol=1e-6)  # it is as it was


def test_data_of_other_classes_tell_only_whether_answers_change(causal):
    table = pretrained_sensitivity("timm:small", ["name=digits"])  # grey, ten classes
    assert table.headings == ("order", "tau with row", "change of logits", "same answer (%)")
    assert "on 360 images of digits" in table.caption


@pytest.fixture
def vit(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=12,
        patch_size=4,
        num_labels=3,
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def test_a_vision_transformer_of_hugging_face_does_not_care(vit, capsys):
    app(["evaluate", f"hf:{vit}", "--sensitivity"], standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "32 images of noise" in said
    assert "It does not care" in said
    assert "same answer (%) 100.00" in said


def test_images_are_prepared_as_the_model_asks(vit):
    assert load_pretrained(f"hf:{vit}").mean == (0.485, 0.456, 0.406)
    settings = {
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [1, 2, 3],
        "image_processor_type": "ViTImageProcessor",
    }
    (vit / "preprocessor_config.json").write_text(json.dumps(settings))
    loaded = load_pretrained(f"hf:{vit}")
    assert (loaded.mean, loaded.deviation) == ((0.1, 0.2, 0.3), (1, 2, 3))
    assert loaded.image_shape == (12, 12)
    assert not loaded.model.training


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hf:a/b"], "hf:a/b is no run: it can only be tried alone, with --sensitivity"),
        (["hf:a/b", "hf:c/d"], "hf:a/b is no run"),
        (["timm:none", "--sensitivity", "--order", "x.json"], "leave --order away"),
        (["timm:none", "--sensitivity"], "timm: models need timm and torchvision"),
        (["hf:{empty}", "--sensitivity"], "cannot load hf:.* as a classifier of images"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match=said) as error:
        app(["evaluate", *(each.format(empty=tmp_path) for each in arguments)], standalone_mode=False)
    assert "\n" not in str(error.value)
