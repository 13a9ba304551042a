"""Trained models as they are used: loaded, given images of any kind, shared, and loaded again."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from short_runs import QUIET, experiment, weights
from sklearn.datasets import load_digits

import reorder
from reorder import create_model
from reorder.data.datasets import load_dataset
from reorder.data.inputs import Inputs
from reorder.data.transform import Transform
from reorder.orders.files import load_order
from reorder.runs.directory import RunDir
from reorder.runs.loading import TrainedModel
from reorder.training import loop as training

pytestmark = pytest.mark.slow  # it trains

DATA = {
    "classes": ["cat", "dog"],
    "mean": [0.5],
    "deviation": [0.25],
    "crop": False,
    "max_pixels": 10**8,
    "max_whole": 10**8,
}
MODEL = {"name": "vit", "size": "8/1/2", "image_size": 8, "patch_size": 4, "options": {}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with averaged weights and a learned order."""
    directory = RunDir(tmp_path_factory.mktemp("loading") / "run")
    training.train(experiment(ema=0.7), directory, QUIET)
    return directory


@pytest.fixture(scope="module")
def digits():
    """Validation images, uint8 (n, 1, 8, 8), and their labels (n,), by the rule that every fifth is one."""
    bunch = load_digits()
    images = torch.from_numpy((bunch.images / 16 * 255).round().astype(np.uint8))[:, None]
    return images[::5], torch.from_numpy(bunch.target)[::5]


def test_a_loaded_model_is_right_where_the_run_was(run, digits):
    model = reorder.load(run.path)
    names, probabilities = model.predict(digits[0])
    assert model.classes == [str(digit) for digit in range(10)]
    assert model.grid == (2, 2)
    assert model.order.tolist() == load_order(run.path / "order.json").order.tolist()
    assert np.array_equal(np.array([int(name) for name in names]) == digits[1].numpy(), run.correct())
    assert probabilities.shape == (360, 10)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(360))
    assert names == [str(best) for best in probabilities.argmax(1).tolist()]


def test_the_weights_are_the_averaged_ones_and_images_are_normalised(run, digits):
    by_hand = create_model(
        "transformer_xl", "mini", image_size=8, patch_size=4, channels=1, classes=10, dropout=0.0
    ).eval()
    found = {
        name.removeprefix("ema.module."): value
        for name, value in weights(run).items()
        if name.startswith("ema.module.")
    }
    by_hand.load_state_dict(found)
    train = load_digits().images[np.arange(1797) % 5 != 0] / 16
    pixels = digits[0].double() / 255
    normal = (pixels - train.mean()) / train.std()
    with torch.no_grad():
        expected = by_hand(normal.float(), load_order(run.path / "order.json").order).softmax(1)
    found = reorder.load(run.path).predict(digits[0]).probabilities
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)  # pixels were rounded to 1 of 255
    last = {n.removeprefix("model."): v for n, v in weights(run).items() if n.startswith("model.")}
    by_hand.load_state_dict(last)
    with torch.no_grad():
        assert (by_hand(normal.float(), reorder.load(run.path).order).softmax(1) - found).abs().max() > 0.01


def test_a_checkpoint_is_loaded_by_its_directory_or_its_weights(run, digits):
    older, newest = sorted(run.path.glob("checkpoints/step-*"))
    expected = reorder.load(run.path).predict(digits[0][:5]).probabilities
    for path in (newest, str(newest / "weights.safetensors")):
        assert torch.equal(reorder.load(path).predict(digits[0][:5]).probabilities, expected)
    assert not torch.equal(reorder.load(older).predict(digits[0][:5]).probabilities, expected)


def test_an_older_run_is_loaded_with_numbered_classes(run, digits, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "data.json").unlink()
    model, now = reorder.load(tmp_path / "run"), reorder.load(run.path)
    assert model.classes == [str(number) for number in range(10)]
    assert model.inputs == now.inputs
    assert torch.equal(model.predict(digits[0]).probabilities, now.predict(digits[0]).probabilities)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"classes": [1, 2]}, '"classes" must be a list of text'),
        ({"classes": []}, '"classes" must not be empty'),
        ({"deviation": [0]}, '"deviation" must be a list of a number of at least 1e-30'),
        ({"mean": [0.5, 0.5]}, "a number for each of 1 or 3 channels"),
        ({"crop": 1}, '"crop" must be true or false'),
        ({"classes": ["a", "b"]}, "does not fit its config.yaml"),
    ],
)
def test_a_damaged_data_file_is_one_line(run, tmp_path, change, said):
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / "data.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=said) as refused:
        reorder.load(tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_what_is_no_run_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="is not a run directory"):
        reorder.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    shutil.copy(next(run.path.glob("checkpoints/*/weights.safetensors")), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r'config.json is damaged: it lacks "model"'):
        reorder.load(tmp_path)


def test_a_model_is_shared_by_the_hubs_mixin_and_loaded_without_a_network(run, digits, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = reorder.load(run.path)
    model.save_pretrained(tmp_path / "shared")
    assert set(load_file(tmp_path / "shared" / "model.safetensors")) == set(model.state_dict())
    for again in (TrainedModel.from_pretrained(tmp_path / "shared"), reorder.load(tmp_path / "shared")):
        assert again.classes == model.classes
        assert torch.equal(again.order, model.order)
        assert torch.equal(again.predict(digits[0]).probabilities, model.predict(digits[0]).probabilities)


def test_images_of_every_kind_are_the_same_to_it(tmp_path):
    model = TrainedModel(MODEL, DATA, [0, 2, 1, 3])
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "grey.png")
    Image.fromarray(pixels).convert("RGB").save(tmp_path / "colour.png")
    Image.fromarray(pixels.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    turned = Image.fromarray(np.rot90(pixels))
    exif = turned.getexif()
    exif[274] = 6  # held so that it must be turned by 270 degrees
    turned.save(tmp_path / "turned.tiff", exif=exif)
    files = [tmp_path / name for name in ("grey.png", "colour.png", "deep.png")]
    kinds = [*map(str, files), *files, Image.open(files[0]), pixels, pixels[..., None], torch.tensor(pixels)]
    kinds += [torch.tensor(pixels)[None], np.stack([pixels] * 3, 2), Image.open(tmp_path / "turned.tiff")]
    names, probabilities = model.predict(kinds, batch_size=4)
    by_hand = (torch.tensor(pixels)[None, None] / 255 - 0.5) / 0.25
    with torch.no_grad():
        expected = model.classifier(by_hand, torch.tensor([0, 2, 1, 3])).softmax(1)
    torch.testing.assert_close(probabilities, expected.expand(len(kinds), -1), atol=1e-5, rtol=0)
    assert names == [DATA["classes"][int(expected.argmax())]] * len(kinds)
    assert model.predict(pixels).names == names[:1]
    assert model.predict([]).probabilities.shape == (0, 2)


def test_what_is_no_image_is_named(tmp_path):
    model = TrainedModel(MODEL, DATA, [0, 2, 1, 3])
    (tmp_path / "text.png").write_text("no image")
    for bad, said in [
        (tmp_path / "text.png", "text.png: not an image of the formats"),
        (tmp_path / "absent.png", "absent.png: .*No such file"),
        (torch.zeros(1, 8, 8), r"uint8 pixels with 1 or 3 channels, got float32 of shape \(1, 8, 8\)"),
        (np.zeros((8, 8, 2), np.uint8), r"got uint8 of shape \(8, 8, 2\)"),
        (3, "got <class 'int'>"),
    ]:
        with pytest.raises(ValueError, match=said):
            model.predict([bad])
    with pytest.raises(ValueError, match="patch 3 is repeated"):
        TrainedModel(MODEL, DATA, [0, 3, 3, 1])


def test_a_file_is_read_as_in_training(pictures):
    plan = experiment()
    settings = replace(plan.data, name="image_folder", root=str(pictures))
    data = load_dataset(settings, (8, 16))
    image = data.inputs.read(pictures / "val" / "dark" / "0.png")
    assert torch.equal(image, data.validation.read(0))
    grey = Inputs(Transform((8, 16)), (0.5,), (0.25,)).prepare(image[None])
    mixed = np.array(Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L"))
    assert (grey[0, 0] * 0.25 + 0.5 - torch.tensor(mixed) / 255).abs().max() < 1.01 / 255
