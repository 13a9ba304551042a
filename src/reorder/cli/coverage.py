"""`reorder coverage`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.data.progress import visible


def coverage(
    image_size: Annotated[int, typer.Option(help="Side of the image in pixels.")] = 224,
    patch_size: Annotated[int, typer.Option(help="Side of a patch in pixels.")] = 32,
    size: Annotated[str, typer.Option(help="Size of the models; the maps do not depend on it.")] = "mini",
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG, SVG or PDF file.")] = Path("coverage.png"),
) -> None:
    """Draw how many tokens attend to each patch in each model, and write the numbers beside it as JSON.

    Example: `reorder coverage --patch-size 32 -o coverage.png`
    """
    from reorder.models.coverage import coverage as count_coverage
    from reorder.models.coverage import write_coverage
    from reorder.report.figures import check_drawable, coverage_figure, save_figure

    check_drawable(out)
    result = count_coverage(image_size, patch_size, size)
    save_figure(coverage_figure(result), out)
    write_coverage(result, out.with_suffix(".json"))
    print(visible(str(out)))
    print(visible(str(out.with_suffix(".json"))))
