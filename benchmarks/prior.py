"""The codes of 10,000 images against a plain loop with the same filters; a million in bounded memory."""

import lzma
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from reorder.prior import compressibility, entropy
from reorder.prior.compressibility import BLOCKS, ENCODINGS, filters_of, raw_bytes, symbols
from reorder.scans import SCANS

CODEBOOK, GRID = 1024, (14, 14)
PATCHES = GRID[0] * GRID[1]
ORDERS = np.stack([scan(*GRID).numpy() for scan in SCANS.values()])


def ignore(count: int) -> None:
    pass


def made_up(images: int) -> np.ndarray:
    """Codes (images, N) that are often those of the left or upper neighbour."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, CODEBOOK, (images, *GRID)).astype(np.uint16)
    left, up = rng.random((2, images, *GRID)) < 0.4
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            here = codes[:, row, column]
            if row:
                np.copyto(here, codes[:, row - 1, column], where=up[:, row, column])
            if column:
                np.copyto(here, codes[:, row, column - 1], where=left[:, row, column])
    return codes.reshape(images, PATCHES)


class Streamed:
    """Codes of many images that are made up as they are read, as a memory-mapped file would be."""

    def __init__(self, images: int) -> None:
        self.shape, self.chunk = (images, PATCHES), images // 100
        self.base = made_up(self.chunk)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> np.ndarray:
        """Images of one chunk again and again, their codes renamed by the number of the chunk."""
        numbers = np.arange(*part.indices(len(self)))
        shift = (numbers // self.chunk * 7919)[:, None]
        return ((self.base[numbers % self.chunk] + shift) % CODEBOOK).astype(np.uint16)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def plain_by_image(codes: np.ndarray) -> np.ndarray:
    """Mean percentage reduction (2, O): one call of Python's lzma after the other."""
    filters, table = filters_of("image", CODEBOOK, PATCHES), []
    for encoding in ENCODINGS:
        for order in ORDERS:
            data = symbols(codes[:, order], encoding, CODEBOOK)
            sizes = [len(lzma.compress(row, lzma.FORMAT_RAW, filters=[filters[encoding]])) for row in data]
            table.append(100 - 100 * np.mean(sizes) / data.shape[1])
    return np.array(table).reshape(len(ENCODINGS), -1)


def plain_corpus(codes: np.ndarray) -> np.ndarray:
    """Percentage reduction (1 + B, 2, O) of all images in one stream and of each block's."""
    filters, table = filters_of("corpus", CODEBOOK, PATCHES), []
    for some in [codes, *(codes[block::BLOCKS] for block in range(BLOCKS))]:
        for encoding in ENCODINGS:
            for order in ORDERS:
                data = symbols(some[:, order], encoding, CODEBOOK)
                size = len(lzma.compress(data, lzma.FORMAT_RAW, filters=[filters[encoding]]))
                table.append(100 - 100 * size / data.size)
    return np.array(table).reshape(1 + BLOCKS, len(ENCODINGS), -1)


def against_a_loop(table: Table, images: int) -> None:
    """The same numbers from both, and how long they take."""
    codes = made_up(images)
    ours, found = timed(lambda: compressibility.reduction_by_image(codes, ORDERS, CODEBOOK, ignore))
    loop, expected = timed(lambda: plain_by_image(codes))
    assert np.allclose([found[encoding].value for encoding in ENCODINGS], expected)
    what = f"{images:,} images of 14x14 codes, 6 scans, 2 encodings"
    table.add_row(f"{what}: by image", f"{ours:.1f}", f"{loop:.1f}", f"{loop / ours:.2f}x")
    ours_corpus, corpus = timed(lambda: compressibility.reduction_of_corpus(codes, ORDERS, CODEBOOK, ignore))
    loop_corpus, expected = timed(lambda: plain_corpus(codes))
    assert np.allclose([corpus.one_stream[encoding] for encoding in ENCODINGS], expected[0])
    assert np.allclose([corpus.by_block[encoding].value for encoding in ENCODINGS], expected[1:].mean(0))
    ratio = loop_corpus / ours_corpus
    table.add_row(f"{what}: corpus", f"{ours_corpus:.1f}", f"{loop_corpus:.1f}", f"{ratio:.2f}x")
    ours, loop = ours + ours_corpus, loop + loop_corpus
    table.add_row("both", f"{ours:.1f}", f"{loop:.1f}", f"{loop / ours:.2f}x")
    took, _ = timed(lambda: [entropy.conditional_entropy(codes, ORDERS, CODEBOOK, d, ignore) for d in (1, 2)])
    table.add_row("the same images: both entropies", f"{took:.1f}", "", "")


def set_up(table: Table, images: int) -> None:
    """What the size of the window costs when a sequence is short."""
    data = symbols(made_up(images), "unigram", CODEBOOK)
    small = filters_of("image", CODEBOOK, PATCHES)["unigram"]
    seconds = [
        timed(lambda f=f: compressibility.compressed_sizes(data, f))[0]
        for f in (small, small | {"dict_size": compressibility.WINDOW})
    ]
    name = f"{images} sequences of 392 bytes with a window of {small['dict_size'] // 1024} KiB; peer: 8 MiB"
    table.add_row(name, *(f"{s:.3f}" for s in seconds), f"{seconds[1] / seconds[0]:.1f}x")


def resident() -> float:
    """Megabytes this process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def peak() -> float:
    """The most megabytes this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def many_images(table: Table, images: int) -> None:
    """Many images' codes in one scan; what the process grew by at most, of their size."""
    codes, before = Streamed(images), resident()
    row = ORDERS[:1]
    size = images * raw_bytes("unigram", CODEBOOK, PATCHES) / 2**20
    work: dict[str, Callable[[], Any]] = {
        "by image, 2 encodings": lambda: compressibility.reduction_by_image(codes, row, CODEBOOK, ignore),  # type: ignore[arg-type]
        "one unigram stream": lambda: compressibility.stream_size(codes, row[0], "unigram", CODEBOOK),  # type: ignore[arg-type]
        "entropy given 1": lambda: entropy.conditional_entropy(codes, row, CODEBOOK, 1, ignore),  # type: ignore[arg-type]
        "entropy given 2": lambda: entropy.conditional_entropy(codes, row, CODEBOOK, 2, ignore),  # type: ignore[arg-type]
    }
    for name, function in work.items():
        seconds, _ = timed(function)
        grown = f"{size:.0f} MB of codes, the process grew by at most {peak() - before:.0f} MB"
        table.add_row(f"{images:,} images in 1 scan, {name}: {grown}", f"{seconds:.0f}", "", "")


def table(tiny: bool = False) -> Table:
    title = f"Prior, {os.cpu_count()} cores; peer: a plain loop with the same filters and sizes"
    table = Table("what", "ours (s)", "peer (s)", "ratio", title=title)
    many_images(table, 200 if tiny else 1_000_000)  # first, for a peak is of all that was done before
    set_up(table, 5 if tiny else 500)
    against_a_loop(table, 32 if tiny else 10_000)
    return table
