"""`reorder predict`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from reorder.runs.paths import check_trained


def predict(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run, one of its checkpoints, or an exported directory.")
    ],
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE", help="Image files, or directories in which images are found."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON with the probability of every class, instead of CSV.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 64,
) -> None:
    """Say what is in images: a line for each, with the most likely class and its probability, as CSV or JSON.

    Images are read as in training. One that cannot be read gets a line that says why.

    Example: `reorder predict runs/birds new/ photo.jpg > found.csv`

    Example: `reorder predict runs/birds new/ --json`
    """
    check_trained(run)
    for path in images:
        if not path.exists():
            raise ValueError(f"{path} does not exist")
    from rich.console import Console

    from reorder.data.progress import Display
    from reorder.data.ranks import accelerator
    from reorder.runs.loading import load
    from reorder.runs.predicting import image_files, predict_files, write_predictions

    files, out = image_files(images), sys.stdout  # not what a live bar puts in its place
    display = Display(out.isatty(), Console(stderr=True, markup=False, emoji=False))
    with display.progress("images", len(files)) as done:
        model = load(run).to(accelerator())
        found = predict_files(model, files, batch_size, done)
        broken = write_predictions(found, model.classes, out, as_json)
    if broken:
        display.say(f"{broken} of {len(files)} images could not be read")
    if broken == len(files):
        raise typer.Exit(2)
