"""How much LZMA reduces the codes of images that are laid out in an order.

Unigram: a symbol is a code. Bigram: a symbol is a pair of successive codes a, b, the number a * K + b, for
each of the N - 1 pairs, so that every code but the first and last is in two. Symbols are little-endian
numbers of the smallest fixed number of bytes that holds all of them.

Streams are raw LZMA (no container, no checksum): LZMA1, not LZMA2, which stores what it cannot reduce and so
makes all scans of such an image equal.
"""

import lzma
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from reorder.data.ranks import cores
from reorder.prior.liblzma import Filter, compressed_sizes

# K codes in the codebook, N patches, O orders, B blocks of images

ENCODINGS = ("unigram", "bigram")
BUFFER = 2**17  # bytes of symbols that a thread holds at a time
BLOCKS = 16  # every 16th image is in the same block; errors are estimated from them where images are pooled
WINDOW = 2**23  # bytes that LZMA looks back in a corpus: that of its preset 6
LEAST_WINDOW = 2**12  # that LZMA accepts


class Estimates(NamedTuple):
    """A value for each order, and the covariance of their errors, which differences need."""

    value: np.ndarray  # (O,)
    covariance: np.ndarray  # (O, O)

    def sem(self) -> np.ndarray:
        """Standard errors (O,)."""
        return np.sqrt(np.diag(self.covariance))

    def difference_sem(self, one: int, other: int) -> float:
        """The paired standard error of the difference between two orders."""
        c = self.covariance
        return float(np.sqrt(max(0.0, c[one, one] + c[other, other] - 2 * c[one, other])))


def symbol_bytes(encoding: str, codebook_size: int) -> int:
    """The smallest number of bytes that holds every symbol."""
    largest = codebook_size ** (1 + ENCODINGS.index(encoding)) - 1
    return max(1, (largest.bit_length() + 7) // 8)


def symbols(sequences: np.ndarray, encoding: str, codebook_size: int) -> np.ndarray:
    """Sequences of codes (n, N) as bytes (n, L * width), little-endian."""
    width = symbol_bytes(encoding, codebook_size)
    kind = np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if size >= width)}")
    numbers = sequences.astype(kind)
    if encoding == "bigram":
        numbers = numbers[:, :-1] * kind.type(codebook_size) + numbers[:, 1:]
    count, length = numbers.shape
    parts = np.ascontiguousarray(numbers).view(np.uint8).reshape(count, length, kind.itemsize)
    return np.ascontiguousarray(parts[:, :, :width]).reshape(count, length * width)


def lzma_filter(encoding: str, codebook_size: int, window: int) -> Filter:
    """Preset 6 with literals coded by their place in a symbol (lp, pb), not by what precedes them (lc).

    LZMA can distinguish places only for widths that are powers of two.
    """
    width = symbol_bytes(encoding, codebook_size)
    place = {1: 0, 2: 1, 4: 2}.get(width, 0)
    return {
        "id": lzma.FILTER_LZMA1,
        "preset": 6,
        "dict_size": max(LEAST_WINDOW, 1 << (window - 1).bit_length()),
        "lc": 0,
        "lp": place,
        "pb": place,
    }


def raw_bytes(encoding: str, codebook_size: int, patches: int) -> int:
    """Bytes of one image's symbols."""
    return (patches - ENCODINGS.index(encoding)) * symbol_bytes(encoding, codebook_size)


def chunks(images: int, bytes_each: int) -> Iterator[slice]:
    """Consecutive slices of images, each of at most BUFFER bytes or one image."""
    size = max(1, BUFFER // bytes_each)
    return (slice(start, min(images, start + size)) for start in range(0, images, size))


def in_threads() -> ThreadPoolExecutor:
    """One thread per core that this process may use."""
    return ThreadPoolExecutor(cores())


def _filter_of_image(encoding: str, codebook_size: int, patches: int) -> Filter:
    # A larger window finds no more in one image, but takes time to set up: 15 times as long with 8 MiB.
    return lzma_filter(encoding, codebook_size, raw_bytes(encoding, codebook_size, patches))


def filters_of(scope: str, codebook_size: int, patches: int) -> dict[str, Filter]:
    """The filter of each encoding."""
    if scope == "image":
        return {encoding: _filter_of_image(encoding, codebook_size, patches) for encoding in ENCODINGS}
    return {encoding: lzma_filter(encoding, codebook_size, WINDOW) for encoding in ENCODINGS}


def reduction_by_image(
    codes: np.ndarray, orders: np.ndarray, codebook_size: int, done: Callable[[int], None]
) -> dict[str, Estimates]:
    """Percentage reduction of each image's own stream: means over images, and their paired errors.

    Codes (images, N) are read in orders (O, N). Only sums over images are kept. `done` is called with
    the number of sequences.
    """
    filters = filters_of("image", codebook_size, codes.shape[1])

    def sums(part: slice) -> tuple[np.ndarray, np.ndarray, int]:
        """Sizes added up over images (2, O), and their products (2, O, O)."""
        images = np.asarray(codes[part])
        sizes = np.empty((2, len(images), len(orders)), dtype=np.int64)
        for column, order in enumerate(orders):
            sequences = images[:, order]
            for row, encoding in enumerate(ENCODINGS):
                data = symbols(sequences, encoding, codebook_size)
                sizes[row, :, column] = compressed_sizes(data, filters[encoding])
        return sizes.sum(1), sizes.transpose(0, 2, 1) @ sizes, len(images)

    count = len(codes)
    total, products = np.zeros((2, len(orders))), np.zeros((2, len(orders), len(orders)))
    with in_threads() as pool:
        parts = chunks(count, raw_bytes("bigram", codebook_size, codes.shape[1]))
        for added, multiplied, images in pool.map(sums, parts):
            total, products = total + added, products + multiplied
            done(images * len(ENCODINGS) * len(orders))
    found = {}
    for row, encoding in enumerate(ENCODINGS):
        scale = 100 / raw_bytes(encoding, codebook_size, codes.shape[1])
        mean = total[row] / count
        covariance = (products[row] / count - np.outer(mean, mean)) / (count - 1)
        found[encoding] = Estimates(100 - scale * mean, scale**2 * covariance)
    return found


def stream_size(codes: np.ndarray, order: np.ndarray, encoding: str, codebook_size: int) -> int:
    """Bytes of one stream over the codes (images, N) of all images, each read in the order (N,)."""
    compressor = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[lzma_filter(encoding, codebook_size, WINDOW)])
    size = 0
    for part in chunks(len(codes), raw_bytes(encoding, codebook_size, codes.shape[1])):
        size += len(compressor.compress(symbols(codes[part][:, order], encoding, codebook_size).data))
    return size + len(compressor.flush())


class Corpus(NamedTuple):
    by_block: dict[str, Estimates]
    one_stream: dict[str, np.ndarray]  # (O,)


def reduction_of_corpus(
    codes: np.ndarray, orders: np.ndarray, codebook_size: int, done: Callable[[int], None]
) -> Corpus:
    """Percentage reduction of streams over many images: the mean over blocks, and of one over all images.

    The one stream has no error to go by: over pairs, which share bytes, LZMA settles into one of several ways
    to code them, by chance, and random codes in another order can be reduced by 6 points more. Equal streams
    apart show how much of a difference is that. `done` is called with their number.
    """
    blocks = min(BLOCKS, len(codes))
    tasks = [
        (encoding, column, start, step)
        for start, step in [(0, 1), *((block, blocks) for block in range(blocks))]  # the longest first
        for encoding, column in product(ENCODINGS, range(len(orders)))
    ]

    def reduction(task: tuple[str, int, int, int]) -> float:
        encoding, column, start, step = task
        images = codes[start::step]
        size = stream_size(images, orders[column], encoding, codebook_size)
        return 100 - 100 * size / (len(images) * raw_bytes(encoding, codebook_size, codes.shape[1]))

    values = []
    with in_threads() as pool:
        for task, value in zip(tasks, pool.map(reduction, tasks), strict=True):
            values.append(value)
            done(len(range(task[2], len(codes), task[3])))
    table = np.array(values).reshape(1 + blocks, len(ENCODINGS), len(orders))
    by_block = {
        encoding: Estimates(table[1:, row].mean(0), np.atleast_2d(np.cov(table[1:, row].T)) / blocks)
        for row, encoding in enumerate(ENCODINGS)
    }
    return Corpus(by_block, {encoding: table[0, row] for row, encoding in enumerate(ENCODINGS)})
