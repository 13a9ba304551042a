"""How uncertain a code is, given the one or two codes before it in an order: conditional entropy in bits.

It sees what LZMA misses in short sequences, because all images are counted together, and it does not depend
on how codes are numbered. The plug-in estimate takes frequencies for probabilities; it is too low where
contexts are rare. Miller and Madow's correction adds (cells - contexts) / 2n nats, which removes the first
order of that bias; where it is large, the rest is large too.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from reorder.prior.compressibility import BLOCKS, Estimates, chunks, in_threads

# K codes in the codebook, N patches, O orders, B blocks of images

DEPTHS = (1, 2)  # preceding codes
CELLS = 2**22  # distinct cells that a thread counts at a time; with what sorting takes, about 200 MB


class Entropy(NamedTuple):
    plug_in: Estimates
    corrected: Estimates
    per_context: np.ndarray  # (O,) codes counted for each context that occurs


def conditional_entropy(
    codes: np.ndarray, orders: np.ndarray, codebook_size: int, depth: int, done: Callable[[int], None]
) -> Entropy:
    """Of codes (images, N) read in orders (O, N), given `depth` codes before each, in bits.

    The first codes of an image have no context and are not counted. Errors are by the jackknife over blocks
    of images. `done` is called with the number of sequences counted.
    """
    blocks = min(BLOCKS, len(codes))
    if codebook_size ** (depth + 1) * blocks >= 2**63:
        raise ValueError(f"a codebook of {codebook_size} is too large for the entropy given {depth} codes")

    def tally(order: np.ndarray) -> np.ndarray:
        return tallies(codes, order, codebook_size, depth, blocks)

    found = []
    with in_threads() as pool:
        for result in pool.map(tally, orders):
            found.append(result)
            done(len(codes))
    of_cells, of_contexts, cells, contexts, count = np.stack(found, axis=1)  # each (O, 1 + B)
    plug_in = (of_contexts - of_cells) / count
    corrected = plug_in + (cells - contexts) / (2 * np.log(2) * count)
    return Entropy(_jackknife(plug_in), _jackknife(corrected), count[:, 0] / contexts[:, 0])


def _jackknife(estimates: np.ndarray) -> Estimates:
    """From estimates (O, 1 + B): with all blocks, and with each of them left out."""
    without = estimates[:, 1:] - estimates[:, 1:].mean(1, keepdims=True)
    blocks = without.shape[1]
    return Estimates(estimates[:, 0], (blocks - 1) / blocks * without @ without.T)


def tallies(codes: np.ndarray, order: np.ndarray, codebook_size: int, depth: int, blocks: int) -> np.ndarray:
    """Five sums, with all blocks and with each left out, (5, 1 + B).

    They are the sums of n log2 n over cells (a context and a code) and over contexts, the numbers of cells
    and of contexts that occur, and the number of codes counted. All are sums over contexts, so contexts are
    counted in as many parts as memory asks for.
    """
    most = min(len(codes) * (len(order) - depth), codebook_size ** (depth + 1) * blocks)
    parts = -(-most // CELLS)
    return sum(
        (_sums(*_count(codes, order, codebook_size, depth, blocks, part, parts), codebook_size, blocks))
        for part in range(parts)
    )  # type: ignore[return-value]


def _count(
    codes: np.ndarray, order: np.ndarray, codebook_size: int, depth: int, blocks: int, part: int, parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys (context, code and block as one number) of a part of the contexts, and their counts."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    waiting: list[np.ndarray] = []
    for chunk in chunks(len(codes), 8 * len(order)):
        sequences = codes[chunk][:, order].astype(np.int64)
        block = np.arange(chunk.start, chunk.stop)[:, None] % blocks
        context = sequences[:, :-depth]
        for later in range(1, depth):
            context = context * codebook_size + sequences[:, later : later - depth]
        new = (context * codebook_size + sequences[:, depth:]) * blocks + block
        if parts > 1:
            new = new[(context * 0x9E3779B1 >> 16) % parts == part]  # spread, since near contexts are similar
        waiting.append(new.ravel())
        if sum(map(len, waiting)) >= CELLS:
            keys, counts = _merge(keys, counts, waiting)
            waiting = []
    return _merge(keys, counts, waiting)


def _merge(keys: np.ndarray, counts: np.ndarray, waiting: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys and their counts, with more keys counted in."""
    if not waiting:
        return keys, counts
    new, times = np.unique(np.concatenate(waiting), return_counts=True)
    if not len(keys):
        return new, times
    return _add_up(np.concatenate([keys, new]), np.concatenate([counts, times]))


def _add_up(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in rising order, and the sum of the counts of each."""
    rank = np.argsort(keys, kind="stable")
    keys, counts = keys[rank], counts[rank]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _sums(keys: np.ndarray, counts: np.ndarray, codebook_size: int, blocks: int) -> np.ndarray:
    """The sums (5, 1 + B) of `tallies` over the contexts of some keys."""
    context_keys, context_counts = _add_up(keys // (blocks * codebook_size) * blocks + keys % blocks, counts)
    of_cells, cells = _with_each_left_out(keys, counts, blocks)
    of_contexts, contexts = _with_each_left_out(context_keys, context_counts, blocks)
    by_block = np.bincount(keys % blocks, counts, blocks)
    count = by_block.sum() - np.concatenate([[0], by_block])
    return np.stack([of_cells, of_contexts, cells, contexts, count])


def _with_each_left_out(keys: np.ndarray, counts: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """The sum of n log2 n and the number of n above 0, both (1 + B,) as in `tallies`."""
    block = keys % blocks
    starts = np.flatnonzero(np.diff(keys // blocks, prepend=-1))
    if not len(starts):
        return np.zeros(1 + blocks), np.zeros(1 + blocks)
    totals = np.add.reduceat(counts, starts)
    total = np.repeat(
        totals, np.diff(starts, append=len(keys))
    )  # of the key's context or cell, in all blocks
    lost = _n_log_n(total) - _n_log_n(total - counts)
    gone = np.bincount(block[total == counts], minlength=blocks)
    everything, occupied = _n_log_n(totals).sum(), len(totals)
    return (
        everything - np.concatenate([[0], np.bincount(block, lost, blocks)]),
        occupied - np.concatenate([[0], gone]),
    )


def _n_log_n(n: np.ndarray) -> np.ndarray:
    return n * np.log2(np.maximum(n, 1))
