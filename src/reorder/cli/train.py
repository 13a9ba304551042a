"""`reorder train`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.options import ToTrain
from reorder.config import check_continuation, notes
from reorder.experiments.arguments import parse
from reorder.experiments.arms import comparison
from reorder.experiments.presets import PRESETS, describe, preset
from reorder.runs.paths import check_run


def train(
    arguments: ToTrain = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; default: runs/NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this directory.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Draw no figures and no page.")] = False,
    list_presets: Annotated[bool, typer.Option("--list", help="List the presets and exit.")] = False,
) -> None:
    """Train a model, with a fixed order or one that is learned.

    Keys: model.name, model.size, model.image_size, model.patch_size, model.options.\\*, data.name, data.root,
    data.augment, train.epochs, train.batch_size, train.learning_rate, train.seed, train.compare, train.track,
    order.scan, order.policy, order.estimator, order.temperature, order.learning_rate, and more in a run's
    config.yaml.

    Example: `reorder train digits order.scan=spiral train.seed=1 --out runs/spiral-1`

    Example: `reorder train --resume runs/spiral-1` (with `train.epochs=300` to make it longer)

    Example: `torchrun --nproc-per-node 2 -m reorder train digits`
    """
    if list_presets:
        width = max(map(len, PRESETS))
        for name in PRESETS:
            print(f"{name:{width}}  {describe(preset(name))}")
        return
    if resume is not None and out is not None:
        raise ValueError("--resume continues in its own directory; leave --out away")
    if resume is None:
        experiment, name = parse(arguments or [])
        comparison(experiment)  # refuses arms that do not exist
    else:
        check_run(resume)
        check_continuation(arguments or [])
    from reorder.data.progress import Display
    from reorder.data.ranks import join
    from reorder.experiments.comparison import compared_tasks, train_tasks
    from reorder.report.write import show_report, write_report, write_run_figures
    from reorder.runs.directory import RunDir
    from reorder.training.continuing import continued, reopen

    if resume is not None:
        directory = RunDir(resume)
        experiment = continued(directory.experiment(), arguments or [])
    else:
        directory = RunDir(out if out is not None else Path("runs") / name)
    with join(experiment.train.timeout_minutes) as world:
        display = Display(quiet or not world.first)
        if resume is not None:
            experiment = reopen(directory, arguments or [], display)
        for note in notes(experiment):
            display.say(f"note: {note}")
        tasks = compared_tasks(experiment, directory)
        train_tasks(tasks, display, world, command=shlex.join(["reorder", *sys.argv[1:]]))
        if world.first and not no_report:
            runs = [task.directory for task in reversed(tasks)]
            for run in runs:
                write_run_figures(run)
            show_report(write_report(runs, directory.path / "report"), display)
