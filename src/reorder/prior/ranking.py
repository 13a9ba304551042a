"""The prior of a dataset: orders by each measure, the rankings, how they agree, and the scan to start from.

The result is one dictionary, which is prior.json; tables, figures and training read it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from reorder.data.progress import Display
from reorder.orders.files import load_order
from reorder.orders.scans import SCANS
from reorder.prior.codes import Codes
from reorder.prior.compressibility import (
    ENCODINGS,
    Estimates,
    filters_of,
    reduction_by_image,
    reduction_of_corpus,
    symbol_bytes,
)
from reorder.prior.entropy import DEPTHS, Entropy, conditional_entropy
from reorder.prior.options import check_measurable

FILE_FORMAT = "reorder.prior/1"
FLOOR = "random"  # one random order: what no scan should be compressed worse than
SPARSE = 0.1  # bits by which the correction may move an entropy before it is said to be unsure
FEW = 10  # codes per context, below which an entropy says more about how rare contexts are
MEASURES = {
    "unigram": "LZMA unigram",
    "bigram": "LZMA bigram",
    "entropy1": "entropy given 1",
    "entropy2": "entropy given 2",
}


def named_orders(grid: tuple[int, int], files: list[Path], seed: int = 0) -> dict[str, np.ndarray]:
    """The scans of a grid, the orders in files by the name of the file, and one random order."""
    named = {name: scan(*grid).numpy() for name, scan in SCANS.items()}
    named[FLOOR] = np.random.default_rng(seed).permutation(grid[0] * grid[1])
    for file in files:
        name = file.stem if file.stem not in named else str(file)
        named[name] = load_order(file, grid).order.numpy()
    return named


def measure(codes: Codes, named: dict[str, np.ndarray], scope: str, display: Display) -> dict[str, Any]:
    """The prior of codes: each named order (N,) by each measure, the rankings, and the chosen scan."""
    check_measurable(codes.grid, len(codes.codes), scope)
    stacked, images = np.stack([*named.values()]), len(codes.codes)
    reductions, one_stream = _reductions(codes, stacked, scope, display)
    with display.progress("sequences counted", images * len(named) * len(DEPTHS)) as done:
        entropies = {
            depth: conditional_entropy(codes.codes, stacked, codes.codebook_size, depth, done)
            for depth in DEPTHS
        }
    patches = codes.grid[0] * codes.grid[1]
    prior: dict[str, Any] = {
        "format": FILE_FORMAT,
        "scope": scope,
        "images": images,
        "grid": list(codes.grid),
        "codebook_size": codes.codebook_size,
        "symbol_bytes": {encoding: symbol_bytes(encoding, codes.codebook_size) for encoding in ENCODINGS},
        "filters": filters_of(scope, codes.codebook_size, patches),
        "tokenizer": codes.facts,
        "orders": {
            name: _row(row, reductions, entropies, codes.codebook_size, patches)
            for row, name in enumerate(named)
        },
    }
    for encoding, found in one_stream.items():
        for row, name in enumerate(named):
            prior["orders"][name][encoding]["one_stream"] = float(found[row])
    compared = [name for name in named if name != FLOOR]
    prior["rankings"] = {m: sorted(compared, key=lambda name: value(prior, name, m)) for m in MEASURES}
    prior["agreement"] = agreement(prior, compared)
    prior["chosen"] = choose(reductions["unigram"], list(named))
    prior["notes"] = notes(prior)
    return prior


def _reductions(
    codes: Codes, stacked: np.ndarray, scope: str, display: Display
) -> tuple[dict[str, Estimates], dict[str, np.ndarray]]:
    """Percentage reductions of orders (O, N) in a scope, and of one stream over all if there is one."""
    images, size = len(codes.codes), codes.codebook_size
    sequences = images * len(ENCODINGS) * len(stacked)
    if scope == "image":
        with display.progress("sequences compressed", sequences) as done:
            return reduction_by_image(codes.codes, stacked, size, done), {}
    with display.progress("sequences compressed", 2 * sequences) as done:
        return reduction_of_corpus(codes.codes, stacked, size, done)


def _row(
    row: int,
    reductions: dict[str, Estimates],
    entropies: dict[int, Entropy],
    codebook_size: int,
    patches: int,
) -> dict[str, Any]:
    """What is known of one order."""
    found: dict[str, Any] = {}
    for encoding, estimates in reductions.items():
        left = 1 - estimates.value[row] / 100
        size = (patches - ENCODINGS.index(encoding)) * symbol_bytes(encoding, codebook_size)
        found[encoding] = {
            "reduction": float(estimates.value[row]),
            "reduction_sem": float(estimates.sem()[row]),
            "ratio": float(1 / left),
            "bits_per_code": float(8 * left * size / patches),
        }
    for depth, entropy in entropies.items():
        found[f"entropy{depth}"] = {
            "plug_in": float(entropy.plug_in.value[row]),
            "plug_in_sem": float(entropy.plug_in.sem()[row]),
            "corrected": float(entropy.corrected.value[row]),
            "corrected_sem": float(entropy.corrected.sem()[row]),
            "codes_per_context": float(entropy.per_context[row]),
        }
    return found


def value(prior: dict[str, Any], name: str, measure: str) -> float:
    """How compressible an order is by a measure: the lowest is the least compressible."""
    found = prior["orders"][name][measure]
    return found["reduction"] if measure in ENCODINGS else -found["corrected"]


def agreement(prior: dict[str, Any], compared: list[str]) -> dict[str, dict[str, float | None]]:
    """Kendall's tau-b between how each two measures rank orders; None where one finds all equal."""
    from scipy.stats import kendalltau  # imported here: slow, seldom needed

    values = {m: [value(prior, name, m) for name in compared] for m in MEASURES}
    taus = {
        m: {other: float(kendalltau(values[m], values[other]).statistic) for other in MEASURES}
        for m in MEASURES
    }
    return {m: {k: None if np.isnan(tau) else tau for k, tau in row.items()} for m, row in taus.items()}


def choose(reduction: Estimates, names: list[str]) -> dict[str, Any]:
    """The scan that unigram LZMA reduces least, the next, and the lead with its paired standard error.

    Of scans that are reduced by the same, the first of SCANS is chosen.
    """
    rows = sorted((names.index(name) for name in SCANS), key=lambda row: reduction.value[row])
    first, second = rows[:2]
    lead = float(reduction.value[second] - reduction.value[first])
    sem = reduction.difference_sem(first, second)
    return {
        "scan": names[first],
        "next": names[second],
        "lead": lead,
        "lead_sem": sem,
        "tie": lead <= 2 * sem,
    }


def describe_choice(prior: dict[str, Any]) -> str:
    """The chosen scan in a line, and whether it leads."""
    chosen = prior["chosen"]
    lead = f"{chosen['lead']:.2f} ± {chosen['lead_sem']:.2f} points below {chosen['next']}"
    verdict = f": a tie, as far as {prior['images']} images can tell" if chosen["tie"] else ""
    return f"least compressible: {chosen['scan']}, {lead}{verdict}"


def describe_codes(prior: dict[str, Any]) -> str:
    """The codebook, how evenly it is used, and what it loses, in a line."""
    facts = prior["tokenizer"]
    line = f"{facts['tokenizer']}: {facts['codebook_size']} codes, {facts['codes_used']} of them used, "
    line += f"perplexity {facts['perplexity']:.0f}"
    if "mse_of_variance" in facts:
        line += f"; rebuilt with an error of {100 * facts['mse_of_variance']:.1f}% of the pixels' variance"
    return line


def notes(prior: dict[str, Any]) -> list[str]:
    """What to know before the entropies are believed."""
    said = []
    for depth in DEPTHS:
        found = [row[f"entropy{depth}"] for row in prior["orders"].values()]
        moved = max(row["corrected"] - row["plug_in"] for row in found)
        fewest = min(row["codes_per_context"] for row in found)
        if fewest < FEW:
            said.append(
                f"entropy given {depth}: {fewest:.1f} codes per context are too few to rank orders by"
            )
        elif moved > SPARSE:
            said.append(
                f"entropy given {depth}: {fewest:.0f} codes per context; the correction moves it by up to "
                f"{moved:.2f} bits, and differences of that size are unsure"
            )
    return said
