"""`reorder order show|convert|compare`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.checks import check_ending, parse_grid
from reorder.data.progress import visible
from reorder.experiments.arguments import check_order_file

LISTS = (".npy", ".csv", ".txt")  # as in orders/lists.py, which is slow to import; a test compares them


def show(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Order files.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="PNG, SVG or PDF file to draw them in.")
    ] = None,
) -> None:
    """Show orders: the slot of each patch, the nearest scan, where they came from; and draw them.

    Example: `reorder order show runs/a/order.json -o order.png`
    """
    _check_files(files)
    if out is not None:
        check_ending(out)
    from reorder.data.progress import Display
    from reorder.orders.files import load_order
    from reorder.report.figures import check_drawable, save_figure
    from reorder.report.orders import describe_order, orders_figure

    found = {str(path): load_order(path) for path in files}
    if out is not None:
        check_drawable(out)
    for name, order in found.items():
        Display().say(describe_order(Path(name), order))
    if out is not None:
        save_figure(orders_figure(found), out)
        print(visible(str(out)))


def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A list of patches (.npy, .csv, .txt), or an order file.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The order file to write.")] = Path("order.json"),
    grid: Annotated[
        str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Grid of a list; default: a square.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Grid to resample the order to.")
    ] = None,
) -> None:
    """Turn a list of patches, in the sequence they are read, into an order file; or resample an order file.

    A list has one number per patch, counted row by row from 0: a one-dimensional array of numpy, or a text
    with commas, blanks or line ends between the numbers.

    Example: `reorder order convert mine.npy --grid 14x14 -o mine.json`

    Example: `reorder order convert runs/a/order.json --to 24x24 -o larger.json`
    """
    check_order_file(file)
    ending = file.suffix.lower()
    if ending not in (*LISTS, ".json"):
        raise ValueError(f"cannot convert {file}; choose a file that ends in {', '.join(LISTS)} or .json")
    if ending == ".json" and (grid or to is None):
        raise ValueError(f"{file} has a grid of its own; give --to ROWSxCOLUMNS to resample it")
    if out.suffix != ".json":
        raise ValueError(f"an order file ends in .json, got {str(out)!r}")
    given, wanted = (None if text is None else parse_grid(text) for text in (grid, to))
    from reorder.orders.disk import check_writable
    from reorder.orders.files import load_order, save_order
    from reorder.orders.lists import read_list
    from reorder.orders.resample import resample

    check_writable(out.parent)
    origin = {"file": file.name}
    if ending == ".json":
        order, own, provenance = load_order(file)
        origin = provenance | origin
    else:
        order, own = read_list(file, given)
    if wanted is not None and wanted != own:
        order, origin = resample(order, own, wanted), origin | {"resampled from": "{}x{}".format(*own)}
    save_order(out, order, wanted or own, origin)
    print(visible(str(out)))


def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Two order files or more, of one grid.")
    ],
) -> None:
    """Say how far orders are apart: Kendall's tau and Spearman's footrule of every two.

    Tau is 1 for the same order, 0 for unrelated ones, -1 for the reverse. The footrule is by how many slots
    the patches differ, added up; an order and its reverse have the largest, 100%.

    Example: `reorder order compare runs/a/order.json runs/b/order.json`
    """
    if len({path.resolve() for path in files}) < 2:
        raise ValueError("give two order files or more to compare")
    _check_files(files)
    from reorder.data.progress import Display
    from reorder.orders.files import load_order
    from reorder.report.orders import comparison_table
    from reorder.report.tables import terminal_table

    Display().console.print(terminal_table(comparison_table({str(path): load_order(path) for path in files})))


def _check_files(files: list[Path]) -> None:
    for path in files:
        check_order_file(path)


COMMANDS = (show, convert, compare)
