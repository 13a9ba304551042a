"""A dataset's codes: from any dataset, in raster order, kept whole or not at all."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

from reorder.config import Experiment, build
from reorder.display import Display
from reorder.prior import codes as module
from reorder.prior import vqvae
from reorder.prior.codes import Tally, encode_dataset
from reorder.prior.kmeans import KMeans

QUIET = Display(quiet=True)


def write_images(directory, count, seed=0):
    """Images of 18x27 pixels, which the transform turns into 14x21: 2x3 patches of 7."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for number in range(count):
        pixels = random.integers(0, 256, (18, 27, 3), np.uint8)
        Image.fromarray(pixels).save(directory / f"{number:03d}.png")
    return directory


@pytest.fixture
def pictures(tmp_path):
    """A plain directory of 20 images, some of them in a folder."""
    write_images(tmp_path / "pictures", 15)
    write_images(tmp_path / "pictures" / "more", 5, seed=1)
    return tmp_path / "pictures"


def experiment(root, *changes):
    fixed = ["data.name=image_folder", f"data.root={root}", "data.workers=0"]
    return build(Experiment(), overrides=[*fixed, "model.image_size=[14,21]", "model.patch_size=7", *changes])


def encode(root, tmp_path, *changes, tokenizer="kmeans", display=QUIET, **options):
    options = {"codebook_size": 8} | options
    return encode_dataset(
        experiment(root, *changes), tokenizer, cache=tmp_path / "cache", display=display, **options
    )


def forbid(monkeypatch, *names):
    """Let nothing be fitted or encoded."""

    def never(*arguments, **options):
        raise AssertionError("not from the cache")

    for name in names:
        monkeypatch.setattr(KMeans, name, never)


def files(path):
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}


def test_codes_of_a_plain_directory(pictures, tmp_path):
    result = encode(pictures, tmp_path)
    assert result.codes.shape == (20, 6)
    assert result.codes.dtype == np.uint8
    assert isinstance(result.codes, np.memmap)
    assert (result.grid, result.codebook_size) == ((2, 3), 8)
    expected = torch.bincount(torch.from_numpy(result.codes.astype(np.int64)).flatten(), minlength=8).double()
    share = expected[expected > 0] / expected.sum()
    facts = result.facts
    assert facts["perplexity"] == pytest.approx(float((-(share * share.log()).sum()).exp()))
    assert (facts["images"], facts["broken"], facts["codes_used"]) == (20, [], int((expected > 0).sum()))
    assert 0 < facts["mse_of_variance"] < 1
    json.dumps(facts)


def test_the_error_of_reconstruction_is_that_of_the_nearest_centres(pictures, tmp_path):
    result = encode(pictures, tmp_path, codebook_size=3)
    split = module.load_unlabelled(experiment(pictures).data, (14, 21))
    pixels = np.stack([split.read(index).numpy() for index in range(20)]) / 255
    cache = next((tmp_path / "cache").iterdir())
    from safetensors.numpy import load_file

    centres = load_file(cache / "tokenizer.safetensors")["centres"].reshape(3, 3, 7, 7) / 255
    error = 0.0
    for number, row, column in np.ndindex(20, 2, 3):
        patch = pixels[number, :, 7 * row : 7 * row + 7, 7 * column : 7 * column + 7]
        errors = ((patch - centres) ** 2).sum((1, 2, 3))
        assert result.codes[number, 3 * row + column] == errors.argmin()
        error += errors.min()
    assert result.facts["mse"] == pytest.approx(error / pixels.size, rel=1e-5)
    variance = pixels.var((0, 2, 3)).mean()
    assert result.facts["mse_of_variance"] == pytest.approx(error / pixels.size / variance, rel=1e-5)


def test_a_second_look_does_no_work(pictures, tmp_path, monkeypatch):
    first = encode(pictures, tmp_path)
    before = files(tmp_path / "cache")
    forbid(monkeypatch, "fit", "encode", "restore")
    monkeypatch.setattr(module.Images, "batches", None)
    again = encode(
        pictures, tmp_path, "train.seed=5", "order.scan=spiral", "data.workers=2", "data.max_broken=3"
    )
    assert np.array_equal(first.codes, again.codes)
    assert first.facts == again.facts
    assert files(tmp_path / "cache") == before


def test_whatever_changes_the_codes_is_another_entry(pictures, tmp_path):
    encode(pictures, tmp_path)
    encode(pictures, tmp_path, codebook_size=9)
    encode(pictures, tmp_path, seed=1)
    encode(pictures, tmp_path, images=19)
    encode(pictures, tmp_path, "model.image_size=[14,14]")
    encode(pictures, tmp_path, "model.image_size=[14,14]", "model.patch_size=14")
    encode(pictures, tmp_path, "data.max_pixels=1000")
    write_images(pictures, 1, seed=7)  # another picture of the same name
    encode(pictures, tmp_path)
    assert len(list((tmp_path / "cache").iterdir())) == 8


def test_some_images_are_a_choice_that_grows(pictures, tmp_path):
    every = [tuple(row) for row in encode(pictures, tmp_path, codebook_size=200).codes]
    sequences = []
    for count in (5, 9):
        kept = module._choose_images(experiment(pictures), count, seed=3)
        sequences.append(kept.indices.tolist())
        assert len(sequences[-1]) == count
        assert sequences[-1] == sorted(sequences[-1])
    assert set(sequences[0]) < set(sequences[1])
    assert len(encode(pictures, tmp_path, images=1000).codes) == len(every) == 20


def test_broken_images_are_left_out_and_named(pictures, tmp_path, caplog):
    whole = encode(pictures, tmp_path, codebook_size=200)
    broken = pictures / "003.png"
    broken.write_bytes(broken.read_bytes()[:60])
    result = encode(pictures, tmp_path, codebook_size=200)
    assert result.codes.shape == (19, 6)
    assert result.facts["images"] == 19
    assert result.facts["broken"] == [str(broken)]
    assert caplog.text.count("003.png") == 1
    # each patch is a code of its own here, so the rows differ only in the names of the codes
    rows = np.delete(whole.codes, 3, axis=0)
    assert len(np.unique(rows)) == len(np.unique(result.codes)) == 19 * 6
    assert len(set(zip(rows.flatten(), result.codes.flatten(), strict=True))) == 19 * 6
    with pytest.raises(ValueError, match=r"more than data.max_broken=0 images are broken"):
        encode(pictures, tmp_path, "data.max_broken=0", seed=1)


@pytest.mark.parametrize("tokenizer", ["kmeans", "vqvae"])
def test_no_readable_image(tmp_path, tokenizer):
    for name in "abc":
        write_images(tmp_path / "bad", 0)
        (tmp_path / "bad" / f"{name}.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"none of the 3 images could be read; the first is .*a.png: "):
        encode(tmp_path / "bad", tmp_path, tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"there are no images in data.root"):
        encode(write_images(tmp_path / "empty", 0), tmp_path, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "dalle"}, "unknown tokenizer 'dalle'; choose from kmeans, vqvae, chameleon"),
        ({"codebook_size": 0}, "codebook size must be at least 1, got 0"),
        ({"images": 0}, "number of images must be at least 1, got 0"),
        ({"tokenizer": "chameleon", "codebook_size": None}, "needs weights: a directory, or facebook/"),
        ({"tokenizer": "chameleon", "weights": "x"}, "codebook size of chameleon is that of its weights"),
        ({"weights": "x"}, "weights are for the chameleon tokenizer, not for kmeans"),
    ],
)
def test_options_that_make_no_sense(pictures, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        encode(pictures, tmp_path, **options)


@pytest.mark.parametrize("size", [6, 20])
def test_images_that_are_not_whole_patches(pictures, tmp_path, size):
    with pytest.raises(ValueError, match=rf"{size}x{size} is not divisible by patch size 7"):
        encode(pictures, tmp_path, f"model.image_size={size}")


def test_damage_is_noticed_and_repaired(pictures, tmp_path, monkeypatch):
    first = np.array(encode(pictures, tmp_path).codes)
    (entry,) = (tmp_path / "cache").iterdir()
    for name in ("codes.npy", "facts.json"):
        content = (entry / name).read_bytes()
        for damage in (content[:-3], content[:-3] + b"\0\0\0", b""):
            (entry / name).write_bytes(damage)
            assert np.array_equal(encode(pictures, tmp_path).codes, first)
            assert (entry / name).read_bytes() == content
    forbid(monkeypatch, "fit")
    (entry / "codes.npy").unlink()
    assert np.array_equal(encode(pictures, tmp_path).codes, first)  # by the fitted tokenizer that was kept


def test_facts_with_wrong_content_are_made_again(pictures, tmp_path):
    first = np.array(encode(pictures, tmp_path).codes)
    (entry,) = (tmp_path / "cache").iterdir()
    sound = (entry / "facts.json").read_text()
    kept = json.loads(sound)
    changed = [{}, kept | {"facts": {}}, kept | {"facts": None}, kept | {"version": "1"}]
    changed += [kept | {"facts": kept["facts"] | change} for change in ({"broken": 3}, {"codebook_size": 2})]
    changed += [kept | {"facts": kept["facts"] | {"images": 7}}]
    for wrong in changed:
        (entry / "facts.json").write_text(json.dumps(wrong))
        assert np.array_equal(encode(pictures, tmp_path).codes, first)
        assert (entry / "facts.json").read_text() == sound


def test_a_tokenizer_with_wrong_content_is_fitted_again(pictures, tmp_path):
    first = np.array(encode(pictures, tmp_path).codes)
    (entry,) = (tmp_path / "cache").iterdir()
    kept = json.loads((entry / "tokenizer.json").read_text())
    for wrong in ({"settings": {}}, {"settings": [1]}, {"sha256": 3}):
        (entry / "tokenizer.json").write_text(json.dumps(kept | wrong))
        (entry / "facts.json").unlink()
        assert np.array_equal(encode(pictures, tmp_path).codes, first)


def test_an_interrupt_leaves_nothing_that_would_be_used(pictures, tmp_path, monkeypatch):
    plain, calls = KMeans.encode, []

    def interrupted(self, images):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return plain(self, images)

    monkeypatch.setattr(module, "BATCH", 8)
    monkeypatch.setattr(KMeans, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encode(pictures, tmp_path)
    (entry,) = (tmp_path / "cache").iterdir()
    assert {file.name for file in entry.iterdir()} == {"tokenizer.json", "tokenizer.safetensors"}
    monkeypatch.setattr(KMeans, "encode", plain)
    forbid(monkeypatch, "fit")
    assert encode(pictures, tmp_path).codes.shape == (20, 6)


KILLED = """
import sys, time
from pathlib import Path
from reorder.config import Experiment, build
from reorder.display import Display
from reorder.prior.codes import encode_dataset
from reorder.prior.kmeans import KMeans
plain = KMeans.encode
def slow(self, images):
    (Path(sys.argv[1]) / "started").touch()
    codes = plain(self, images)
    time.sleep(60)
    return codes
KMeans.encode = slow
encode_dataset(build(Experiment(), overrides=sys.argv[2:]), "kmeans", codebook_size=8,
    cache=Path(sys.argv[1]) / "cache", display=Display(quiet=True))
"""


def test_a_kill_leaves_nothing_that_would_be_used(pictures, tmp_path):
    overrides = ["data.name=image_folder", f"data.root={pictures}", "data.workers=0"]
    overrides += ["model.image_size=[14,21]", "model.patch_size=7"]
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), *overrides])
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (entry,) = (tmp_path / "cache").iterdir()
    assert not (entry / "codes.npy").exists()
    assert encode(pictures, tmp_path).codes.shape == (20, 6)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("finished", [True, False])
def test_another_version_is_refused_and_left_as_it_is(pictures, tmp_path, monkeypatch, finished):
    encode(pictures, tmp_path)
    (entry,) = (tmp_path / "cache").iterdir()
    if not finished:
        (entry / "facts.json").unlink()
    before = files(tmp_path / "cache")
    monkeypatch.setattr(KMeans, "version", KMeans.version + 1)
    with pytest.raises(ValueError, match=rf"{entry} was made by version 1 .* version 2; remove it"):
        encode(pictures, tmp_path)
    assert files(tmp_path / "cache") == before


def test_a_vqvae_is_kept_and_gives_the_same_codes_again(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(vqvae, "STEPS", 3)
    first = encode(pictures, tmp_path, tokenizer="vqvae", codebook_size=300)
    assert first.codes.dtype == np.uint16
    assert first.facts["training"] == {"trained_on": 20, "steps": 3}
    (entry,) = (tmp_path / "cache").iterdir()
    codes = np.array(first.codes)
    (entry / "codes.npy").unlink()
    monkeypatch.setattr(vqvae, "train", None)
    assert np.array_equal(encode(pictures, tmp_path, tokenizer="vqvae", codebook_size=300).codes, codes)


def test_a_collapsed_codebook_is_said_each_time(tmp_path, capsys, monkeypatch):
    (tmp_path / "black").mkdir()
    for number in range(20):
        Image.fromarray(np.zeros((18, 27, 3), np.uint8)).save(tmp_path / "black" / f"{number}.png")
    monkeypatch.setattr(vqvae, "STEPS", 1)
    for _ in range(2):
        encode(tmp_path / "black", tmp_path, tokenizer="vqvae", codebook_size=16, display=Display())
        assert "warning: the codebook collapsed: the 16 codes are used as" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("uses", "collapsed"),
    [
        ([100] * 16, False),
        ([1600] + [0] * 15, True),
        ([1590] + [1] * 10 + [0] * 5, True),
        ([500, 1100], False),
        ([10] * 200 + [0] * 7992, False),  # too few patches to use more of Chameleon's codes
        ([10**6] * 100 + [0] * 8092, True),
    ],
)
def test_what_counts_as_collapsed(uses, collapsed):
    tally = Tally(len(uses))
    tally.uses += torch.tensor(uses)
    assert tally.facts()["collapsed"] == collapsed


def test_a_second_look_heeds_the_limit_of_broken_images(pictures, tmp_path, capsys):
    (pictures / "broken.png").write_bytes(b"no image")
    assert len(encode(pictures, tmp_path, display=Display()).facts["broken"]) == 1
    assert "1 broken images are left out" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"1 images are broken, more than data.max_broken=0; mend them"):
        encode(pictures, tmp_path, "data.max_broken=0")


@pytest.mark.parametrize("tokenizer", ["kmeans", "vqvae"])
def test_labelled_datasets_and_grey_images(tmp_path, monkeypatch, tokenizer):
    monkeypatch.setattr(vqvae, "STEPS", 2)
    digits = build(Experiment(), overrides=["data.name=digits", "model.image_size=8", "model.patch_size=2"])
    result = encode_dataset(digits, tokenizer, images=70, cache=tmp_path, display=QUIET)
    assert result.codes.shape == (70, 16)
    assert result.codebook_size == 16  # 70 images of 16 patches are 17 times 64 patches
