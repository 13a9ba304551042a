"""From run directories to what people read: tables, figures, animations, and a page."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reorder import charts, figures, page, policy_figures, tables
from reorder.analysis import coverage
from reorder.comparisons import Compared, compare
from reorder.evolution import check_cells, tracked_patches
from reorder.figures import MOST_BANDS, Picture
from reorder.files import replace_file
from reorder.result_tables import (
    Policy,
    centre_table,
    differences_table,
    gains_table,
    orders_table,
    other_orders_table,
    pairs_table,
    policies,
    runs_table,
    sensitivity_table,
    settings_table,
)
from reorder.results import Collection, Result, collect, policy_of
from reorder.run_dir import RunDir
from reorder.tables import Table


class Options(NamedTuple):
    """What a report can be asked for."""

    track: tuple[tuple[int, int], ...] = ()  # cells (row, column) to follow; by default two
    radius: float | None = None  # of the central patches, in patches
    priors: tuple[Path, ...] = ()  # files with the compressibility of each scan, one for every grid


MOST_POLICIES = 12  # drawn and animated; each takes seconds


def policies_to_show(learned: Sequence[Policy], notes: list[str]) -> list[Policy]:
    """The first seed of every start of every model and dataset; of too many, the first starts of each."""
    starts: dict[tuple[str, str], dict[str, Policy]] = {}
    for policy in learned:
        result = policy.result
        starts.setdefault((result.model, result.data), {}).setdefault(result.order, policy)
    turns = itertools.zip_longest(*(found.values() for found in starts.values()))
    shown = [policy for turn in turns for policy in turn if policy is not None]
    if len(learned) > len(shown[:MOST_POLICIES]):
        notes.append(
            f"Of {len(learned)} learned runs, the policies of {len(shown[:MOST_POLICIES])} are drawn and "
            "animated: the first seed and, of many, the first starts of each model and dataset."
        )
    return shown[:MOST_POLICIES]


def name_of(policy: Policy) -> str:
    """The name of a policy's figures."""
    result = policy.result
    return plain(f"policy {result.model} {result.data} {result.order} seed {result.seed}")


def plain(text: str) -> str:
    """Text that can be a file's name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-")


def result_pictures(collection: Collection, compared: Compared, options: Options) -> list[Picture]:
    """The figures of all runs together."""
    results = collection.results
    priors = {path: charts.read_prior(path) for path in options.priors}
    collection.notes.extend(charts.prior_notes(results, priors))
    drawn = [
        (
            "change",
            f"Change in top-1 against row-major. {charts.ERRORS}",
            charts.change_figure(compared.comparisons),
        ),
        (
            "learning",
            f"Fixed orders, equal noise, and REOrder. {charts.SHARED} {charts.ERRORS}",
            charts.learning_figure(results),
        ),
        (
            "compressibility",
            f"Top-1 of fixed scans against how well their codes compress. {charts.SHARED} {charts.ERRORS}",
            charts.compressibility_figure(results, list(priors.values())),
        ),
        ("curves", _curves_caption(results), charts.training_figure(results)),
    ]
    return [Picture(*each) for each in drawn if each[2] is not None]  # type: ignore[arg-type]


def _curves_caption(results: Sequence[Result]) -> str:
    panels = len({(result.model, result.data) for result in results})
    more = ""
    if panels > charts.MOST_PANELS:
        more = f" The first {charts.MOST_PANELS} of {panels} panels; the rest is in the page's own curves."
    return (
        f"Validation top-1 by epoch. {charts.SHARED} Bands, in panels of up to {MOST_BANDS} curves, are from "
        f"lowest to highest seed; colours are scans, line styles policies.{more}"
    )


def policy_pictures(shown: Sequence[Policy], options: Options) -> list[Picture]:
    """How each policy moved."""
    pictures = []
    for policy in shown:
        result = policy.result
        caption = (
            f"{result.order}, {result.model}, {result.data}, seed {result.seed}: the policy's logits, the "
            "slots of its mode, and tracked patches through the run."
        )
        patches = tracked_patches(policy.initial, result.grid, options.track)
        figure = policy_figures.evolution_figure(policy.evolution, patches)
        pictures.append(Picture(name_of(policy), caption, figure))
    return pictures


def background_pictures(results: Sequence[Result]) -> list[Picture]:
    """The scans of every grid that was read and, of several models, what they attend to."""
    pictures = [
        Picture(
            f"scans-{rows}x{columns}",
            f"The six scans of a {rows}x{columns} grid.",
            figures.scan_figure(rows, columns),
        )
        for rows, columns in sorted({result.grid for result in results})
    ]
    if len({result.summary["model"] for result in results}) > 1:  # it takes seconds, and tells models apart
        caption = (
            "How many tokens attend to each patch of a 7x7 grid, read in raster order, by mini models with "
            "default options, whatever the runs' own."
        )
        pictures.append(Picture("coverage", caption, figures.coverage_figure(coverage())))
    return pictures


def report_tables(
    collection: Collection, compared: Compared, learned: Sequence[Policy], radius: float | None
) -> list[Table]:
    """All tables that have a row or something to say; the first is what a reader looks for."""
    found = [
        orders_table(collection.results),
        sensitivity_table(collection.results),
        gains_table(compared),
        differences_table(compared),
        settings_table(collection.results),
        other_orders_table(collection),
        centre_table(learned, radius),
        runs_table(collection),
        pairs_table(compared),
    ]
    return [
        table for table in found if table.rows or (table.notes and table.name in ("differences", "scans"))
    ]


def write_report(
    runs: list[RunDir], directory: Path, options: Options | None = None
) -> tuple[Path, list[Table]]:
    """Write tables, figures, animations and a self-contained page; its path, and the tables.

    Everything is made from small files: config.yaml, summary.json, metrics.jsonl, correct.npy, policy.npz and
    evaluations/sensitivity.csv.
    """
    options = options or Options()
    collection = collect(runs)
    compared = compare(collection.results)
    learned = policies(collection.results, collection.notes)
    collection.notes.extend(check_cells(options.track, sorted({each.grid for each in collection.results})))
    shown = policies_to_show(learned, collection.notes)
    pictures = [*result_pictures(collection, compared, options), *policy_pictures(shown, options)]
    made = report_tables(collection, compared, learned, options.radius)
    pictures += background_pictures(collection.results)
    for table in made:
        tables.write_table(table, directory)
    for picture in pictures:
        for ending, content in picture.drawn.items():
            replace_file(directory / "figures" / f"{picture.name}.{ending}", content)
    for policy in shown:
        patches = tracked_patches(policy.initial, policy.result.grid, options.track)
        path = directory / "figures" / f"{name_of(policy)}.gif"
        policy_figures.write_animation(policy.evolution, patches, path)
    path = directory / "index.html"
    page.write_page(path, "Orders compared", made, pictures, collection.results, options.track)
    return path, made


def write_run_figures(run: RunDir) -> None:
    """The figures of one finished run, in its own directory: its curve and, if it learned, its orders."""
    result = collect([run]).results[0]
    top1 = np.array([[line["validation_top1"] for line in result.metrics]])
    curve = figures.Curve(top1, figures.stage_spans(result.keys))
    drawn = {"curves": figures.curve_figure(result.order, curve)} if result.metrics else {}
    if result.summary["policy"] == "global":
        history = policy_of(result)
        found = np.array(result.summary["order"])
        drawn["order"] = figures.order_figure(history.initial, found, result.grid)
        drawn["logits"] = figures.policy_figure(history.epochs, history.logits, history.initial)
    for name, figure in drawn.items():
        figures.save_figure(figure, run.path / "figures" / f"{name}.png")
