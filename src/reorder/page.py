"""The page of a report: tables, figures, training curves and a player, in one file that needs no network."""

import base64
import io
import json
import math
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context

from reorder.config import Experiment
from reorder.figures import Picture
from reorder.policy import PlackettLuce
from reorder.run_dir import RunDir
from reorder.tables import Cell, Number, Table

# N patches, E epochs

LONG_TABLE = 12  # rows from which a table gets a box to filter them
READS = {
    "none": "{scan}, fixed",
    "global": "learned from {scan}",
    "noise": "{scan}, noise only",
    "random": "random every batch",
}


def write_page(
    path: Path, title: str, tables: list[Table], figures: list[Picture], runs: list[RunDir]
) -> None:
    """Write the page, whole or not at all; runs without a finished epoch are left out of the player."""
    experiments = [run.experiment() for run in runs]
    drawable = [
        pair for pair in zip(runs, experiments, strict=True) if (pair[0].path / "policy.npz").exists()
    ]
    assets = files("reorder") / "page_assets"
    text = Template((assets / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        lead=escape(lead(experiments)),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        script=(assets / "page.js").read_text(encoding="utf-8"),
        main_table="\n".join(map(table_html, tables[:1])),
        figures=section("figures", "Figures", map(figure_html, figures)),
        tables=section("tables", "More tables", map(table_html, tables[1:])),
        data=as_json(page_data(drawable)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


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
    """A table whose headings sort it, in a box of its own that scrolls."""
    name = escape(table.name, quote=True)
    numeric = [any(isinstance(row[i], Number) for row in table.rows) for i in range(len(table.headings))]
    head = "".join(
        f'<th scope="col"{_align(number)}><button type="button">{escape(heading)}</button></th>'
        for heading, number in zip(table.headings, numeric, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(map(cell_html, row, numeric, [i == 0 for i in range(len(row))])) + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    search = (
        f'<p class="filter"><label for="filter-{name}">Show rows with</label> '
        f'<input id="filter-{name}" type="search" data-filters="table-{name}"> '
        '<span role="status"></span></p>'
        if len(table.rows) > LONG_TABLE
        else ""
    )
    return (
        f'<div class="sheet"><p class="caption" id="caption-{name}">{escape(table.caption)}</p>{search}'
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="caption-{name}">'
        f'<table id="table-{name}" aria-labelledby="caption-{name}">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + "</div>"
    )


def _align(number: bool) -> str:
    return ' class="number"' if number else ""


def cell_html(cell: Cell, numeric: bool, first: bool) -> str:
    """A cell; a number carries its whole value, by which it is sorted."""
    tag = 'th scope="row"' if first else "td"
    value = f' data-value="{cell.value!r}"' if isinstance(cell, Number) and math.isfinite(cell.value) else ""
    text = escape(str(cell)).replace(" ± ", ' <span class="error">± ') + "</span>" * (" ± " in str(cell))
    return f"<{tag}{_align(numeric)}{value}>{text}</{tag[:2]}>"


def figure_html(picture: Picture) -> str:
    """A figure inside the page: as SVG or, where that is larger, as PNG at twice the width it is shown in."""
    encoded = {}
    with rc_context({"svg.hashsalt": picture.name}):
        for kind, options in (("svg+xml", {"metadata": {"Date": None}}), ("png", {"dpi": 200})):
            buffer = io.BytesIO()
            picture.figure.savefig(buffer, format=kind[:3], **options)
            encoded[kind] = buffer.getvalue()
    kind = min(encoded, key=lambda kind: len(encoded[kind]))
    width = round(96 * picture.figure.get_size_inches()[0])
    caption = escape(picture.caption)
    return (
        f'<figure><img alt="{caption}" style="width:{width}px" src="{data_uri(kind, encoded[kind])}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def data_uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def lead(experiments: list[Experiment]) -> str:
    """One sentence of what is compared."""
    kinds = list(dict.fromkeys(map(setting, experiments)))
    reads = list(dict.fromkeys(map(reading, experiments)))
    seeds = len({experiment.train.seed for experiment in experiments})
    count = f"{len(experiments)} run{'s' * (len(experiments) != 1)} with {seeds} seed{'s' * (seeds != 1)}"
    return f"Orders of reading: {_some(reads)}. Read by {_some(kinds)}, in {count}."


def _some(names: list[str], most: int = 6) -> str:
    more = len(names) - most
    return "; ".join(names[:most]) + (f"; and {more} more" if more > 0 else "")


def setting(experiment: Experiment) -> str:
    """Model, grid and data of a run."""
    model, data = experiment.model, experiment.data
    options = ", ".join(f"{key}={value}" for key, value in model.options.items())
    rows, columns = grid_of(experiment)
    name = f"{data.name} {Path(data.root).name}" if data.root else data.name
    return (
        f"{model.name} {model.size}{f' ({options})' if options else ''} on {rows}x{columns} patches of {name}"
    )


def reading(experiment: Experiment) -> str:
    """What a run reads in."""
    order = experiment.order
    return READS.get(order.policy, order.policy + " from {scan}").format(scan=Path(order.scan).stem)


def grid_of(experiment: Experiment) -> tuple[int, int]:
    height, width = experiment.model.image_shape
    return height // experiment.model.patch_size, width // experiment.model.patch_size


def page_data(runs: list[tuple[RunDir, Experiment]]) -> dict[str, Any]:
    """What the curves and the player show; a sample image is stored once however many runs share it."""
    samples: dict[str, int] = {}
    found = []
    for run, experiment in runs:
        data, picture = run_data(run, experiment), run.path / "sample.png"
        uri = data_uri("png", picture.read_bytes()) if picture.exists() else None
        found.append(data | {"sample": None if uri is None else samples.setdefault(uri, len(samples))})
    labels = [(data["group"], data["name"]) for data in found]
    for data, label, (run, _) in zip(found, labels, runs, strict=True):
        if labels.count(label) > 1:
            data["name"] += f" ({run.path})"
    return {"runs": found, "samples": list(samples)}


def run_data(run: RunDir, experiment: Experiment) -> dict[str, Any]:
    """One run by epoch, 0 before training: its metrics, and its policy as frames.

    Epochs in which nothing moved share a frame; `frame[epoch]` says which. The order of a frame is the
    policy's own mode, taken from the unrounded logits.
    """
    logits, initial = run.policy()
    lines = run.metrics()[: len(logits) - 1]
    if logits.shape[1]:
        frames, frame = distinct(logits[: len(lines) + 1])
    else:
        frames, frame = [{"order": initial.tolist(), "logits": None}], [0] * (len(lines) + 1)
    shift = np.argsort(frames[-1]["order"]) - np.argsort(frames[0]["order"])
    tracked = [int(shift.argmin()), int(shift.argmax())]
    if tracked[0] == tracked[1]:  # nothing moved: any two patches
        tracked = [int(initial[0]), int(initial[len(initial) // 2])]
    return {
        "name": f"{reading(experiment)}, seed {experiment.train.seed}",
        "group": setting(experiment),
        "seed": experiment.train.seed,
        "policy": experiment.order.policy,
        "grid": list(grid_of(experiment)),
        "warmup": "row by row" if experiment.order.warmup_order == "row" else "in the initial order",
        "stage": ["before training", *(line["stage"] for line in lines)],
        "temperature": [0.0, *(rounded(line["temperature"]) for line in lines)],
        "tau": [1.0, *(rounded(line["kendall_tau_from_start"]) for line in lines)],
        "top1": [None, *(rounded(100 * line["validation_top1"]) for line in lines)],
        "loss": [None, *(rounded(line["validation_loss"]) for line in lines)],
        "frames": frames,
        "frame": frame,
        "tracked": tracked,
    }


def distinct(logits: np.ndarray) -> tuple[list[dict[str, Any]], list[int]]:
    """Frames of the logits (E + 1, N) that differ from the epoch before, and the frame of each epoch."""
    frames: list[dict[str, Any]] = []
    frame = []
    for epoch, values in enumerate(logits):
        if epoch == 0 or not np.array_equal(values, logits[epoch - 1]):
            order = PlackettLuce(torch.from_numpy(values)).mode().tolist()
            frames.append({"order": order, "logits": [rounded(value) for value in values.tolist()]})
        frame.append(len(frames) - 1)
    return frames, frame


def rounded(value: float | None) -> float | None:
    """A number as it is embedded; None for what JSON cannot hold."""
    return round(value, 4) if value is not None and math.isfinite(value) else None
