"""The tables of a prior: compression and entropy of each order, and how the measures agree."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from reorder.prior.compressibility import ENCODINGS
from reorder.prior.entropy import DEPTHS
from reorder.prior.ranking import MEASURES, describe_choice, describe_codes, value
from reorder.report.tables import markdown_rows


def _compression_rows(prior: dict[str, Any]) -> list[tuple[str, ...]]:
    """Headings, then a row per order, the most compressible by unigram LZMA first."""
    headings = ["order"]
    for encoding in ENCODINGS:
        headings += [f"{encoding} (%)", "ratio", "bits"]
    rows = [tuple(headings)]
    for name in _sorted_names(prior):
        cells = [name]
        for found in (prior["orders"][name][encoding] for encoding in ENCODINGS):
            cells.append(f"{found['reduction']:.2f} ± {found['reduction_sem']:.2f}")
            cells += [f"{found['ratio']:.3f}", f"{found['bits_per_code']:.2f}"]
        rows.append(tuple(cells))
    return rows


def _one_stream_rows(prior: dict[str, Any]) -> list[tuple[str, ...]]:
    """Headings, then a row per order: the reduction of one stream over all images, which has no error."""
    rows: list[tuple[str, ...]] = [("one stream (%)", *ENCODINGS)]
    for name in _sorted_names(prior):
        found = prior["orders"][name]
        rows.append((name, *(f"{found[encoding]['one_stream']:.2f}" for encoding in ENCODINGS)))
    return rows


def _entropy_rows(prior: dict[str, Any]) -> list[tuple[str, ...]]:
    """Headings, then a row per order, sorted as the compression's."""
    rows = [("entropy (bits)", *(f"{kind} {depth}" for depth in DEPTHS for kind in ("given", "corrected")))]
    for name in _sorted_names(prior):
        cells = [name]
        for found in (prior["orders"][name][f"entropy{depth}"] for depth in DEPTHS):
            cells += [f"{found['plug_in']:.3f}", f"{found['corrected']:.3f} ± {found['corrected_sem']:.3f}"]
        rows.append(tuple(cells))
    return rows


def _ranking_rows(prior: dict[str, Any]) -> list[tuple[str, ...]]:
    """Headings, then a row per measure."""
    rows: list[tuple[str, ...]] = [("ranking", "from the least to the most compressible")]
    for measure, names in prior["rankings"].items():
        rows.append((MEASURES[measure], ", ".join(names)))
    return rows


def _agreement_rows(prior: dict[str, Any]) -> list[tuple[str, ...]]:
    """Headings, then a row per measure."""
    rows = [("Kendall's tau", *MEASURES.values())]
    for measure, taus in prior["agreement"].items():
        rows.append((MEASURES[measure], *("-" if tau is None else f"{tau:.2f}" for tau in taus.values())))
    return rows


def _sorted_names(prior: dict[str, Any]) -> list[str]:
    return sorted(prior["orders"], key=lambda name: -value(prior, name, "unigram"))


def _all_rows(prior: dict[str, Any]) -> list[list[tuple[str, ...]]]:
    """Compression and entropy of the orders, and how the measures agree."""
    one = [_one_stream_rows(prior)] if prior["scope"] == "corpus" else []
    return [
        _compression_rows(prior),
        *one,
        _entropy_rows(prior),
        _ranking_rows(prior),
        _agreement_rows(prior),
    ]


def terminal_tables(prior: dict[str, Any]) -> list[Table]:
    """All there is to show, for the terminal."""
    tables = []
    for headings, *rows in _all_rows(prior):
        table = Table(*headings, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in table.columns[1:]:
            column.justify, column.no_wrap = "right", True
        for row in rows:
            table.add_row(*row)
        tables.append(table)
    return tables


def markdown_tables(prior: dict[str, Any]) -> str:
    """The same as Markdown."""
    texts = []
    for headings, *rows in _all_rows(prior):
        texts.append("".join(f"{line}\n" for line in markdown_rows(headings, rows)))
    said = [describe_codes(prior), *prior["notes"], describe_choice(prior)]
    return "\n".join([*texts, "".join(f"- {line}\n" for line in said)])
