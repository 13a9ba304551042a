"""The command line: arguments only."""

import importlib.util
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import reorder
from reorder.config import Experiment, build, notes
from reorder.data.progress import Display, visible
from reorder.data.ranks import Lost, join
from reorder.experiments.forecast import forecast
from reorder.experiments.grids import check_here, plans_of, tasks_of
from reorder.experiments.here import Machine, run_here
from reorder.experiments.presets import PRESETS, describe, preset
from reorder.experiments.slurm import submit
from reorder.experiments.studies import STUDIES
from reorder.models.coverage import coverage as count_coverage
from reorder.models.coverage import write_coverage
from reorder.orders.scans import scan
from reorder.report.evaluation import (
    compare_runs,
    describe_difference,
    describe_evaluation,
    evaluate_run,
    order_sensitivity,
)
from reorder.report.figures import check_drawable, coverage_figure, save_figure, scan_figure
from reorder.report.results import expand
from reorder.report.tables import terminal_table
from reorder.report.write import Options, write_report, write_run_figures
from reorder.runs.directory import RunDir
from reorder.training.continuing import continued, reopen
from reorder.training.loop import train as train_one
from reorder.training.loop import train_with_comparison
from reorder.training.signals import Stopped, StopSignals, requeue

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        print(f"reorder {reorder.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn the order in which long-sequence vision models read an image's patches.

    Example: `reorder train digits`
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def _split_arguments(arguments: list[str]) -> tuple[Experiment, Path | None, list[str], str]:
    """The base experiment, YAML file, overrides and name that `[PRESET | FILE.yaml] [key=value ...]` mean."""
    if not arguments or "=" in arguments[0]:
        return preset("digits"), None, arguments, "digits"
    first, rest = arguments[0], arguments[1:]
    if first.endswith((".yaml", ".yml")):
        return Experiment(), Path(first), rest, Path(first).stem
    return preset(first), None, rest, first


@app.command()
def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET | FILE.yaml] [key=value ...]", help="What to train; default: digits."
        ),
    ] = None,
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
    if resume is not None:
        if out is not None:
            raise ValueError("--resume continues in its own directory; leave --out away")
        directory = RunDir(resume)
        experiment = continued(directory.experiment(), arguments or [])
    else:
        base, file, overrides, name = _split_arguments(arguments or [])
        experiment = build(base, file, overrides)
        directory = RunDir(out if out is not None else Path("runs") / name)
    with join(experiment.train.timeout_minutes) as world:
        display = Display(quiet or not world.first)
        if resume is not None:
            experiment = reopen(directory, arguments or [], display)
        for note in notes(experiment):
            display.say(f"note: {note}")
        with StopSignals().watched() as stop:
            if experiment.train.compare:
                runs = train_with_comparison(experiment, directory, display, world, stop)
            else:
                train_one(experiment, directory, display, world, stop)
                runs = [directory]
        if world.first and not no_report:
            for run in runs:
                write_run_figures(run)
            page, (first, *_) = write_report(runs, directory.path / "report")
            display.console.print(terminal_table(first, shown=6))
            display.say(f"report: {page}")


@app.command()
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
    from reorder.report.prior import write_prior  # here, for other commands do without it

    base, file, overrides, _ = _split_arguments(arguments or [])
    experiment = build(base, file, overrides)
    options = {"tokenizer": tokenizer, "codebook_size": codebook, "weights": weights, "images": images}
    write_prior(experiment, options, scope, order or [], out, cache)


@app.command()
def evaluate(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN | A B", help="A run to evaluate, or two to compare.")
    ],
    order: Annotated[Path | None, typer.Option(help="Order file to read in; default: the run's own.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Other data; repeat for more keys.")
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Compare all scans, a random and the reversed own order.")
    ] = False,
) -> None:
    """Evaluate a run's last checkpoint, or compare two finished runs image by image.

    One run: top-1, top-5 and loss, with bootstrap standard errors and 95% intervals; they and the
    correctness of each image are kept in RUN/evaluations. Other data are prepared as they would be for
    training. Two runs: the paired difference in top-1, A minus B, and McNemar's test.

    Example: `reorder evaluate runs/spiral-1 --order runs/row/order.json`

    Example: `reorder evaluate runs/spiral-1 --data root=DIR`

    Example: `reorder evaluate runs/spiral-1 --sensitivity` (how well it reads in other orders than its own)

    Example: `reorder evaluate runs/spiral-1 runs/row`
    """
    if len(runs) > 2:
        raise ValueError(f"give one run to evaluate or two to compare, not {len(runs)}")
    directories = [RunDir(path) for path in runs]
    if len(directories) == 1 and sensitivity:
        if order is not None:
            raise ValueError("--sensitivity chooses its own orders; leave --order away")
        with join() as world:
            display, table = Display(not world.first), order_sensitivity(directories[0], data or [], world)
        display.console.print(terminal_table(table))
        display.say(f"saved: {directories[0].path / 'evaluations' / f'{table.name}.md'}")
        return
    if len(directories) == 1:
        with join() as world:
            where, result = evaluate_run(directories[0], order, data or [], world)
        Display(not world.first).say(f"{describe_evaluation(result)}\nsaved: {where}")
        return
    if order is not None or data or sensitivity:
        raise ValueError(
            "--order, --data and --sensitivity are for one run; repeat --data for each key=value"
        )
    a, b = directories
    if a.path.resolve() == b.path.resolve():
        raise ValueError(f"{a.path} and {b.path} are the same run; give another one to compare it with")
    Display().say(describe_difference(a, b, compare_runs(a, b)))


@app.command()
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
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time; default: one per GPU, or per core.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and the time they need, and exit.")
    ] = False,
    slurm: Annotated[bool, typer.Option("--slurm", help="Submit the runs to Slurm, and exit.")] = False,
    slurm_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="What Slurm is asked for; repeat for more."),
    ] = None,
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
            count = len(tasks_of(study(), Path("runs")))
            print(f"{name:{width}}  {count:3} runs  {study.__doc__}")
        return
    plans, name = plans_of(arguments or [])
    tasks = tasks_of(plans, (out if out is not None else Path("runs") / name).absolute())
    machine, where = Machine(jobs, len(tasks)), tasks[0].directory.path.parent
    if slurm_option and not slurm:
        raise ValueError("--slurm-option is for --slurm")
    if jobs and slurm:
        raise ValueError("--jobs is for this machine; Slurm has a job for each run")
    if dry_run:
        with join() as world:
            for line in forecast(tasks, machine.jobs, machine.threads, world):
                print(line)
    elif slurm:
        submitted = submit(tasks, where / ".slurm", slurm_option or [])
        print(f"{len(submitted)} jobs submitted; the runs go to {where}, submitit's files to {where}/.slurm")
    else:
        check_here(tasks)
        if not run_here(tasks, machine, Display().console, shlex.join(["reorder", *sys.argv[1:]])):
            raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or directories that hold some.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the report.")] = Path("report"),
    prior: Annotated[
        list[Path] | None,
        typer.Option(help="prior.json, to draw accuracy against compressibility; repeat for other grids."),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW,COLUMN",
            help="Patch to follow, counted from 1; the page's player takes the first two. "
            "Default: the central one and the first that is read.",
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="Radius of the centre, in patches; default: a quarter of the shorter side."),
    ] = None,
) -> None:
    """Compare runs: tables as Markdown, CSV and LaTeX, figures, animations of policies, and a page.

    Runs that are not finished, or have nothing to be compared with, are listed in the notes. Of every model,
    dataset and start the policy of the first seed is drawn and animated, of many the first dozen.

    Example: `reorder report runs/row runs/spiral-1 -o report`

    Example: `reorder report runs/laptop -o report --prior prior.json --track 4,4 --track 1,7`
    """
    options = Options(tuple(map(_cell, track or [])), radius, tuple(prior or []))
    page, (first, *rest) = write_report(expand(runs), out, options)
    display = Display()
    display.console.print(terminal_table(first, shown=5))
    for note in (note for table in rest if table.name == "runs" for note in table.notes):
        display.say(f"note: {note}")
    display.say(f"report: {page}")


def _cell(text: str) -> tuple[int, int]:
    """The row and column that ROW,COLUMN names."""
    row, _, column = text.partition(",")
    if not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", number) for number in (row, column)):
        raise ValueError(f"--track takes ROW,COLUMN counted from 1, such as 4,4, got {text[:40]!r}")
    return int(row), int(column)


@app.command()
def scans(
    rows: Annotated[int, typer.Option(help="Rows of the grid.")] = 14,
    columns: Annotated[int, typer.Option(help="Columns of the grid.")] = 14,
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG, SVG or PDF file.")] = Path("scans.png"),
) -> None:
    """Draw the six scans of a grid, each from its blue start to its orange end.

    Example: `reorder scans --rows 14 --columns 14 -o scans.svg`
    """
    scan("row", rows, columns)  # refuses an impossible grid
    save_figure(scan_figure(rows, columns), out)
    print(visible(str(out)))


@app.command()
def coverage(
    image_size: Annotated[int, typer.Option(help="Side of the image in pixels.")] = 224,
    patch_size: Annotated[int, typer.Option(help="Side of a patch in pixels.")] = 32,
    size: Annotated[str, typer.Option(help="Size of the models; the maps do not depend on it.")] = "mini",
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG, SVG or PDF file.")] = Path("coverage.png"),
) -> None:
    """Draw how many tokens attend to each patch in each model, and write the numbers beside it as JSON.

    Example: `reorder coverage --patch-size 32 -o coverage.png`
    """
    check_drawable(out)
    result = count_coverage(image_size, patch_size, size)
    save_figure(coverage_figure(result), out)
    write_coverage(result, out.with_suffix(".json"))
    print(visible(str(out)))
    print(visible(str(out.with_suffix(".json"))))


BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="backbones, codes, data, estimators, policy, prior; default: all."),
    ] = None,
) -> None:
    """Measure parts of the program against a peer; needs a source checkout.

    Example: `reorder bench policy`
    """
    found = [path.stem for path in sorted(BENCHMARKS.glob("*.py"))]
    if not found:
        raise ValueError("the timings are part of the source checkout; clone it and run `make bench` there")
    for name in names or found:
        if name not in found:
            raise ValueError(f"unknown benchmark {name!r}; choose from {', '.join(found)}")
        Display().console.print(load_benchmark(name).table())


def load_benchmark(name: str) -> Any:
    """A module of benchmarks, which are no part of the package."""
    specification = importlib.util.spec_from_file_location(f"benchmarks.{name}", BENCHMARKS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


UsageError = typer.BadParameter.__base__  # click's, or typer's own copy of it, depending on the version


INTERRUPTED = 130  # what typer returns after Ctrl-C


def main() -> None:
    """Run the command line; bad input is one line on standard error and exit status 2."""
    try:
        status = app(standalone_mode=False)
        if status != INTERRUPTED:
            sys.exit(status)
        raise KeyboardInterrupt
    except ValueError as error:
        _fail(str(error), 2)
    except Stopped as stopped:
        if stopped.status == 128 + signal.SIGTERM:
            requeue()
        _fail(str(stopped), stopped.status)
    except Lost as lost:
        _fail(str(lost), 1)
    except OSError as error:
        reason = error.strerror or str(error)
        _fail(f"cannot use {error.filename}: {reason}" if error.filename else reason, 2)
    except UsageError as error:  # type: ignore[misc]
        message = error.format_message().rstrip(".")
        path = error.ctx.command_path.split()[1:] if error.ctx else []
        _fail(f"{message[0].lower()}{message[1:]}; see: {' '.join(['reorder', *path])} --help", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; the same command starts again", INTERRUPTED)


def _fail(message: str, status: int) -> None:
    print(f"reorder: {visible(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(status)
