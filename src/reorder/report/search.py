"""What a search leaves for people: a figure of its rungs, a table of its last runs, and a report of these."""

from pathlib import Path

from matplotlib.figure import Figure

from reorder.data.progress import Display
from reorder.report.figures import save_figure
from reorder.report.tables import Cell, Number, Table, terminal_table, write_table
from reorder.report.write import write_report
from reorder.runs.directory import RunDir
from reorder.runs.searches import Search

# Told apart by the colour-blind, and by marker.
TRIED, ROW, CHOSEN = "#9a9a9a", "#000000", "#d55e00"


def search_figure(search: Search) -> Figure:
    """Top-1 on the images held out, by rung: a line per candidate, row-major and the chosen one marked."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for candidate in search.candidates:
        found = [
            (place, score)
            for place, rung in enumerate(search.rungs, start=1)
            for score in rung.scores
            if score.name == candidate.name
        ]
        places, scores = [place for place, _ in found], [score for _, score in found]
        colour, marker, size = TRIED, ".", 4
        if candidate.name in ("row", search.chosen):
            colour, marker, size = (ROW, "s", 6) if candidate.name == "row" else (CHOSEN, "D", 6)
        axes.errorbar(
            places,
            [100 * score.top1 for score in scores],
            yerr=[100 * score.top1_sem for score in scores] if colour != TRIED else None,
            color=colour,
            marker=marker,
            markersize=size,
            linewidth=0.8 if colour == TRIED else 1.6,
            zorder=1 if colour == TRIED else 2,
            capsize=3,
            label={ROW: "row-major", CHOSEN: f"chosen: {search.chosen}"}.get(colour),
        )
    ticks = [f"{rung.source}\n{rung.epochs} epoch{'s' * (rung.epochs > 1)}" for rung in search.rungs]
    axes.set_xticks(range(1, len(ticks) + 1), ticks)
    axes.set(ylabel="top-1 on images held out (%)", title=f"{len(search.candidates)} orders, trained apart")
    axes.legend(loc="best", fontsize=9)
    return figure


def final_table(search: Search) -> Table:
    """The orders that were trained in full."""
    rows: list[tuple[Cell, ...]] = [
        (
            arm.name,
            arm.order,
            Number(arm.epochs, digits=0),
            Number(100 * arm.top1, 100 * arm.top1_sem),
            Number(arm.difference, arm.difference_sem),
        )
        for arm in search.arms
    ]
    return Table(
        "search",
        "Top-1 on the validation split of orders trained in full, and the paired difference to row-major. "
        "After ± stands the larger of the standard errors over seeds and over images.",
        ("", "order", "epochs", "top-1 (%)", "against row-major (points)"),
        rows,
        [] if search.verdict is None else [f"{search.verdict}."],
    )


def write_results(search: Search, directory: Path, display: Display) -> None:
    """Draw the rungs, write the report of the last runs, and say what was found."""
    save_figure(search_figure(search), directory / "search.png")
    usual = search.arms[0].epochs  # one that was trained for longer has nothing beside it in a report
    runs = dict.fromkeys(path for arm in search.arms if arm.epochs == usual for path in arm.runs)
    page = write_report([RunDir(directory / path) for path in runs], directory / "report").page
    table = final_table(search)
    write_table(table, directory / "report")
    display.console.print(terminal_table(table))
    display.say(f"{search.verdict}.")
    display.say(f"order: {directory / 'order.json'}; rungs: {directory / 'search.png'}; report: {page}")
