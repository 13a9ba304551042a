"""The page of a report: tables, figures, training curves and a player, in one file that needs no network."""

import base64
import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch

from reorder.orders.disk import replace_file
from reorder.orders.distances import kendall_tau
from reorder.orders.policy import PlackettLuce
from reorder.report.evolution import tracked_patches
from reorder.report.figures import Picture
from reorder.report.results import Result, by_order, learned_from, policy_of, rank, scan_name
from reorder.report.tables import Cell, Number, Table, numeric_columns

# N patches, M moments of a run

LONG_TABLE = 12  # rows from which a table gets a box to filter them
SHOWN_NOTES = 4
LEADING = ("change", "learning")  # figures that stand before the tables
FOLDED = ("runs", "pairs")  # tables that are opened by a click
KINDS = {"none": "fixed", "noise": "equal noise", "global": "learned", "random": "random every batch"}
MOST_PATCHES = 4096  # that a browser can draw, and a page can hold, at every epoch


def write_page(
    path: Path,
    title: str,
    tables: list[Table],
    figures: list[Picture],
    results: Sequence[Result],
    track: Sequence[tuple[int, int]] = (),
) -> None:
    """Write the page of finished runs; the player follows the first two cells of `track`."""
    assets = files("reorder.report") / "page_assets"
    data, missing = page_data(sorted(results, key=rank), track)
    leading, rest = _split(figures, LEADING)
    folded, main = _split(tables, FOLDED)
    text = Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        lead=escape(lead(results)),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        script=(assets / "page.js").read_text(encoding="utf-8"),
        nav=nav_html(bool(data["runs"]), bool(rest), bool(folded)),
        results="\n".join([*map(figure_html, leading), *map(table_html, main)]),
        figures=section("figures", "Figures", map(figure_html, rest)),
        tables=section("all-runs", "All runs", map(table_html, folded)),
        missing="".join(
            f'<p class="remark">Without curves and player: {escape(why)}.</p>' for why in missing
        ),
        data=as_json(data),
    )
    replace_file(path, text)


def _split(items: Sequence[Any], names: tuple[str, ...]) -> tuple[list[Any], list[Any]]:
    """Those that have one of the names, and the others."""
    return [item for item in items if item.name in names], [item for item in items if item.name not in names]


def nav_html(player: bool, figures: bool, runs: bool) -> str:
    """Links to the parts that the page has."""
    parts = [("results", "Results", True), ("player", "Player", player), ("curves", "Curves", player)]
    parts += [("figures", "Figures", figures), ("all-runs", "All runs", runs)]
    return " ".join(f'<a href="#{name}">{text}</a>' for name, text, there in parts if there)


def as_json(data: Any) -> str:
    """JSON that can stand inside a script element, whatever the names in it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def section(name: str, heading: str, parts: Any) -> str:
    """A section of the page, or nothing if it would be empty."""
    body = "\n".join(parts)
    if not body:
        return ""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{heading}</h2>\n{body}\n</section>'


def table_html(table: Table) -> str:
    """A table whose headings sort it, in a box of its own that scrolls, between its caption and its notes."""
    name = escape(table.name)
    first, stop, rest = table.caption.partition(". ")
    caption = f'<b id="caption-{name}">{escape(first + stop.strip())}</b> {escape(rest)}'
    grid = grid_html(table, name) if table.rows else ""
    if grid and table.name in FOLDED:
        grid = f"<details><summary>Show {len(table.rows)} rows</summary>{grid}</details>"
    return f'<div class="sheet"><p class="caption">{caption}</p>' + grid + notes_html(table.notes) + "</div>"


def grid_html(table: Table, name: str) -> str:
    numeric = numeric_columns(table)
    head = "".join(
        f'<th scope="col"{_align(number)}><button type="button">{escape(heading)}</button></th>'
        for heading, number in zip(table.headings, numeric, strict=True)
    )
    firsts = [i == 0 for i in range(len(table.headings))]
    body = "\n".join("<tr>" + "".join(map(cell_html, row, numeric, firsts)) + "</tr>" for row in table.rows)
    search = (
        f'<p class="filter"><label for="filter-{name}">Show rows with</label> '
        f'<input id="filter-{name}" type="search" data-filters="table-{name}"> '
        '<span role="status"></span></p>'
        if len(table.rows) > LONG_TABLE
        else ""
    )
    return (
        f'{search}<div class="scroll rows" role="region" tabindex="0" aria-labelledby="caption-{name}">'
        f'<table id="table-{name}" aria-labelledby="caption-{name}">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def notes_html(notes: list[str]) -> str:
    """A list; of a long one the rest is opened by a click."""
    lists = [
        '<ul class="notes">' + "".join(f"<li>{escape(note)}</li>" for note in some) + "</ul>" if some else ""
        for some in (notes[:SHOWN_NOTES], notes[SHOWN_NOTES:])
    ]
    more = (
        f'<details class="more"><summary>{len(notes) - SHOWN_NOTES} more notes</summary>{lists[1]}</details>'
    )
    return lists[0] + (more if lists[1] else "")


def _align(number: bool) -> str:
    return ' class="number"' if number else ""


def cell_html(cell: Cell, numeric: bool, first: bool) -> str:
    """A cell; a number carries its whole value, by which it is sorted."""
    tag = 'th scope="row"' if first else "td"
    value = f' data-value="{cell.value!r}"' if isinstance(cell, Number) and math.isfinite(cell.value) else ""
    text = escape(str(cell))
    if isinstance(cell, Number) and " ± " in text:
        text = text.replace(" ± ", ' <span class="error">± ') + "</span>"
    return f"<{tag}{_align(numeric)}{value}>{text}</{tag[:2]}>"


def figure_html(picture: Picture) -> str:
    """A figure inside the page: as SVG or, where that is larger, as PNG at twice the width it is shown in."""
    ending = min(picture.drawn, key=lambda ending: len(picture.drawn[ending]))
    kind = {"svg": "svg+xml", "png": "png"}[ending]
    width = round(96 * picture.figure.get_size_inches()[0])
    caption = escape(picture.caption)
    subject = escape(picture.caption.partition(". ")[0].removesuffix("."))
    return (
        f'<figure><div class="scroll" role="region" tabindex="0" aria-label="{subject}"><img alt="{subject}" '
        f'style="--width:{width}px" src="{data_uri(kind, picture.drawn[ending])}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def lead(results: Sequence[Result]) -> str:
    """What is compared, in two sentences."""
    ranked = sorted(results, key=rank)
    starts = [_start(result.summary) for result in ranked if result.summary["policy"] != "random"]
    kinds = [KINDS[result.summary["policy"]] for result in ranked]
    models, data = [result.model for result in ranked], [result.data for result in ranked]
    counts = sorted({len(group) for group in by_order(results).values()})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    count = f"{len(results)} run{'s' * (len(results) != 1)} with {seeds} seed{'s' * (counts[-1] != 1)}"
    orders = f"{_some(starts)} ({_some(kinds)})" if starts else _some(kinds)
    return f"Orders of reading: {orders}. Read by {_some(models)} on {_some(data)}, in {count}."


def _start(summary: dict[str, Any]) -> str:
    """The order that a run reads or starts from; one from a file of unknown origin has no better name."""
    known = not summary["scan"].endswith(".json") or learned_from(summary) is not None
    return scan_name(summary) if known else "saved orders"


def _some(names: list[str], most: int = 8) -> str:
    """The first of some names, each once."""
    names = list(dict.fromkeys(names))
    more = len(names) - most
    return "; ".join(names[:most]) + (f"; and {more} more" if more > 0 else "")


def setting(result: Result) -> str:
    return f"{result.model} on {result.data}"


def page_data(
    results: Sequence[Result], track: Sequence[tuple[int, int]] = ()
) -> tuple[dict[str, Any], list[str]]:
    """What the curves and the player show, and why runs are missing from it.

    A sample image is stored once however many runs share it.
    """
    samples: dict[str, int] = {}
    found, missing = [], []
    for result in results:
        try:
            data = run_data(result, track)
        except ValueError as error:
            missing.append(str(error))
            continue
        picture = result.run.path / "sample.png"
        try:
            uri = data_uri("png", picture.read_bytes())
        except OSError:  # older runs have none
            uri = None
        found.append(data | {"sample": None if uri is None else samples.setdefault(uri, len(samples))})
    return {"runs": found, "samples": list(samples)}, missing


def run_data(result: Result, track: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """One run: its metrics by epoch, 0 before training, and its policy by moment, as frames.

    `at` says when a moment is, in epochs. Moments between which nothing moved share a frame; `frame[moment]`
    says which. The order of a frame is the policy's own mode, taken from the unrounded logits.
    """
    if math.prod(result.grid) > MOST_PATCHES:
        raise ValueError(f"{result.run.path} reads {math.prod(result.grid)} patches, too many to draw")
    lines, history = result.run.metrics(), policy_of(result)
    initial = history.initial
    if history.logits.shape[1]:
        frames, frame = distinct(history.logits)
    else:
        frames, frame = [{"order": initial.tolist(), "logits": None}], [0] * len(history.epochs)
    moved = [kendall_tau(torch.tensor(each["order"]), torch.from_numpy(initial)) for each in frames]
    return {
        "name": f"{result.order}, seed {result.seed}",
        "group": setting(result),
        "seed": result.seed,
        "policy": result.summary["policy"],
        "grid": result.grid,
        "warmup": "in its start" if result.keys.get("order.warmup_order") == "init" else "row by row",
        # rounded down, for an epoch that is not over has no validation yet; but 1.15 * 100 < 115
        "at": [math.floor(100 * epoch + 1e-6) / 100 for epoch in history.epochs.tolist()],
        "stage": history.stages,
        "temperature": [rounded(heat) for heat in history.temperatures.tolist()],
        "tau": [rounded(moved[number]) for number in frame],
        "top1": [None, *(rounded(100 * line["validation_top1"]) for line in lines)],
        "loss": [None, *(rounded(line["validation_loss"]) for line in lines)],
        "frames": frames,
        "frame": frame,
        "tracked": (tracked_patches(initial, result.grid, track) * 2)[:2],
    }


def distinct(logits: np.ndarray) -> tuple[list[dict[str, Any]], list[int]]:
    """Frames of the logits (M, N) that differ from the moment before, and the frame of each moment."""
    frames: list[dict[str, Any]] = []
    frame = []
    for moment, values in enumerate(logits):
        if moment == 0 or not np.array_equal(values, logits[moment - 1]):
            order = PlackettLuce(torch.from_numpy(values)).mode().tolist()
            frames.append({"order": order, "logits": [rounded(value) for value in values.tolist()]})
        frame.append(len(frames) - 1)
    return frames, frame


def rounded(value: float | None) -> float | None:
    """A number as it is embedded; None for what JSON cannot hold."""
    return round(value, 4) if value is not None and math.isfinite(value) else None
