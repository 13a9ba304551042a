"""`reorder coverage`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.checks import check_ending
from reorder.data.progress import visible
from reorder.models.grid import grid_of
from reorder.models.sizes import size_of


def coverage(
    image_size: Annotated[int, typer.Option(help="Side of the image in pixels.")] = 224,
    patch_size: Annotated[int, typer.Option(help="Side of a patch in pixels.")] = 32,
    size: Annotated[str, typer.Option(help="Size of the models; the maps do not depend on it.")] = "mini",
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG, SVG or PDF file.")] = Path("coverage.png"),
) -> None:
    """Draw how many tokens attend to each patch in each model, and write the numbers beside it as JSON.

    Example: `reorder coverage --patch-size 32 -o coverage.png`
    """
    check_ending(out)
    grid_of(image_size, patch_size)
    size_of(size)
    from reorder.models.coverage import coverage as count_coverage
    from reorder.models.coverage import write_coverage
    from reorder.report.figures import check_drawable, coverage_figure, save_figure

    check_drawable(out)
    result = count_coverage(image_size, patch_size, size)
    save_figure(coverage_figure(result), out)
    write_coverage(result, out.with_suffix(".json"))
    print(visible(str(out)))
    print(visible(str(out.with_suffix(".json"))))
