"""`reorder prior`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.experiments.arguments import check_order_file, parse
from reorder.models.grid import grid_of
from reorder.prior.options import check_measurable, check_tokenizer


def prior(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET | FILE.yaml] [key=value ...]", help="Whose data and patches; default: digits."
        ),
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="kmeans, vqvae or chameleon.")] = "kmeans",
    codebook: Annotated[
        int | None, typer.Option(help="Size of the codebook; default: from the number of patches.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Chameleon's weights: a directory, or a name on the hub.")
    ] = None,
    images: Annotated[int | None, typer.Option(help="How many, chosen at random; default: all.")] = None,
    scope: Annotated[
        str, typer.Option(help="Compress each image alone (image), or many together (corpus).")
    ] = "image",
    order: Annotated[
        list[Path] | None, typer.Option(help="An order file to measure too; repeat for more.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write.")] = Path("prior"),
    cache: Annotated[
        Path | None, typer.Option(help="Where codes are kept; default: ~/.cache/reorder.")
    ] = None,
) -> None:
    """Measure how compressible the training images are in each scan, and name the least compressible.

    Patches become codes, which are laid out in each scan, in the orders given, and in a random one as the
    floor. LZMA by single codes and by pairs, and two conditional entropies, rank them. OUT gets prior.json,
    table.md and prior.png; `reorder report RUNS --prior OUT/prior.json` draws top-1 against reduction.
    `order.scan=prior` trains with the scan that is found.

    Example: `reorder prior data.name=idx model.image_size=28 model.patch_size=4 --out prior/fashion`

    Example: `reorder prior paper/vit-imagenet-row data.root=imagenet --tokenizer chameleon --weights DIR`

    """
    experiment, _ = parse(arguments or [])
    check_tokenizer(tokenizer, codebook, weights, images)
    check_measurable(grid_of(experiment.model.image_shape, experiment.model.patch_size), images or 2, scope)
    for path in order or []:
        check_order_file(path)
    from reorder.report.prior import write_prior

    options = {"tokenizer": tokenizer, "codebook_size": codebook, "weights": weights, "images": images}
    write_prior(experiment, options, scope, order or [], out, cache)
