"""From run directories to what people read: a table, figures, and a page."""

import base64
import html
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from reorder import figures
from reorder.run_dir import RunDir


class Row(NamedTuple):
    name: str
    summary: dict[str, Any]


HEADINGS = ("order", "model", "top-1 (%)", "top-5 (%)", "images/s")


def name_of(summary: dict[str, Any]) -> str:
    """What a run reads in: a fixed scan, what was learned from one, or any order."""
    scan = Path(summary["scan"]).stem
    if "prior_scan" in summary:
        scan = f"prior ({summary['prior_scan']})"
    names = {"none": f"{scan}, fixed", "global": f"learned from {scan}", "random": "random every batch"}
    return names[summary["policy"]]


def rows_of(runs: list[RunDir]) -> list[Row]:
    """A row per run directory; all of them must be finished."""
    summaries = []
    for run in runs:
        run.experiment()  # refuses what is not a run directory
        summary = run.summary()
        if summary is None:
            raise ValueError(
                f"{run.path} is not finished; continue it with: reorder train --resume {run.path}"
            )
        summaries.append(summary)
    names = [name_of(summary) for summary in summaries]
    # Runs that read alike are told apart by model, then by seed, then by directory.
    for tell in ("{model}", "seed {seed}", "{path}"):
        if len(set(names)) == len(names):
            break
        names = [
            f"{name} {tell.format(path=run.path, **summary)}" if names.count(name) > 1 else name
            for name, summary, run in zip(names, summaries, runs, strict=True)
        ]
    return [Row(name, summary) for name, summary in zip(names, summaries, strict=True)]


def cells_of(row: Row) -> tuple[str, ...]:
    summary = row.summary
    return (
        row.name,
        f"{summary['model']} {summary['size']}",
        f"{100 * summary['top1']:.2f} ± {100 * summary['top1_sem']:.2f}",
        f"{100 * summary['top5']:.2f}",
        f"{summary['images_per_second']:.0f}",
    )


def terminal_table(rows: list[Row]) -> Table:
    table = Table(*HEADINGS, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for row in rows:
        table.add_row(*cells_of(row))
    return table


def markdown_table(rows: list[Row]) -> str:
    lines = [HEADINGS, ("---",) * len(HEADINGS), *map(cells_of, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def run_figures(run: RunDir, row: Row) -> dict[str, Figure]:
    """Figures of one run that learns: where its policy started and ended, and its logits by epoch."""
    if row.summary["policy"] in ("none", "random"):
        return {}
    logits, initial = run.policy()
    grid = (row.summary["grid"][0], row.summary["grid"][1])
    return {
        f"{row.name} order": figures.order_figure(initial, np.array(row.summary["order"]), grid),
        f"{row.name} logits": figures.policy_figure(logits, initial),
    }


def write_figures(drawn: dict[str, Figure], directory: Path) -> None:
    for name, figure in drawn.items():
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", name)
        figures.save_figure(figure, directory / f"{plain}.png")


def write_report(runs: list[RunDir], directory: Path) -> Path:
    """Write table.md, the figures, and a self-contained index.html; the path of the page.

    Each run's own figures go to its directory as well.
    """
    rows = rows_of(runs)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "table.md").write_text(markdown_table(rows))
    drawn = {
        "curves": figures.curve_figure(
            [(row.name, run.metrics()) for row, run in zip(rows, runs, strict=True)]
        )
    }
    for run, row in zip(runs, rows, strict=True):
        own = run_figures(run, row)
        write_figures(
            {"curves": figures.curve_figure([(row.name, run.metrics())]), **own}, run.path / "figures"
        )
        drawn |= own
    write_figures(drawn, directory / "figures")
    page = directory / "index.html"
    page.write_text(PAGE.format(table=html_table(rows), figures="\n".join(map(embed, drawn, drawn.values()))))
    return page


def embed(name: str, figure: Figure) -> str:
    """A figure inside a page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    label = html.escape(name)
    picture = f'<img alt="{label}" src="data:image/png;base64,{encoded}">'
    return f"<figure>{picture}<figcaption>{label}</figcaption></figure>"


def html_table(rows: list[Row]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in HEADINGS)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells_of(row)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>reorder: results</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: right; white-space: nowrap; }}
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left; }}
figure {{ margin: 2rem 0; }}
img {{ max-width: 100%; height: auto; }}
figcaption {{ color: #555; }}
</style>
<h1>Orders compared</h1>
<p>Top-1 and top-5 on the validation images. After ± stands the standard error of top-1, by bootstrap over the
images; it does not include the variation between seeds.</p>
{table}
{figures}
</html>
"""
