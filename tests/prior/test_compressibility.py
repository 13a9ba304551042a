"""LZMA on codes: bytes written by hand, sizes of Python's own lzma, and images whose best scan is known."""

import lzma

import numpy as np
import pytest

from reorder.orders.scans import SCANS
from reorder.prior import compressibility, liblzma
from reorder.prior.compressibility import (
    WINDOW,
    filters_of,
    lzma_filter,
    reduction_by_image,
    reduction_of_corpus,
    stream_size,
    symbol_bytes,
    symbols,
)

GRID = (6, 8)
ORDERS = np.stack([scan(*GRID).numpy() for scan in SCANS.values()])
NAMES = list(SCANS)


def ignore(count):
    pass


def plain_size(data, window=WINDOW, place=0):
    """By Python's lzma, with the filter written out."""
    filters = [{"id": lzma.FILTER_LZMA1, "preset": 6, "dict_size": window, "lc": 0, "lp": place, "pb": place}]
    return len(lzma.compress(data, format=lzma.FORMAT_RAW, filters=filters))


@pytest.mark.parametrize(
    ("encoding", "codebook", "width"),
    [
        *[("unigram", k, 1) for k in (1, 2, 256)],
        *[("unigram", k, 2) for k in (257, 8192, 65536)],
        ("unigram", 65537, 3),
        ("bigram", 16, 1),
        ("bigram", 17, 2),
        ("bigram", 256, 2),
        ("bigram", 1024, 3),
        ("bigram", 8192, 4),
    ],
)
def test_the_width_of_a_symbol(encoding, codebook, width):
    assert symbol_bytes(encoding, codebook) == width


def test_symbols_are_little_endian_numbers():
    codes = np.array([[1, 258, 3]], dtype=np.uint16)
    assert symbols(codes, "unigram", 300).tobytes() == bytes([1, 0, 2, 1, 3, 0])
    pairs = [1 * 300 + 258, 258 * 300 + 3]  # sliding: the middle code is in both; 300 * 300 takes 3 bytes
    assert symbols(codes, "bigram", 300).tobytes() == b"".join(n.to_bytes(3, "little") for n in pairs)
    small = np.array([[1, 255, 3]], dtype=np.uint8)
    assert symbols(small, "bigram", 256).tobytes() == bytes([255, 1, 3, 255])


@pytest.mark.parametrize("library", ["liblzma", "Python's"])
def test_sizes_are_those_of_plain_lzma(monkeypatch, library):
    if library == "Python's":
        monkeypatch.setattr(liblzma, "_library", lambda: None)
    rng = np.random.default_rng(0)
    rows = np.stack([np.zeros(196), np.arange(196), rng.integers(0, 4, 196), rng.integers(0, 256, 196)])
    rows = rows.astype(np.uint8)
    filters = lzma_filter("unigram", 256, 196)
    assert liblzma.compressed_sizes(rows, filters).tolist() == [plain_size(bytes(r), 4096) for r in rows]
    wide = lzma_filter("bigram", 256, 10_000)
    long = rng.integers(0, 9, (2, 10_000), dtype=np.uint8)
    expected = [plain_size(bytes(row), 16384, place=1) for row in long]
    assert liblzma.compressed_sizes(long, wide).tolist() == expected


def test_liblzma_is_called_where_python_shows_it():
    assert liblzma._library() is not None


def test_a_stream_in_chunks_is_one_stream(monkeypatch):
    monkeypatch.setattr(compressibility, "BUFFER", 500)
    codes = np.random.default_rng(1).integers(0, 300, (70, 48)).astype(np.uint16)
    together = codes[:, ORDERS[2]].astype("<u2").tobytes()
    assert stream_size(codes, ORDERS[2], "unigram", 300) == plain_size(together, place=1)


def test_reductions_are_means_over_images_with_paired_errors(monkeypatch):
    monkeypatch.setattr(compressibility, "BUFFER", 300)  # several chunks
    rng = np.random.default_rng(2)
    codes = rng.integers(0, rng.integers(2, 40, (50, 1)), (50, 48)).astype(np.uint8)
    found = reduction_by_image(codes, ORDERS, 40, ignore)["bigram"]
    pairs = [codes[:, o][:, :-1].astype("<u2") * 40 + codes[:, o][:, 1:] for o in ORDERS]
    percent = np.array([[100 - 100 * plain_size(row.tobytes(), 4096, 1) / 94 for row in p] for p in pairs])
    np.testing.assert_allclose(found.value, percent.mean(1))
    np.testing.assert_allclose(found.sem(), percent.std(1, ddof=1) / np.sqrt(50))
    lead = percent[1] - percent[3]
    np.testing.assert_allclose(found.difference_sem(1, 3), lead.std(ddof=1) / np.sqrt(50))


def test_the_corpus_is_streams_over_blocks_and_one_over_all():
    codes = np.random.default_rng(3).integers(0, 5, (40, 48)).astype(np.uint8)
    found = reduction_of_corpus(codes, ORDERS[:2], 5, ignore)
    for column, order in enumerate(ORDERS[:2]):
        blocks = [codes[b::16][:, order] for b in range(16)]
        percent = np.array([100 - 100 * plain_size(b.tobytes()) / b.size for b in blocks])
        np.testing.assert_allclose(found.by_block["unigram"].value[column], percent.mean())
        np.testing.assert_allclose(found.by_block["unigram"].sem()[column], percent.std(ddof=1) / 4)
        whole = 100 - 100 * plain_size(codes[:, order].tobytes()) / codes.size
        np.testing.assert_allclose(found.one_stream["unigram"][column], whole)


def measured(codes, codebook, scope):
    if scope == "image":
        return reduction_by_image(codes, ORDERS, codebook, ignore)
    return reduction_of_corpus(codes, ORDERS, codebook, ignore).by_block


R, C = np.divmod(np.arange(48), GRID[1])
LINES = {"row": (R, C), "column": (C, R), "diagonal": (R + C, R)}  # which line, and where on it


@pytest.mark.parametrize("scope", ["image", "corpus"])
@pytest.mark.parametrize("along", LINES)
def test_lines_with_a_repeated_text_are_reduced_most_by_reading_along_them(scope, along):
    """Each line of an image has one of two texts, from some place on; read across, neither comes again."""
    rng, (line, place) = np.random.default_rng(4), LINES[along]
    texts, choice, start = rng.integers(0, 256, (80, 2, 8)), *rng.integers(0, 8, (2, 80, 14))
    place = (place + start[:, line]) % 8
    codes = texts[np.arange(80)[:, None], choice[:, line] % 2, place].astype(np.uint8)
    found = measured(codes, 256, scope)
    for encoding in ("unigram", "bigram") if scope == "image" else ("unigram",):
        value = dict(zip(NAMES, found[encoding].value, strict=True))
        assert max(value, key=value.get) == along
        across = "column" if along == "row" else "row"
        assert value[along] > value[across] + 4


@pytest.mark.parametrize("scope", ["image", "corpus"])
@pytest.mark.parametrize("along", ["row", "column"])
def test_constant_lines_are_long_matches_both_along_and_across(scope, along):
    """Across, it is the same line again and again: LZMA takes a repeat at any distance for redundancy."""
    codes = np.random.default_rng(5).integers(0, 256, (80, 14))[:, LINES[along][0]].astype(np.uint8)
    value = dict(zip(NAMES, measured(codes, 256, scope)["unigram"].value, strict=True))
    assert set(sorted(value, key=value.get)[-2:]) == {"row", "column"}
    assert min(value["row"], value["column"]) > value["hilbert"] + 3


@pytest.mark.parametrize("scope", ["image", "corpus"])
def test_of_independent_codes_all_scans_are_equal_within_error(scope):
    codes = (np.random.default_rng(5).integers(0, 8, (320, 48)) ** 2).astype(np.uint8)
    for estimates in measured(codes, 64, scope).values():
        errors = [
            (estimates.value[a] - estimates.value[b]) / estimates.difference_sem(a, b)
            for a in range(6)
            for b in range(a)
        ]
        assert max(map(abs, errors)) < 4
        assert estimates.sem().max() < 1


def test_filters_are_stated():
    filters = filters_of("corpus", 8192, 196)
    assert {f["dict_size"] for f in filters.values()} == {2**23}
    assert [f["lp"] for f in filters.values()] == [1, 2]
    assert filters_of("image", 8192, 5000)["unigram"]["dict_size"] == 16384
