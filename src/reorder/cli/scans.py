"""`reorder scans`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.checks import check_ending
from reorder.data.progress import visible
from reorder.orders.scans import check_grid


def scans(
    rows: Annotated[int, typer.Option(help="Rows of the grid.")] = 14,
    columns: Annotated[int, typer.Option(help="Columns of the grid.")] = 14,
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG, SVG or PDF file.")] = Path("scans.png"),
) -> None:
    """Draw the six scans of a grid, each from its blue start to its orange end.

    Example: `reorder scans --rows 14 --columns 14 -o scans.svg`
    """
    check_grid((rows, columns))
    check_ending(out)
    from reorder.report.figures import save_figure, scan_figure

    save_figure(scan_figure(rows, columns), out)
    print(visible(str(out)))
