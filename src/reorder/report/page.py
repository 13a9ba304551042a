"""The page of a report, in one file that needs no network: verdict, figures, tables, player, curves."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jinja2 import Environment, PackageLoader

from reorder.orders.disk import replace_file
from reorder.orders.distances import kendall_tau
from reorder.orders.policy import PlackettLuce
from reorder.report.evolution import tracked_patches
from reorder.report.figures import Picture
from reorder.report.page_images import NO_IMAGES, OwnImages, base64_of, most_images, packed, png_uri
from reorder.report.results import Result, by_order, policy_of, rank
from reorder.report.tables import Number, Table, numeric_columns, varied_columns
from reorder.runs.directory import RunDir

# N patches, M moments of a run

LEADING = ("arms", "change", "learning")  # figures that stand before the tables
FOLDED = ("runs", "pairs")  # tables that are opened by a click
MOST_PATCHES = 4096  # that a browser can draw
# What keeps the page of hundreds of runs small enough to send:
MOST_RUNS = 100  # in player and curves; of more, the first seed of every order
MOST_ROWS = 1000  # of a table
MOST_MOMENTS = 60  # of a policy
FRAME_BYTES = 900_000  # of all policies
CURVE_VALUES = 80_000  # of all curves


class Page(NamedTuple):
    """What a page shows."""

    title: str
    verdicts: Sequence[str]  # the first is the main one
    tables: Sequence[Table]
    figures: Sequence[Picture]
    results: Sequence[Result]
    track: Sequence[tuple[int, int]] = ()  # cells; the player follows the first two
    group: str = ""  # the model and data that the player opens with
    own: Mapping[Path, OwnImages] = {}  # of run directories whose images have orders of their own


def write_page(path: Path, page: Page) -> None:
    """Write the page of finished runs."""
    environment = Environment(
        loader=PackageLoader("reorder.report", "page_assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.tests["number"] = lambda cell: isinstance(cell, Number)
    environment.globals |= {"numeric_columns": numeric_columns, "varied_columns": varied_columns}
    environment.globals |= {"png_uri": png_uri, "most_rows": MOST_ROWS}
    data, missing = page_data(page)
    text = environment.get_template("page.html").render(
        page._asdict(),
        lead=lead(page.results),
        leading=[picture for picture in page.figures if picture.name in LEADING],
        other_figures=[picture for picture in page.figures if picture.name not in LEADING],
        main_tables=[table for table in page.tables if table.name not in FOLDED],
        folded_tables=[table for table in page.tables if table.name in FOLDED],
        missing=missing,
        data=data,
    )
    replace_file(path, text)


def lead(results: Sequence[Result]) -> str:
    """What is compared, in a sentence."""
    ranked = sorted(results, key=rank)
    counts = sorted({len(group) for group in by_order(results).values()})
    seeds = " to ".join(map(str, counts[:1] + counts[-1:] if len(counts) > 1 else counts))
    runs = f"{len(results)} run{'s' * (len(results) != 1)} with {seeds} seed{'s' * (counts[-1] != 1)}"
    fields = {"model": "models", "data": "datasets", "order": "orders"}
    model, data, order = (_some([getattr(r, field) for r in ranked], many) for field, many in fields.items())
    return f"{runs}: {model} on {data}, in {order}."


def _some(names: list[str], what: str) -> str:
    """Up to four names, or how many there are."""
    names = list(dict.fromkeys(names))
    return "; ".join(names) if len(names) <= 4 else f"{len(names)} {what}"


def page_data(page: Page) -> tuple[dict[str, Any], list[str]]:
    """What curves and player show, and notes on what they leave out.

    An image is stored once however many runs share it.
    """
    results, notes = sorted(page.results, key=rank), []
    if len(results) > MOST_RUNS:
        shown = [group[0] for group in by_order(results).values()]
        notes.append(
            f"Player and curves have the first seed of every order: {len(shown)} of {len(results)} runs."
        )
        results = shown
    size = sum(_frame_bytes(result) for result in results if result.learns)
    moments = min(MOST_MOMENTS, max(2, FRAME_BYTES // max(1, size)))
    step = math.ceil(2 * sum(len(result.metrics) for result in results) / CURVE_VALUES)
    own = [page.own.get(result.run.path, NO_IMAGES) for result in results]
    images = most_images(own)
    if any(len(each.uris) > images for each in own):
        notes.append(f"Of images with orders of their own, the player has the first {images} of every run.")
    samples: dict[str, int] = {}
    found = []
    for result, kept in zip(results, [each.first(images) for each in own], strict=True):
        try:
            data = player_data(result, page.track, moments, kept.orders) | curve_data(result, max(1, step))
        except ValueError as error:
            notes.append(f"Without curves and player: {error}.")
            continue
        uri = sample_uri(result.run)
        sample = None if uri is None else samples.setdefault(uri, len(samples))
        places = [samples.setdefault(uri, len(samples)) for uri in kept.uris]
        found.append(data | {"sample": sample, "images": places})
    return {"runs": found, "samples": list(samples), "first": _first(found, page.group)}, notes


def sample_uri(run: RunDir) -> str | None:
    try:
        return png_uri((run.path / "sample.png").read_bytes())
    except OSError:  # older runs have none
        return None


def _first(found: list[dict[str, Any]], group: str) -> int:
    """The run that the player opens with: one that moved, of the main group, and learned."""
    wanted = [(len(run["at"]) > 1, run["group"] == group, run["kind"] == "learned") for run in found]
    return wanted.index(max(wanted)) if wanted else 0


def _frame_bytes(result: Result) -> int:
    """What one frame of a policy takes as base64: an order of one or two bytes, and logits of one."""
    patches = math.prod(result.grid)
    return patches * (2 if patches <= 256 else 3) * 4 // 3


def setting(result: Result) -> str:
    return f"{result.model} on {result.data}"


def curve_data(result: Result, step: int) -> dict[str, Any]:
    """The validation of a run after its epochs, of many only every so many and the last."""
    lines = result.run.metrics()
    lines = lines[:-1:step] + lines[-1:]
    return {
        "epochs": [line["epoch"] for line in lines],
        "top1": [rounded(100 * line["validation_top1"], 2) for line in lines],
        "loss": [rounded(line["validation_loss"], 3) for line in lines],
    }


def player_data(
    result: Result, track: Sequence[tuple[int, int]], most: int, own: np.ndarray = NO_IMAGES.orders
) -> dict[str, Any]:
    """A run's order at the moments that are shown, `at` so many epochs; one that does not move has its last.

    Moments between which nothing moved share a frame; `frame[moment]` says which. Orders are the policy's own
    modes, and go as bytes; logits are quantised to bytes from `low` to `high`. If images have orders of their
    own, `own` are those of some (n, N) at the end.
    """
    patches = math.prod(result.grid)
    if patches > MOST_PATCHES:
        raise ValueError(f"{result.run.path} reads {patches} patches, too many to draw")
    history = policy_of(result)
    kept = kept_moments(history.logits, most)
    logits, frame = distinct(history.logits[kept])
    initial = torch.from_numpy(history.initial)
    orders = [PlackettLuce(torch.from_numpy(values)).mode() for values in logits if logits.size]
    orders = orders or [initial]  # of a fixed order
    tau = [kendall_tau(order, initial) for order in orders]
    low, high = (float(limit) for limit in (logits.min(), logits.max())) if logits.size else (0.0, 0.0)
    shades = np.round(255 * (logits.astype(float) - low) / ((high - low) or 1)).astype(np.uint8)
    return {
        "name": f"{result.order}, seed {result.seed}",
        "group": setting(result),
        "seed": result.seed,
        "kind": result.kind,
        "grid": result.grid,
        "warmup": "in its start" if result.keys.get("order.warmup_order") == "init" else "row by row",
        # rounded down: an epoch that is not over has no validation yet; but 1.15 * 100 < 115
        "at": [math.floor(100 * epoch + 1e-6) / 100 for epoch in history.epochs[kept].tolist()],
        "stage": [history.stages[moment] for moment in kept],
        "temperature": [rounded(value, 3) for value in history.temperatures[kept].tolist()],
        "tau": [rounded(tau[number], 3) for number in frame],
        "frame": frame,
        "orders": packed(np.stack(orders)),
        "logits": base64_of(shades.tobytes()),
        "low": rounded(low, 4),
        "high": rounded(high, 4),
        "own": packed(own),
        "own_tau": [rounded(kendall_tau(torch.from_numpy(order), initial), 3) for order in own],
        "tracked": (tracked_patches(history.initial, result.grid, track) * 2)[:2],
    }


def kept_moments(logits: np.ndarray, most: int) -> list[int]:
    """At most so many moments of logits (M, N), evenly spaced; the last alone if nothing moves."""
    last = len(logits) - 1
    if not (logits != logits[0]).any():
        return [last]
    return sorted({round(moment) for moment in np.linspace(0, last, min(most, last + 1))})


def distinct(logits: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The logits (M, N) that differ from the moment before, and which of these each moment has."""
    new = np.concatenate([[True], (logits[1:] != logits[:-1]).any(axis=1)])
    return logits[new], (new.cumsum() - 1).tolist()


def rounded(value: float, digits: int) -> float | None:
    """A number as it is embedded; None for what JSON cannot hold."""
    return round(value, digits) if math.isfinite(value) else None
