"""`reorder export`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.data.progress import visible
from reorder.runs.paths import check_trained


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or one of its checkpoints.")],
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an ONNX file.")] = None,
    torch_export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a program for torch.export.load, a .pt2 file.")
    ] = None,
    hub: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a directory to push to the Hugging Face hub.")
    ] = None,
) -> None:
    """Export a trained model for other programs, with its order in it, for any number of images.

    The input `images` is float32 (batch, channels, height, width), normalised as in training; the output
    `logits` is (batch, classes). The names of the classes, mean, deviation and size are in the file's
    metadata. What is written is loaded again and compared with the model before it is kept.

    Example: `reorder export runs/birds --onnx birds.onnx`

    Example: `reorder export runs/birds --torch-export birds.pt2 --hub birds`
    """
    wanted = {"onnx": onnx, "torch_export": torch_export, "hub": hub}
    if not any(wanted.values()):
        raise ValueError("say what to write: --onnx FILE, --torch-export FILE or --hub DIR")
    for path in (onnx, torch_export):
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a directory; give a file to write")
    if hub is not None and hub.exists():
        raise ValueError(f"{hub} exists; choose another directory")
    check_trained(run)
    from reorder.orders.disk import check_writable
    from reorder.runs.export import export_hub, export_onnx, export_torch
    from reorder.runs.loading import load

    writers = {"onnx": export_onnx, "torch_export": export_torch, "hub": export_hub}
    for path in wanted.values():
        if path is not None:
            check_writable(path.parent)
    model = load(run)
    for kind, path in wanted.items():
        if path is not None:
            writers[kind](model, path)
            print(visible(str(path)))
