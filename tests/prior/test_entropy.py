"""Conditional entropies against counting by hand, chains whose entropy is known, and other names of codes."""

from collections import Counter
from math import log2

import numpy as np
import pytest

from reorder.orders.scans import SCANS
from reorder.prior import entropy
from reorder.prior.entropy import conditional_entropy

GRID = (4, 5)
ORDERS = np.stack([scan(*GRID).numpy() for scan in SCANS.values()])
SMALL = np.random.default_rng(0).integers(0, 6, (37, 20)) // 2 * 3  # of 0, 3, 6


def ignore(count):
    pass


def by_hand(sequences, depth):
    """Plug-in and corrected entropy, and codes per context, with dictionaries."""
    cells, contexts = Counter(), Counter()
    for sequence in sequences:
        for slot in range(depth, len(sequence)):
            context = tuple(sequence[slot - depth : slot])
            contexts[context] += 1
            cells[context, sequence[slot]] += 1
    n = sum(contexts.values())
    plug_in = -sum(count / n * log2(count / contexts[context]) for (context, _), count in cells.items())
    return plug_in, plug_in + (len(cells) - len(contexts)) / (2 * n * np.log(2)), n / len(contexts)


@pytest.mark.parametrize("cells", [2**22, 50])
@pytest.mark.parametrize("depth", [1, 2])
def test_entropy_is_that_of_counting_by_hand(monkeypatch, depth, cells):
    monkeypatch.setattr(entropy, "CELLS", cells)  # 50: counted in parts, and merged chunk by chunk
    monkeypatch.setattr("reorder.prior.compressibility.BUFFER", 400)
    found = conditional_entropy(SMALL, ORDERS, 7, depth, ignore)
    expected = np.array([by_hand(SMALL[:, order].tolist(), depth) for order in ORDERS])
    np.testing.assert_allclose(found.plug_in.value, expected[:, 0])
    np.testing.assert_allclose(found.corrected.value, expected[:, 1])
    np.testing.assert_allclose(found.per_context, expected[:, 2])


@pytest.mark.parametrize("depth", [1, 2])
def test_errors_are_the_jackknife_over_blocks(depth):
    found = conditional_entropy(SMALL, ORDERS[:2], 7, depth, ignore)
    block = np.arange(37) % 16
    left_out = [
        [by_hand(SMALL[block != b][:, order].tolist(), depth)[:2] for b in range(16)] for order in ORDERS[:2]
    ]
    for kind, estimates in enumerate((found.plug_in, found.corrected)):
        values = np.array(left_out)[:, :, kind]
        sem = np.sqrt(15 * values.var(1))
        np.testing.assert_allclose(estimates.sem(), sem)
        np.testing.assert_allclose(
            estimates.difference_sem(0, 1), np.sqrt(15 * (values[0] - values[1]).var())
        )


def test_a_markov_chain_has_the_entropy_of_its_transitions():
    stay = 0.8  # else one of the other three, so that all four are equally frequent
    known = -stay * log2(stay) - (1 - stay) * log2((1 - stay) / 3)
    rng, images = np.random.default_rng(1), 2000
    codes = np.empty((images, 20), dtype=np.uint8)
    codes[:, 0] = rng.integers(0, 4, images)
    for slot in range(1, 20):
        moves = np.where(rng.random(images) < stay, 0, rng.integers(1, 4, images))
        codes[:, slot] = (codes[:, slot - 1] + moves) % 4
    for depth in (1, 2):
        found = conditional_entropy(codes, ORDERS[:1], 4, depth, ignore).corrected
        assert abs(found.value[0] - known) < 4 * found.sem()[0] < 0.05


def test_of_independent_codes_it_is_that_of_a_code_after_the_correction():
    codes = np.random.default_rng(2).integers(0, 32, (1000, 20)).astype(np.uint8)
    found = conditional_entropy(codes, ORDERS, 32, 1, ignore)
    assert (np.abs(found.corrected.value - 5) < 4 * found.corrected.sem()).all()
    assert (found.plug_in.value < 5 - 8 * found.plug_in.sem()).all()  # too low


@pytest.mark.parametrize("along", ["row", "column", "diagonal"])
def test_images_constant_along_lines_are_surest_when_read_along_them(along):
    r, c = np.divmod(np.arange(20), GRID[1])
    line = {"row": r, "column": c, "diagonal": r + c}[along]
    codes = np.random.default_rng(4).integers(0, 8, (500, 8))[:, line]
    value = dict(zip(SCANS, conditional_entropy(codes, ORDERS, 8, 1, ignore).corrected.value, strict=True))
    across = "column" if along == "row" else "row"
    assert value[along] < value[across] - 1
    assert min(value, key=value.get) in (along, "snake")  # which reads the diagonals too


def test_the_names_of_codes_do_not_matter():
    names = np.random.default_rng(3).permutation(8192)
    for depth in (1, 2):
        one = conditional_entropy(SMALL, ORDERS, 7, depth, ignore)
        other = conditional_entropy(names[SMALL].astype(np.uint16), ORDERS, 8192, depth, ignore)
        for a, b in zip(one[:2], other[:2], strict=True):
            np.testing.assert_allclose(a.value, b.value)
            np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-15)


def test_a_codebook_whose_cells_cannot_be_numbered_is_refused():
    with pytest.raises(ValueError, match="codebook of 4000000 is too large for the entropy given 2 codes"):
        conditional_entropy(SMALL, ORDERS, 4_000_000, 2, ignore)
