"""Where the runs of a search are trained: here, by processes that train many, or by jobs of Slurm."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reorder.data.progress import Display
from reorder.experiments.here import Machine, run_here
from reorder.experiments.rungs import Train
from reorder.experiments.slurm import submit_and_wait
from reorder.experiments.workers import Pool

MANY = 1_000_000  # runs: as many processes as there are cores, whichever rung has few


@contextmanager
def on_this_machine(
    jobs: int | None, display: Display, command: str
) -> Iterator[tuple[Train, Machine | None]]:
    """Train so many runs at a time; Ctrl-C leaves them saved, and `command` continues."""
    machine = Machine(jobs, MANY)
    with Pool(machine) as pool:
        yield lambda tasks: run_here(tasks, machine, display.console, command, pool), machine


@contextmanager
def on_slurm(folder: Path, options: list[str]) -> Iterator[tuple[Train, Machine | None]]:
    """Train each run in a job of its own, and wait for all; submitit's files go to `folder`."""
    yield lambda tasks: submit_and_wait(tasks, folder, options), None
