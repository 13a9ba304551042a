"""Using a trained model from the command line: predict, export, and evaluate on other folders."""

import csv
import io
import json
import shutil
import sys

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from short_runs import on_pictures

import reorder
from reorder.cli import main

pytestmark = pytest.mark.slow  # it trains


@pytest.fixture(scope="module")
def command():
    """What a command leaves: its exit status, what it printed, and what it complained of."""

    def run(capsys, monkeypatch, *arguments):
        monkeypatch.setattr(sys, "argv", ["reorder", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def stripes(name, height=16, width=16):
    """A picture of the class `across` or `down`: stripes that go so."""
    rows, columns = np.indices((height, width))
    lit = ((rows if name == "across" else columns) // 4) % 2
    return Image.fromarray(np.repeat((55 + 145 * lit).astype(np.uint8)[..., None], 3, 2))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """32 training and 4 validation images of each of two classes; a grey spot makes them differ."""
    root, draw = tmp_path_factory.mktemp("stripes"), np.random.default_rng(0)
    for split, count in (("train", 32), ("val", 4)):
        for name in ("across", "down"):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                image = stripes(name)
                image.paste(
                    (120, 120, 120), (*(corner := draw.integers(0, 12, 2).tolist()), corner[0] + 3, 15)
                )
                image.save(root / split / name / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def run(pictures, tmp_path_factory):
    """A run that has learned to tell the two classes apart."""
    where = tmp_path_factory.mktemp("pictures-run") / "run"
    small = ["model.size=16/1/2", "train.learning_rate=0.01", "data.workers=0", "order.policy=none"]
    with pytest.MonkeyPatch.context() as patch:
        arguments = [*on_pictures(pictures, *small), "--out", str(where), "--quiet", "--no-report"]
        patch.setattr(sys, "argv", ["reorder", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    assert json.loads((where / "summary.json").read_text())["top1"] == 1
    return where


def test_a_run_keeps_the_names_of_its_classes_and_what_is_done_to_images(run):
    kept = json.loads((run / "data.json").read_text())
    assert kept["classes"] == ["across", "down"]
    assert kept["mean"] == pytest.approx([0.485, 0.456, 0.406])
    assert kept["crop"] is True


def test_predict_says_a_line_for_each_image_and_names_broken_ones(
    run, pictures, tmp_path, capsys, monkeypatch, command
):
    (tmp_path / "new" / "deeper").mkdir(parents=True)
    for number, name in enumerate(("across", "down")):
        stripes(name).save(tmp_path / "new" / f"{number}.png")
    shutil.copy(tmp_path / "new" / "1.png", tmp_path / "new" / "deeper" / "a,b.png")
    (tmp_path / "new" / "broken.jpg").write_text("no image")
    (tmp_path / "new" / "notes.txt").write_text("not looked at")
    monkeypatch.chdir(tmp_path)
    given = ["predict", run, "new", pictures / "val" / "across" / "0.png", "--batch-size", "2"]
    status, out, complained = command(capsys, monkeypatch, *given)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [row["image"] for row in rows] == [
        *("new/0.png", "new/1.png", "new/broken.jpg", "new/deeper/a,b.png"),
        str(pictures / "val" / "across" / "0.png"),
    ]
    assert [row["class"] for row in rows] == ["across", "down", "", "down", "across"]
    assert rows[2]["error"].startswith("not an image of the formats")
    assert "1 of 5 images could not be read" in complained
    model = reorder.load(run)
    expected = model.predict(["new/0.png", "new/1.png"]).probabilities
    assert [float(row["probability"]) for row in rows[:2]] == pytest.approx(expected.max(1)[0], abs=1e-4)
    status, out, _ = command(capsys, monkeypatch, *given, "--json")
    found = json.loads(out)
    assert (status, len(found), len(out.splitlines())) == (0, 5, 7)
    assert found[0]["probabilities"] == pytest.approx(
        dict(zip(["across", "down"], expected[0].tolist(), strict=True))
    )
    assert found[1]["class"] == "down"
    assert found[1]["probability"] == max(found[1]["probabilities"].values())
    assert set(found[2]) == {"image", "error"}
    status, out, _ = command(capsys, monkeypatch, "predict", run, "new/broken.jpg")
    assert (status, len(out.splitlines())) == (2, 2)
    (tmp_path / "empty").mkdir()
    status, out, complained = command(capsys, monkeypatch, "predict", run, "empty")
    assert (status, out) == (2, "")
    assert "there are no images in empty" in complained


def test_export_writes_what_other_programs_read(run, pictures, tmp_path, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    status, out, said = command(capsys, monkeypatch, "export", run, "--onnx", "m.onnx", "--hub", "shared")
    assert (status, out) == (0, "m.onnx\nshared\n"), said
    model = reorder.load(run)
    files = sorted((pictures / "val").glob("*/*.png"))
    pixels = [model.inputs.prepare(model.inputs.read(file)[None]).numpy() for file in files]
    session = onnxruntime.InferenceSession("m.onnx")
    (logits,) = session.run(None, {"images": np.concatenate(pixels)})
    assert [model.classes[best] for best in logits.argmax(1)] == model.predict(files).names
    status, out, _ = command(capsys, monkeypatch, "predict", "shared", files[0])
    assert out.splitlines()[1].split(",")[1] == model.predict(files[0]).names[0]


def evaluated(out):
    """The number of images and top-1, in percent, of what `reorder evaluate` printed."""
    lines = out.splitlines()
    return int(lines[0].split(", ")[1].split()[0]), float(lines[1].split()[1])


@pytest.mark.parametrize("inside", ["val", "test", "."])
def test_evaluate_takes_a_folder_of_nothing_but_validation_images(
    run, pictures, tmp_path, capsys, monkeypatch, command, inside
):
    shutil.copytree(pictures / "val", tmp_path / "data" / inside, dirs_exist_ok=True)
    status, out, said = command(capsys, monkeypatch, "evaluate", run, "--data", f"root={tmp_path / 'data'}")
    assert status == 0, said
    own = command(capsys, monkeypatch, "evaluate", run)[1]
    assert evaluated(out) == evaluated(own)
    assert evaluated(out)[0] == 8


@pytest.mark.parametrize(("names", "images"), [(["down"], 3), (["across", "down"], 50)])
def test_evaluate_takes_fewer_classes_and_fewer_or_more_images_than_a_batch(
    run, tmp_path, capsys, monkeypatch, command, names, images
):
    for name in names:
        (tmp_path / "val" / name).mkdir(parents=True)
        for index in range(images):
            stripes(name).save(tmp_path / "val" / name / f"{index}.png")
    status, out, said = command(capsys, monkeypatch, "evaluate", run, "--data", f"root={tmp_path}")
    assert status == 0, said
    assert evaluated(out) == (images * len(names), 100.0)


def test_evaluate_refuses_classes_that_are_not_the_models(run, tmp_path, capsys, monkeypatch, command):
    (tmp_path / "val" / "grey").mkdir(parents=True)
    Image.new("RGB", (16, 16)).save(tmp_path / "val" / "grey" / "0.png")
    status, _, said = command(capsys, monkeypatch, "evaluate", run, "--data", f"root={tmp_path}")
    assert status == 2
    assert "is of the class 'grey', not among the 2 classes to learn" in said
    (tmp_path / "val").rename(tmp_path / "train")
    status, _, said = command(capsys, monkeypatch, "evaluate", run, "--data", f"root={tmp_path}")
    assert (status, "has no directory val/" in said) == (2, True)
