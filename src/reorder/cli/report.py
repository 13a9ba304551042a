"""`reorder report`."""

import re
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or directories that hold some.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the report.")] = Path("report"),
    prior: Annotated[
        list[Path] | None,
        typer.Option(help="prior.json, to draw accuracy against compressibility; repeat for other grids."),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW,COLUMN",
            help="Patch to follow, counted from 1; the page's player takes the first two. "
            "Default: the central one and the first that is read.",
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="Radius of the centre, in patches; default: a quarter of the shorter side."),
    ] = None,
) -> None:
    """Compare runs: a verdict, tables as Markdown, CSV and LaTeX, figures, and a page with a player.

    The verdict says whether learned orders are better than row-major, with the paired error; verdict.json has
    it in numbers. Runs that are not finished, or have nothing to be compared with, are listed in the notes.

    Example: `reorder report runs/row runs/spiral-1 -o report`

    Example: `reorder report runs/laptop -o report --prior prior.json --track 4,4 --track 1,7`
    """
    cells = tuple(map(_cell, track or []))
    for path in runs:
        if not path.is_dir():
            raise ValueError(f"{path} is not a run directory, nor are there any in it")
    from reorder.data.progress import Display
    from reorder.report.results import expand
    from reorder.report.write import Options, show_report, write_report

    options = Options(cells, radius, tuple(prior or []))
    show_report(write_report(expand(runs), out, options), Display())


def _cell(text: str) -> tuple[int, int]:
    """The row and column that ROW,COLUMN names."""
    row, _, column = text.partition(",")
    if not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", number) for number in (row, column)):
        raise ValueError(f"--track takes ROW,COLUMN counted from 1, such as 4,4, got {text[:40]!r}")
    return int(row), int(column)
