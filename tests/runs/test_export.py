"""Exported models give the logits of the model they were made of, in its order."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from reorder.orders.scans import scan
from reorder.runs import export
from reorder.runs.loading import TrainedModel

pytestmark = pytest.mark.slow  # exporters are slow

DATA = {"classes": ["cat", "dog"], "mean": [0.5], "deviation": [0.25], "crop": False}
DATA |= {"max_pixels": 10**8, "max_whole": 10**8}
BACKBONES = {
    "vit": {},
    "transformer_xl": {"readout": "last", "segment": 4, "memory": 4},
    "longformer": {"window": 2},
    "mamba": {},
}


def made(name, seed=0):
    """A model with random weights that reads an image of 1 x 12 x 8 pixels in a spiral."""
    torch.manual_seed(seed)
    blocks = 2 if name == "longformer" else 1  # its class token sees all; the patches' neighbours matter
    settings = {"name": name, "size": f"16/{blocks}/2", "image_size": [12, 8], "patch_size": 2}
    return TrainedModel(settings | {"options": BACKBONES[name]}, DATA, scan("spiral", 6, 4).tolist())


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_is_exported_with_its_order_for_any_number_of_images(name, tmp_path):
    model = made(name)
    export.export_onnx(model, tmp_path / "m.onnx")
    export.export_torch(model, tmp_path / "m.pt2")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    program = torch.export.load(tmp_path / "m.pt2").module()
    for count in (1, 5, 40):
        images = torch.randn(count, 1, 12, 8)
        with torch.no_grad():
            expected = model.classifier(images, scan("spiral", 6, 4))
            raster = model.classifier(images)
            torch.testing.assert_close(program(images), expected, atol=1e-5, rtol=1e-4)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        np.testing.assert_allclose(logits, expected, atol=1e-5, rtol=1e-4)
        assert name == "vit" or (raster - expected).abs().max() > 1e-3
    about = {prop.key: json.loads(prop.value) for prop in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert about["classes"] == ["cat", "dog"]
    assert (about["mean"], about["size"]) == ([0.5], [12, 8])
    assert about["order"] == scan("spiral", 6, 4).tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.pt2"]
    assert b"/reorder/models/" not in (tmp_path / "m.onnx").read_bytes()  # no paths of this machine


def test_own_orders_are_computed_in_the_exported_model(tmp_path):
    settings = {"name": "transformer_xl", "size": "16/1/2", "image_size": [12, 8], "patch_size": 2}
    settings |= {"options": BACKBONES["transformer_xl"]}
    model = TrainedModel(settings, DATA, scan("spiral", 6, 4).tolist(), image_reach=1.0)
    torch.manual_seed(0)
    for parameter in model.policy.network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    export.export_onnx(model, tmp_path / "m.onnx")
    export.export_torch(model, tmp_path / "m.pt2")
    export.export_hub(model, tmp_path / "hub")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    images = torch.randn(7, 1, 12, 8)
    with torch.no_grad():
        expected, one = model(images), model.classifier(images, model.order)
        program = torch.export.load(tmp_path / "m.pt2").module()
        torch.testing.assert_close(program(images), expected, atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(
        session.run(None, {"images": images.numpy()})[0], expected, atol=1e-5, rtol=1e-4
    )
    assert (expected - one).abs().max() > 1e-3


def test_logits_that_differ_are_refused():
    model = made("vit")
    export.check_logits(model, lambda images: model(images) + 1e-6)
    for other in (made("vit", seed=1), lambda images: model(images) + 0.01, lambda images: model(images) / 0):
        with pytest.raises(ValueError, match="its logits differ by"):
            export.check_logits(model, other)
    model.order.copy_(model.order.flip(0))
    export.check_logits(made("vit"), model)  # to a ViT the order is nothing


def test_what_cannot_be_exported_is_one_line_and_leaves_what_was_there(tmp_path, monkeypatch):
    model, path = made("vit"), tmp_path / "m.pt2"
    path.write_text("before")
    model.classifier.forward = lambda images, order: images[:, 0, 0] if images.sum() > 0 else images[..., 0]
    for write in (export.export_torch, export.export_onnx):
        with pytest.raises(ValueError, match="cannot export this model to") as refused:
            write(model, path)
        assert "\n" not in str(refused.value)
    model = made("vit")
    monkeypatch.setattr(export, "TOLERANCE", -1)
    for write, place in ((export.export_torch, path), (export.export_hub, tmp_path / "hub")):
        with pytest.raises(ValueError, match="its logits differ by"):
            write(model, place)
    with pytest.raises(ValueError, match="exists; choose another directory"):
        export.export_hub(model, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.pt2"]
    assert path.read_text() == "before"
