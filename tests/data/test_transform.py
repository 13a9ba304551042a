"""One image to the model's pixels, against plain Pillow, and in bounded memory."""

import io
import struct
import subprocess
import sys
import zlib

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


def grey(width=96, height=64):
    return np.asarray(photograph(width, height).convert("L"))


def read(image, kind, **options):
    """What becomes of an image that is saved as a file of that kind."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return Transform((32, 32))(file)


def apart(ours, theirs):
    return int((ours.int() - theirs.int()).abs().max())


@pytest.mark.parametrize(
    ("kind", "pixels", "options"),
    [
        ("PNG", grey().astype(np.uint16) * 257, {}),
        ("TIFF", grey().astype(np.uint16) * 257, {}),
        ("PPM", grey().astype(np.uint16) * 257, {}),
        ("TIFF", 65535 - grey().astype(np.uint16) * 257, {"tiffinfo": {262: 0}}),  # the least value is white
        ("TIFF", (grey() / 255).astype(np.float32), {}),
    ],
)
def test_pixels_of_16_bits_and_floats_are_as_bright_as_those_of_8_bits(kind, pixels, options):
    expected = read(Image.fromarray(grey()), "PNG")
    assert expected.min() < 100 < 155 < expected.max()
    assert apart(read(Image.fromarray(pixels), kind, **options), expected) <= 1


def test_pixels_of_12_bits_are_scaled_by_what_12_bits_can_hold(tmp_path):
    """A TIFF by hand: 2 x 1 pixels of 12 bits, 0x000 and 0xFFF."""
    tags = [(256, 3, 2), (257, 3, 1), (258, 3, 12), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1)]
    tags += [(278, 3, 1), (279, 4, 3)]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    file = io.BytesIO(b"II*\0" + struct.pack("<I", 12) + b"\x00\x0f\xff\0" + directory)
    assert Transform((8, 8))(file)[0, 0, [0, -1]].tolist() == [0, 255]


@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        (grey().astype(np.float32), r"floats are from .* to 2\d\d; only 0 to 1 have a known brightness"),
        (
            np.where(np.eye(64, 96, 1), np.nan, 0.5).astype(np.float32),
            r"from 0.5 to 0.5, and some are not numbers",
        ),
        (grey().astype(np.int32), r"signed integers, or of 32 bits, have no known brightness"),
    ],
)
def test_brightness_that_cannot_be_known_is_refused(pixels, said):
    with pytest.raises(ValueError, match=said):
        read(Image.fromarray(pixels), "TIFF")
    with pytest.raises(ValueError, match=r"grey of 16 bits with a transparent value"):
        read(Image.fromarray(grey().astype(np.uint16)), "PNG", transparency=9)


STORED_AS = {  # EXIF's orientation -> how an upright image lies in the file: CIPA DC-008, table of tag 274
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),  # to be turned clockwise
    7: lambda upright: np.rot90(upright, 2).swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", STORED_AS)
def test_images_are_turned_upright_as_exif_says(kind, orientation):
    upright = np.asarray(photograph(96, 64))
    exif = Image.Exif()
    exif[274] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED_AS[orientation](upright)))
    turned = read(stored, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    assert apart(turned, read(Image.fromarray(upright), "PNG")) <= 1


def test_a_reduced_jpeg_is_turned_too_and_its_box_is_of_the_upright_image(tmp_path):
    upright = Image.new("RGB", (1600, 800), (0, 0, 255))
    upright.paste((255, 0, 0), (1200, 0, 1600, 800))
    exif = Image.Exif()
    exif[274] = 6
    stored = Image.fromarray(np.ascontiguousarray(np.rot90(np.asarray(upright), 1)))
    stored.save(tmp_path / "a.jpg", exif=exif, quality=95)
    red = Transform((32, 32))(tmp_path / "a.jpg")[0].float().mean(0)  # by column
    assert red[:20].max() < 10
    assert red[-4:].min() > 245
    assert Transform((32, 32))(tmp_path / "a.jpg", (1250.0, 50.0, 1550.0, 750.0))[0].min() > 245


def test_damaged_exif_leaves_an_image_as_it_lies():
    whole = read(photograph(96, 64), "PNG")
    assert torch.equal(read(photograph(96, 64), "PNG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"), whole)


@pytest.mark.parametrize(("mode", "kind"), [("RGBA", "PNG"), ("RGBA", "WEBP"), ("LA", "PNG"), ("P", "GIF")])
def test_what_is_transparent_is_white_whatever_colour_it_hides(mode, kind):
    pixels = np.zeros((64, 96, 4), np.uint8)
    pixels[:, :48] = (200, 200, 200, 255)
    pixels[:, 48:] = (10, 10, 10, 0)
    image = Image.fromarray(pixels).convert(mode)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    if mode == "P":
        image = Image.fromarray((pixels[..., 0] == 10).astype(np.uint8), "P")
        image.putpalette([200, 200, 200, 10, 10, 10])
        options = {"transparency": 1}
    row = read(image, kind, **options)[:, 16]
    assert row[:, [0, -1]].tolist() == [[200, 255]] * 3
    assert row.min() >= 200  # the hidden colour does not bleed at the edge either


def test_half_transparent_is_half_white_and_opaque_is_as_without():
    image = photograph(96, 64)
    image.putalpha(128)
    over_white = Image.fromarray(
        (np.asarray(photograph(96, 64)) * (128 / 255) + 127).round().astype(np.uint8)
    )
    assert apart(read(image, "PNG"), read(over_white, "PNG")) <= 2
    image.putalpha(255)
    assert torch.equal(read(image, "PNG"), read(photograph(96, 64), "PNG"))


def test_other_formats_are_never_opened_whatever_a_file_is_called(tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    (tmp_path / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    assert Image.open(tmp_path / "a.jpg").format == "EPS"
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments: started.append(arguments))
    with pytest.raises(ValueError, match=r"not an image of the formats JPEG, PNG, .* that can be read"):
        Transform((8, 8))(tmp_path / "a.jpg")
    assert started == []


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


def png_header(width, height):
    """The beginning of a PNG of so many pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((1, 100_000_000), r"1x100000000 pixels are more than the limit of 64000000 \(data.max_pixels\)"),
        ((8001, 8000), r"8001x8000 pixels are more than the limit of 64000000 \(data.max_pixels\)"),
        ((1, 65_536), r"1x65536 pixels: a side is longer than the limit of 65535"),
        ((1, 65_535), r"truncated|cannot identify|broken|not an image"),  # let in, but nothing follows
    ],
)
def test_bombs_are_refused_before_anything_is_decoded(size, said):
    content = png_header(*size) + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    with pytest.raises((ValueError, OSError, SyntaxError), match=said):
        Transform((224, 224))(io.BytesIO(content))


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
    side = 5888 if what == "large" else 224
    assert Transform((side, side), MAX_PIXELS_FMOW)(huge, box).shape == (3, side, side)
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
    # plain: what the limit is good for; large: for 135,424 patches, of which the pixels take 104 MB
    [("whole", 60, True), ("box", 300, True), ("large", 550, True), ("plain", 550, False)],
)
def test_huge_jpegs_are_decoded_in_a_fraction_of_their_size(huge, what, megabytes, enough):
    command = [sys.executable, "-c", LIMITED, huge, str(megabytes), what]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) == enough, done.stderr
    assert enough or "MemoryError" in done.stderr


def test_huge_jpegs_are_refused_outside_fmow(huge):
    with pytest.raises(ValueError, match=r"14000x14000 pixels are more than the limit of 178956970"):
        Transform((224, 224))(huge)
