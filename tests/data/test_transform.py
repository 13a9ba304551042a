"""One image to the model's pixels, against plain Pillow, and in bounded memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from reorder.data.transform import MAX_PIXELS, Transform


def photograph(width, height, seed=0):
    """Smooth blobs with fine noise, the spectrum of a photograph."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noisy = np.asarray(coarse).astype(int) + random.integers(-12, 13, (height, width, 1))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def plain(file, resize=256, crop=224):
    """Open, convert, resize, crop, without any short cut."""
    image = Image.open(file).convert("RGB").resize((resize, resize), Image.Resampling.BILINEAR)
    edge = (resize - crop) // 2
    image = image.crop((edge, edge, edge + crop, edge + crop))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("size", [(300, 200), (100, 90), (500, 375)])
def test_small_images_are_the_papers_resize_and_crop(tmp_path, size):
    photograph(*size).save(tmp_path / "a.png")
    pixels = Transform((224, 224))(tmp_path / "a.png")
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == torch.uint8
    assert (pixels.int() - plain(tmp_path / "a.png").int()).abs().max() <= 1


@pytest.mark.parametrize("size", [(2000, 2000), (1030, 780), (2048, 1100), (2201, 1599)])
def test_reduced_jpegs_are_within_the_tolerance(tmp_path, size):
    photograph(*size).save(tmp_path / "a.jpg", quality=90)
    difference = (Transform((224, 224))(tmp_path / "a.jpg").int() - plain(tmp_path / "a.jpg").int()).abs()
    assert difference.float().mean() < 1  # of 255
    assert difference.max() <= 6


def test_other_sizes_keep_the_papers_margin_and_rectangles(tmp_path):
    photograph(300, 300).save(tmp_path / "a.png")
    expected = plain(tmp_path / "a.png", resize=110, crop=96)  # 96 * 256 / 224 = 109.7
    assert (Transform((96, 96))(tmp_path / "a.png").int() - expected.int()).abs().max() <= 1
    assert Transform((64, 96))(tmp_path / "a.png").shape == (3, 64, 96)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "I;16"])
def test_every_mode_becomes_three_channels(tmp_path, mode):
    image = photograph(64, 64)
    image = Image.fromarray(np.zeros((64, 64), np.uint16)) if mode == "I;16" else image.convert(mode)
    image.save(tmp_path / "a.tif")
    assert Transform((32, 32))(tmp_path / "a.tif").shape == (3, 32, 32)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_cmyk_jpegs_are_reduced_too(tmp_path, mode):
    photograph(1200, 1200).convert(mode).save(tmp_path / "a.jpg")
    difference = Transform((224, 224))(tmp_path / "a.jpg").int() - plain(tmp_path / "a.jpg").int()
    assert difference.abs().float().mean() < 1.5


@pytest.mark.parametrize("factor", [1, 8])
def test_a_box_is_cut_out_of_whole_and_reduced_images(tmp_path, factor):
    image = Image.new("RGB", (400 * factor, 400 * factor), (0, 0, 255))
    box = tuple(factor * edge for edge in (80, 160, 240, 240))
    image.paste((255, 0, 0), box)
    image.save(tmp_path / "a.jpg", quality=95)
    inside = Transform((32, 32))(tmp_path / "a.jpg", box).float().mean((1, 2))
    assert inside[0] > 250
    assert inside[2] < 5
    with pytest.raises(ValueError, match=r"not within the image of"):
        Transform((32, 32))(tmp_path / "a.jpg", (5000.0, 0.0, 5010.0, 10.0))


def test_bombs_are_refused_by_the_limit_of_their_kind(tmp_path):
    photograph(60, 50).save(tmp_path / "a.png")
    photograph(60, 50).save(tmp_path / "a.jpg")
    photograph(60, 50).save(tmp_path / "progressive.jpg", progressive=True)
    with pytest.raises(ValueError, match=r"60x50 pixels are more than the limit of 2999"):
        Transform((8, 8), 2999)(tmp_path / "a.jpg")
    Transform((8, 8), 3000)(tmp_path / "a.jpg")
    Transform((8, 8), 10**9, 100)(tmp_path / "a.jpg")  # can be decoded in parts
    for name in ("a.png", "progressive.jpg"):
        with pytest.raises(ValueError, match=r"limit of 100"):
            Transform((8, 8), 10**9, 100)(tmp_path / name)
        Transform((8, 8), 10**9, 3000)(tmp_path / name)


def test_the_limits_do_not_change_pillows_own(tmp_path):
    before = Image.MAX_IMAGE_PIXELS
    photograph(60, 50).save(tmp_path / "a.png")
    Transform((8, 8))(tmp_path / "a.png")
    assert before == Image.MAX_IMAGE_PIXELS
    assert 2 * before == MAX_PIXELS


LIMITED = """
import resource, sys
from pathlib import Path
from PIL import Image
from reorder.data.transform import MAX_PIXELS_FMOW, Transform
huge, megabytes, what = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, resource.RLIM_INFINITY))
Image.MAX_IMAGE_PIXELS = None
if what == "plain":
    Image.open(huge).load()
else:
    box = (5000.0, 5000.0, 5300.0, 5300.0) if what == "box" else None
    assert Transform((224, 224), MAX_PIXELS_FMOW)(huge, box).shape == (3, 224, 224)
"""


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A JPEG of 196 megapixels: 588 MB when decoded, and above Pillow's own limit."""
    file = tmp_path_factory.mktemp("huge") / "huge.jpg"
    Image.new("RGB", (14000, 14000), (10, 200, 30)).save(file, quality=50)
    return file


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
@pytest.mark.parametrize(
    ("what", "megabytes", "enough"),
    [("whole", 60, True), ("box", 300, True), ("plain", 300, False)],  # plain: what the limit is good for
)
def test_huge_jpegs_are_decoded_in_a_fraction_of_their_size(huge, what, megabytes, enough):
    command = [sys.executable, "-c", LIMITED, huge, str(megabytes), what]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == enough, done.stderr
    assert enough or "MemoryError" in done.stderr


def test_huge_jpegs_are_refused_outside_fmow(huge):
    with pytest.raises(ValueError, match=r"14000x14000 pixels are more than the limit of 178956970"):
        Transform((224, 224))(huge)
