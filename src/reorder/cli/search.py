"""`reorder search`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.options import Jobs, SlurmOptions, ToTrain, check_slurm
from reorder.experiments.arguments import check_order_file, parse


def search(
    arguments: ToTrain = None,
    budget: Annotated[
        float, typer.Option(help="What the search may cost, in full trainings (train.epochs).")
    ] = 3.0,
    seeds: Annotated[int, typer.Option(help="Seeds of the runs that judge the order found.")] = 2,
    order: Annotated[
        list[Path] | None, typer.Option(help="An order file to try too; repeat for more.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: runs/NAME-search.")] = None,
    jobs: Jobs = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Submit each rung's runs to Slurm, and wait for them.")
    ] = False,
    slurm_option: SlurmOptions = None,
) -> None:
    """Search for an order: train many apart for a short time, keep the best, and say what the best is worth.

    Candidates are scans turned in every way, strided, blocked and random orders, order files, variations of
    the best of these, and what a straight-through run makes of the best. They are judged on images held out
    of the training split (data.held_out). At the end row-major, the best scan, a random order and the order
    found are trained in full with several seeds, and row-major for as long as the whole search took; with
    order.policy=image also the model with an order of its own for every image, learned from the order found.

    OUT gets search.json, order.json, verdict.json, search.png and a report. The same command continues a
    search that was stopped.

    Example: `reorder search digits model.options.readout=last model.options.segment=1 model.options.memory=2`

    Example: `reorder search mine.yaml --order runs/learned/order.json --budget 10 --seeds 3 --out runs/mine`

    Example: `reorder search paper/mamba-imagenet-row data.root=DIR train.epochs=20 --budget 10 --slurm`
    """
    if not 1 <= budget <= 1000:
        raise ValueError(f"--budget must be from 1 to 1000 full trainings, got {budget:g}")
    if not 1 <= seeds <= 100:
        raise ValueError(f"--seeds must be from 1 to 100, got {seeds}")
    check_slurm(slurm, slurm_option or [], jobs)
    experiment, name = parse(arguments or [])
    for path in order or []:
        check_order_file(path)
    from reorder.data.progress import Display
    from reorder.experiments.rungs import Asked
    from reorder.experiments.search import given_orders, run_search
    from reorder.experiments.trainers import on_slurm, on_this_machine
    from reorder.report.search import write_results

    where = (out if out is not None else Path("runs") / f"{name}-search").absolute()
    asked = Asked(experiment, where, budget, seeds, given_orders(order or [], experiment))
    display, command = Display(), shlex.join(["reorder", *sys.argv[1:]])
    place = (
        on_slurm(where / ".slurm", slurm_option or []) if slurm else on_this_machine(jobs, display, command)
    )
    with place as (train, machine):
        search = run_search(asked, train, machine, display)
    write_results(search, where, display)
