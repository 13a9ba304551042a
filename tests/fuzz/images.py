"""Image files: every format and mode with known pixels, damaged ones, bombs, other programs' files."""

import io
import shutil
import struct
import zlib
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from PIL import Image

from fuzz.case import ACCEPT, EITHER, REFUSE, Case
from fuzz.damage import damage_bytes
from fuzz.ready import PIXELS
from reorder.config import Data
from reorder.data.datasets import load_dataset
from reorder.data.loader import Loader

SHARE, COST = 16, 2


class Made(NamedTuple):
    what: str
    ending: str
    content: bytes
    expect: str
    pixels: np.ndarray | None = None  # (16, 16, 3) or what broadcasts to it: how it must be read, if it is
    tolerance: int = 3


def make(random: Random, folder: Path, ready: Path) -> Case:
    root = folder / "pictures"
    shutil.copytree(ready / "pictures", root)
    made = random.choice(
        [_mode, _mode, _mode, _deep, _rotated, _transparent, _bomb, _other_format, _damaged]
    )(random)
    old = root / "val/dark/0.png"
    old.unlink()
    file = old.with_suffix(random.choice([made.ending, made.ending, ".png", ".jpg"]))
    file.write_bytes(made.content)

    def use() -> np.ndarray:
        """The image as pixels (16, 16, 3); a broken one is refused."""
        settings = Data(name="image_folder", root=str(root), workers=0)
        loader = Loader(load_dataset(settings, (PIXELS, PIXELS)), settings, 2, seed=0)
        read = [image for _, some, _ in loader.validate() for image in some]
        if str(file) in loader.broken:
            raise _refused(loader.broken[str(file)])
        dataset = loader.dataset
        scaled = read[0] * dataset.deviation[:, None, None] + dataset.mean[:, None, None]
        return (255 * scaled).permute(1, 2, 0).numpy()

    def wrong(pixels: np.ndarray) -> str:
        if made.pixels is None:
            return ""
        off = float(np.abs(pixels - made.pixels).max())
        return "" if off <= made.tolerance else f"read as {pixels[4, 4].round()}, {off:.0f} from what it is"

    return Case(f"{file.suffix}: {made.what}", made.expect, use, wrong)


def _refused(reason: str) -> OSError:
    """A broken image is not used, and said to be broken: as good as a refusal."""
    return OSError(1, reason or "no reason", "image")


def _saved(image: Image.Image, form: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def _grey(value: int, mode: str, side: int = 24) -> Image.Image:
    return Image.new("L", (side, side), value).convert(mode)


FORMATS = {  # the modes that each can hold, and how far it may be from the truth
    "PNG": (".png", ["L", "RGB", "P", "LA", "RGBA", "1"], 3),
    "JPEG": (".jpg", ["L", "RGB", "CMYK"], 8),
    "GIF": (".gif", ["L", "P", "RGB"], 8),
    "TIFF": (".tif", ["L", "RGB", "P", "RGBA", "CMYK", "1"], 3),
    "BMP": (".bmp", ["L", "RGB", "P", "1"], 3),
    "PPM": (".ppm", ["L", "RGB"], 3),
    "WEBP": (".webp", ["RGB", "RGBA"], 10),
}


def _mode(random: Random) -> Made:
    """One grey in a usual format and mode."""
    form = random.choice(list(FORMATS))
    ending, modes, tolerance = FORMATS[form]
    mode = random.choice(modes)
    value = random.choice([0, 255]) if mode == "1" else random.randrange(256)
    options: dict = {}
    if form == "JPEG":
        options = {"progressive": random.random() < 0.3, "quality": 95}
    if form == "TIFF" and mode != "1" and random.random() < 0.5:
        options = {"compression": random.choice(["tiff_lzw", "tiff_deflate", "packbits"])}
    content = _saved(_grey(value, mode), form, **options)
    return Made(f"{form} {mode}, grey {value}", ending, content, ACCEPT, np.array([value] * 3), tolerance)


def _png(width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: bytes) -> bytes:
    """A PNG file by hand, for what Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [_chunk(b"IHDR", header), *chunks, _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _deep(random: Random) -> Made:
    """More than eight bits a channel: read by the range of the mode, or refused, but never cut off."""
    share = random.random()
    grey = np.array([255 * share] * 3)
    side, value = 24, round(share * 65535)
    kind = random.choice(
        ["png", "png rgb", "tiff", "tiff big", "ppm", "pgm", "float", "float large", "int32"]
    )
    if kind in ("png", "png rgb"):
        channels = 3 if kind == "png rgb" else 1
        rows = (b"\0" + struct.pack(">H", value) * channels * side) * side
        content = _png(side, side, 16, 2 if channels == 3 else 0, rows)
        return Made(f"16-bit {kind}, {value}", ".png", content, ACCEPT, grey)
    if kind in ("tiff", "tiff big"):
        pixels = np.full((side, side), value, "<u2")
        image = Image.fromarray(pixels)
        if kind == "tiff big":
            image = Image.frombytes("I;16B", (side, side), pixels.byteswap().tobytes())
        return Made(f"16-bit {kind}, {value}", ".tif", _saved(image, "TIFF"), EITHER, grey)
    if kind in ("ppm", "pgm"):
        channels, magic = (3, b"P6") if kind == "ppm" else (1, b"P5")
        header = b"%s %d %d 65535\n" % (magic, side, side)
        content = header + struct.pack(">H", value) * channels * side * side
        return Made(f"16-bit {kind}, {value}", ".ppm", content, ACCEPT, grey)
    if kind == "int32":
        image = Image.fromarray(np.full((side, side), round(share * (2**31 - 1)), np.int32))
        return Made(f"32-bit integers, {share:.2f} of the range", ".tif", _saved(image, "TIFF"), EITHER, grey)
    scale = 1.0 if kind == "float" else 1000.0
    image = Image.fromarray(np.full((side, side), share * scale, np.float32))
    known = grey if kind == "float" else None
    expect = EITHER if kind == "float" else REFUSE if share * scale > 256 else EITHER
    return Made(f"floats of {share * scale:.2f}", ".tif", _saved(image, "TIFF"), expect, known)


# What the camera's eight orientations do to what it stored, by the definition of EXIF.
TURNS = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: np.transpose(a, (1, 0, 2)),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(np.transpose(a, (1, 0, 2)), 2),
    8: lambda a: np.rot90(a, 1),
}


def _rotated(random: Random) -> Made:
    """A picture whose four quarters differ, with EXIF's orientation."""
    colours = [(250, 10, 10), (10, 240, 20), (20, 30, 230), (200, 200, 40)]
    stored = np.zeros((32, 32, 3), np.uint8)
    for number, colour in enumerate(colours):
        row, column = divmod(number, 2)
        stored[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = colour
    turn = random.choice([1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 65535])
    exif = Image.Exif()
    exif[0x0112] = turn
    form = random.choice(["JPEG", "PNG", "TIFF", "WEBP"])
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(form, {})
    content = _saved(Image.fromarray(stored), form, exif=exif, **options)
    turned = TURNS.get(turn, TURNS[1])(stored)
    # The middle of each quarter of what is left of the centre; the borders between are blurred.
    pixels = np.full((PIXELS, PIXELS, 3), np.nan)
    for row in (2, 3, 12, 13):
        for column in (2, 3, 12, 13):
            pixels[row, column] = turned[2 * row, 2 * column]
    return Made(
        f"{form}, orientation {turn}", FORMATS[form][0], content, ACCEPT, np.ma.masked_invalid(pixels), 12
    )


def _transparent(random: Random) -> Made:
    """Nothing is to be seen: the colour that is hidden below must not matter."""
    hidden = tuple(random.randrange(256) for _ in range(3))
    kind = random.choice(["rgba", "la", "palette", "trns", "gif", "webp"])
    side = 24
    expect = BACKGROUND
    if kind == "rgba":
        content = _saved(Image.new("RGBA", (side, side), (*hidden, 0)), "PNG")
    elif kind == "la":
        content = _saved(Image.new("LA", (side, side), (hidden[0], 0)), "PNG")
    elif kind == "webp":
        content = _saved(Image.new("RGBA", (side, side), (*hidden, 0)), "WEBP", lossless=True, exact=True)
    elif kind == "trns":
        rows = (b"\0" + bytes(hidden) * side) * side
        content = _png(side, side, 8, 2, rows, _chunk(b"tRNS", struct.pack(">HHH", *hidden)))
    else:
        image = Image.new("P", (side, side), 0)
        image.putpalette([*hidden, 1, 2, 3])
        content = _saved(image, "GIF" if kind == "gif" else "PNG", transparency=0)
    ending = {"gif": ".gif", "webp": ".webp"}.get(kind, ".png")
    return Made(f"{kind}, all transparent over {hidden}", ending, content, ACCEPT, np.array(expect), 2)


BACKGROUND = (255, 255, 255)  # the stated one


def _bomb(random: Random) -> Made:
    """A small file that says it is a large picture."""
    kind = random.choice(["tall", "wide", "square", "gif", "jpeg", "tiff", "bmp", "text"])
    if kind in ("tall", "wide", "square"):
        size = {"tall": (1, 10**8), "wide": (10**8, 1), "square": (30_000, 30_000)}[kind]
        depth, colour = random.choice([(1, 0), (8, 0), (8, 3), (16, 0), (8, 6)])
        palette = [_chunk(b"PLTE", bytes(6))] if colour == 3 else []
        content = _png(*size, depth, colour, bytes(1000), *palette)
        return Made(f"PNG of {size}, colour {colour}, {depth} bits", ".png", content, EITHER)
    if kind == "gif":
        content = bytearray(_saved(_grey(1, "P"), "GIF"))
        content[6:10] = struct.pack("<HH", 65535, 65535)
        return Made("GIF of 65535x65535", ".gif", bytes(content), EITHER)
    if kind == "jpeg":
        content = bytearray(_saved(_grey(1, "RGB"), "JPEG", progressive=random.random() < 0.5))
        at = max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))
        content[at + 5 : at + 9] = struct.pack(">HH", 65000, 65000)
        return Made("JPEG of 65000x65000", ".jpg", bytes(content), EITHER)
    if kind == "tiff":
        header = b"II*\0" + struct.pack("<I", 8)
        tags = [
            (256, 4, 10**5),
            (257, 4, 10**5),
            (258, 3, 8),
            (259, 3, 1),
            (262, 3, 1),
            (273, 4, 8),
            (278, 4, 10**5),
        ]
        tags += [(279, 4, 10**10 % 2**32)]
        content = header + struct.pack("<H", len(tags))
        content += b"".join(struct.pack("<HHII", tag, kind_, 1, value) for tag, kind_, value in tags) + bytes(
            4
        )
        return Made("TIFF of 100000x100000", ".tif", content, REFUSE)
    if kind == "bmp":
        content = bytearray(_saved(_grey(1, "RGB"), "BMP"))
        content[18:26] = struct.pack("<ii", 30_000, random.choice([30_000, -30_000]))
        return Made("BMP of 30000x30000", ".bmp", bytes(content), REFUSE)
    text = _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(300 * 2**20), 9))
    content = _png(24, 24, 8, 0, (b"\0" + b"\x80" * 24) * 24, text)
    return Made("PNG with a text of 300 MB", ".png", content, EITHER)


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 24 24
%%EndComments
0.5 setgray 0 0 24 24 rectfill
showpage
%%EOF
"""


def _other_format(random: Random) -> Made:
    """Files that are no pictures of a listed format, whatever they are called."""
    others = {
        "EPS": EPS,
        "PDF": _saved(_grey(9, "RGB"), "PDF"),
        "ICO": _saved(_grey(9, "RGB"), "ICO"),
        "PCX": _saved(_grey(9, "RGB"), "PCX"),
        "TGA": _saved(_grey(9, "RGB"), "TGA"),
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24"/>',
        "text": b"not a picture",
        "empty": b"",
        "WMF": b"\xd7\xcd\xc6\x9a" + bytes(100),
        "PSD": b"8BPS" + bytes(100),
        "FITS": b"SIMPLE  =                    T" + b" " * 2850,
        "DDS": b"DDS " + bytes(124),
        "zip": b"PK\x03\x04" + bytes(60),
    }
    name = random.choice(["EPS", "EPS", *others])
    return Made(f"{name}", random.choice([".jpg", ".png", ".tif", ".gif"]), others[name], REFUSE)


def _damaged(random: Random) -> Made:
    made = random.choice([_mode, _mode, _deep, _rotated, _transparent])(random)
    what, content = damage_bytes(random, made.content)
    return Made(f"{made.what}, {what}", made.ending, content, EITHER)
