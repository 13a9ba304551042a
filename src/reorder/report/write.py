"""From run directories to what people read: a verdict, tables, figures, and a page."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from reorder.data.progress import Display
from reorder.orders.disk import replace_file
from reorder.report import charts, figures
from reorder.report.charts import ERRORS, SHARED
from reorder.report.comparisons import Compared, compare
from reorder.report.evolution import check_cells, tracked_patches
from reorder.report.figures import Picture
from reorder.report.page import Page, write_page
from reorder.report.page_images import own_images
from reorder.report.policy_figures import evolution_figure
from reorder.report.prior_figures import Prior, compressibility_figure, prior_notes, read_prior
from reorder.report.result_tables import (
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
from reorder.report.results import Result, collect, policy_of
from reorder.report.tables import Table, terminal_table, write_table
from reorder.report.verdicts import Group, groups_of, main_group
from reorder.runs.directory import RunDir
from reorder.runs.verdict import write_verdict


class Options(NamedTuple):
    """What a report can be asked for."""

    track: tuple[tuple[int, int], ...] = ()  # cells (row, column) to follow; by default two
    radius: float | None = None  # of the central patches, in patches
    priors: tuple[Path, ...] = ()  # files with the compressibility of each scan, one for every grid


ARMS = (
    "Every way to read against fixed row-major, in paired points of top-1. On the same seeds and validation "
    "images, each the mean over its starts. Bars: the larger of the standard errors over seeds and over "
    "images. The best other scan is chosen after the fact."
)
SAY_WHY = ("differences", "scans", "other-orders")  # tables whose notes say why they have no row


class Report(NamedTuple):
    page: Path
    verdicts: list[str]  # the main group's, then a sentence on each other group
    tables: list[Table]  # the first is what a reader looks for
    notes: list[str]  # what was left out, and why


MOST_POLICIES = 12  # drawn; each takes seconds
MOST_LINES = 30  # of a table on the terminal


def policies_to_draw(learned: Sequence[Policy]) -> tuple[list[Policy], list[str]]:
    """The first seed of every start of every model and dataset, of many the first starts; and notes."""
    starts: dict[tuple[str, str], dict[str, Policy]] = {}
    for policy in learned:
        result = policy.result
        starts.setdefault((result.model, result.data), {}).setdefault(result.order, policy)
    turns = itertools.zip_longest(*(found.values() for found in starts.values()))
    shown = [policy for turn in turns for policy in turn if policy is not None][:MOST_POLICIES]
    if len(learned) == len(shown):
        return shown, []
    which = "the first seed and, of many, the first starts of each model and dataset"
    return shown, [f"Of {len(learned)} learned runs, the policies of {len(shown)} are drawn: {which}."]


def result_pictures(
    results: Sequence[Result], pairs: pd.DataFrame, groups: Sequence[Group], priors: Sequence[Prior]
) -> list[Picture]:
    """The figures of all runs together, the one that shows the verdict first."""
    learning = f"Fixed orders, equal noise, and learned orders, by start. {SHARED} {ERRORS}"
    scatter = f"Top-1 of fixed scans against how well their codes compress. {SHARED} {ERRORS}"
    drawn = [
        ("arms", ARMS, charts.arms_figure(groups)),
        ("change", f"Change in top-1 against row-major. {ERRORS}", charts.change_figure(pairs)),
        ("learning", learning, charts.learning_figure(results)),
        ("compressibility", scatter, compressibility_figure(results, priors)),
    ]
    return [Picture(name, caption, figure) for name, caption, figure in drawn if figure is not None]


def policy_pictures(shown: Sequence[Policy], options: Options) -> list[Picture]:
    """How each policy moved."""
    pictures = []
    for result, evolution, initial in shown:
        name = f"policy {result.model} {result.data} {result.order} seed {result.seed}"
        patches = tracked_patches(initial, result.grid, options.track)
        file_name = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-")
        pictures.append(Picture(file_name, name, evolution_figure(evolution, patches)))
    return pictures


def report_tables(
    results: Sequence[Result],
    compared: Compared,
    learned: Sequence[Policy],
    radius: float | None,
    notes: list[str],
) -> list[Table]:
    """All tables that have a row or something to say; that of the runs has the notes."""
    found = [
        orders_table(results),
        sensitivity_table(results),
        gains_table(compared),
        differences_table(compared),
        settings_table(results),
        other_orders_table(results),
        centre_table(learned, radius),
        runs_table(results, notes),
        pairs_table(compared),
    ]
    return [table for table in found if table.rows or (table.name in SAY_WHY and table.notes)]


def write_report(runs: list[RunDir], directory: Path, options: Options | None = None) -> Report:
    """Write verdict, tables, figures and a self-contained page.

    Everything is made from small files: config.yaml, summary.json, metrics.jsonl, correct.npy, policy.npz,
    own_orders.npz and evaluations/sensitivity.csv.
    """
    options = options or Options()
    results, notes = collect(runs)
    compared = compare(results)
    groups = groups_of(results, compared.pairs)
    learned, without_policy = policies(results)
    drawn, not_drawn = policies_to_draw(learned)
    own, without_images = own_images(results)
    priors = {path: read_prior(path) for path in options.priors}
    notes += without_policy + check_cells(options.track, sorted({each.grid for each in results}))
    notes += without_images + not_drawn + prior_notes(results, priors)
    overview = result_pictures(results, compared.pairs, groups, list(priors.values()))
    tables = report_tables(results, compared, learned, options.radius, notes)
    for table in tables:
        write_table(table, directory)
    for picture in overview + policy_pictures(drawn, options):
        for ending, content in picture.drawn.items():
            replace_file(directory / "figures" / f"{picture.name}.{ending}", content)
    main = main_group(groups)
    if main.verdict:
        write_verdict(directory / "verdict.json", main.verdict)
    else:
        (directory / "verdict.json").unlink(missing_ok=True)
    verdicts = [" ".join(main.sentences), *(group.sentences[0] for group in groups if group is not main)]
    path = directory / "index.html"
    about = f"{main.model} on {main.data}"
    write_page(path, Page("Orders compared", verdicts, tables, overview, results, options.track, about, own))
    return Report(path, verdicts, tables, notes)


def show_report(report: Report, display: Display) -> None:
    """Say the verdict, show the first table unless it is long, and say where the rest is."""
    for text in report.verdicts:
        display.say(text)
    first = report.tables[0]
    if len(first.rows) <= MOST_LINES:
        display.console.print(terminal_table(first, shown=5))
    for note in report.notes:
        display.say(f"note: {note}")
    display.say(f"report: {report.page}")


def write_run_figures(run: RunDir) -> None:
    """The figures of one finished run, in its own directory: its curve and, if it learned, its orders."""
    (result,) = collect([run]).results
    drawn = {}
    if result.metrics:
        top1 = np.array([line["validation_top1"] for line in result.metrics])
        drawn["curves"] = figures.curve_figure(result.order, top1, figures.stage_spans(result.keys))
    if result.learns:
        history = policy_of(result)
        found = np.array(result.summary["order"])
        drawn["order"] = figures.order_figure(history.initial, found, result.grid)
        drawn["logits"] = figures.policy_figure(history.epochs, history.logits, history.initial)
    for name, figure in drawn.items():
        figures.save_figure(figure, run.path / "figures" / f"{name}.png")
