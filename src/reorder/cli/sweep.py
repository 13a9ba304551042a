"""`reorder sweep`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.options import Jobs, SlurmOptions, check_slurm
from reorder.experiments.arguments import plans_of
from reorder.experiments.studies import STUDIES


def sweep(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY | PRESET | FILE.yaml] [key=v1,v2,... ...]", help="What to run; default: digits."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the run directories go; default: runs/NAME.")
    ] = None,
    jobs: Jobs = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and the time they need, and exit.")
    ] = False,
    slurm: Annotated[bool, typer.Option("--slurm", help="Submit the runs to Slurm, and exit.")] = False,
    slurm_option: SlurmOptions = None,
    list_studies: Annotated[bool, typer.Option("--list", help="List the studies and exit.")] = False,
) -> None:
    """Train a grid of experiments, or a named study, each run in a directory named by its content.

    Finished runs are recognised, interrupted ones continued, failed ones tried again. The values of a study
    can be changed like those of a preset, for all its runs. A short key such as `seed` means train.seed.

    Example: `reorder sweep digits model.name=vit,mamba scan=row,column policy=none,noise,global seed=0,1,2`

    Example: `reorder sweep laptop/orders --dry-run`

    Example: `reorder sweep paper/orders data.root=/data --slurm --slurm-option gpus_per_node=4`
    """
    if list_studies:
        width = max(map(len, STUDIES))
        for name, study in STUDIES.items():
            count = len(study())
            print(f"{name:{width}}  {count:3} runs  {study.__doc__}")
        return
    plans, name = plans_of(arguments or [])
    check_slurm(slurm, slurm_option or [], jobs)
    from reorder.data.progress import Display
    from reorder.data.ranks import join
    from reorder.experiments.forecast import forecast
    from reorder.experiments.grids import check_here, tasks_of
    from reorder.experiments.here import Machine, run_here
    from reorder.experiments.slurm import submit
    from reorder.experiments.workers import Pool

    tasks = tasks_of(plans, (out if out is not None else Path("runs") / name).absolute())
    machine, where = Machine(jobs, len(tasks)), tasks[0].directory.path.parent
    if dry_run:
        with join() as world:
            for line in forecast(tasks, machine.jobs, machine.threads, world):
                print(line)
    elif slurm:
        submitted = submit(tasks, where / ".slurm", slurm_option or [])
        print(f"{len(submitted)} jobs submitted; the runs go to {where}, submitit's files to {where}/.slurm")
    else:
        check_here(tasks)
        with Pool(machine) as pool:
            run_here(tasks, machine, Display().console, shlex.join(["reorder", *sys.argv[1:]]), pool)
