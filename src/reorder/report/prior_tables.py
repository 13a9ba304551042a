"""The tables of a prior: compression and entropy of each order, and how the measures agree."""

from typing import Any

from reorder.prior.compressibility import ENCODINGS
from reorder.prior.entropy import DEPTHS
from reorder.prior.ranking import MEASURES, describe_choice, describe_codes, value
from reorder.report.tables import Cell, Number, Table


def prior_tables(prior: dict[str, Any]) -> list[Table]:
    """Compression and entropy of the orders, and how the measures agree; the last has the notes."""
    names = sorted(prior["orders"], key=lambda name: -value(prior, name, "unigram"))
    compression, one_stream, entropy = ["order"], ["one stream (%)", *ENCODINGS], ["entropy (bits)"]
    for encoding in ENCODINGS:
        compression += [f"{encoding} (%)", "ratio", "bits"]
    for depth in DEPTHS:
        entropy += [f"given {depth}", f"corrected {depth}"]
    tables = [_table("compression", compression, [(name, *_compression(prior, name)) for name in names])]
    if prior["scope"] == "corpus":  # one stream over all images, which has no error
        found = {name: [prior["orders"][name][each]["one_stream"] for each in ENCODINGS] for name in names}
        rows = [(name, *map(Number, streams)) for name, streams in found.items()]
        tables.append(_table("one-stream", one_stream, rows))
    tables.append(_table("entropy", entropy, [(name, *_entropy(prior, name)) for name in names]))
    rankings = [(MEASURES[measure], ", ".join(found)) for measure, found in prior["rankings"].items()]
    tables.append(_table("ranking", ["ranking", "from the least to the most compressible"], rankings))
    agreement = [
        (MEASURES[measure], *("-" if tau is None else Number(tau) for tau in taus.values()))
        for measure, taus in prior["agreement"].items()
    ]
    notes = [describe_codes(prior), *prior["notes"], describe_choice(prior)]
    last = _table("agreement", ["Kendall's tau", *MEASURES.values()], agreement)
    return [*tables, last._replace(notes=notes)]


def _table(name: str, headings: list[str], rows: list[Any]) -> Table:
    return Table(name, "", tuple(headings), rows, [])


def _compression(prior: dict[str, Any], name: str) -> list[Cell]:
    """By how much an order's codes compress, in each encoding."""
    cells: list[Cell] = []
    for found in (prior["orders"][name][encoding] for encoding in ENCODINGS):
        cells.append(Number(found["reduction"], found["reduction_sem"]))
        cells += [Number(found["ratio"], digits=3), Number(found["bits_per_code"])]
    return cells


def _entropy(prior: dict[str, Any], name: str) -> list[Cell]:
    """The entropy of an order's codes given those before, at each depth."""
    cells: list[Cell] = []
    for found in (prior["orders"][name][f"entropy{depth}"] for depth in DEPTHS):
        cells.append(Number(found["plug_in"], digits=3))
        cells.append(Number(found["corrected"], found["corrected_sem"], 3))
    return cells
