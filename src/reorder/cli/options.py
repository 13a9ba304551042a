"""Arguments that several commands share, and what is refused of them."""

from typing import Annotated

import typer

from reorder.experiments.arguments import slurm_parameter

ToTrain = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PRESET | FILE.yaml] [key=value ...]", help="What to train; default: digits."),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes at a time; default: one per GPU, or per core.")
]
SlurmOptions = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="What Slurm is asked for; repeat for more.")
]


def check_slurm(slurm: bool, options: list[str], jobs: int | None) -> None:
    """Refuse options of Slurm without it, those that it cannot have, and a number of processes with it."""
    if options and not slurm:
        raise ValueError("--slurm-option is for --slurm")
    if jobs and slurm:
        raise ValueError("--jobs is for this machine; Slurm has a job for each run")
    for option in options:
        slurm_parameter(option)
