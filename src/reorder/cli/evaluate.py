"""`reorder evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from reorder.cli.checks import check_changes
from reorder.experiments.arguments import check_order_file
from reorder.runs.paths import check_run


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN | A B", help="A run to evaluate, or two to compare; hf:, timm: with --sensitivity."
        ),
    ],
    order: Annotated[Path | None, typer.Option(help="Order file to read in; default: the run's own.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Other data; repeat for more keys.")
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Compare all scans, a random and the reversed own order.")
    ] = False,
    orders: Annotated[
        int | None,
        typer.Option(
            min=1, help="With order.policy=image: draw so many validation images with the orders they get."
        ),
    ] = None,
) -> None:
    """Evaluate a run's last checkpoint, or compare two finished runs image by image.

    One run: top-1, top-5 and loss, with bootstrap standard errors and 95% intervals; they and the
    correctness of each image are kept in RUN/evaluations. Other data are prepared as they would be for
    training. Two runs: the paired difference in top-1, A minus B, and McNemar's test.

    Example: `reorder evaluate runs/spiral-1 --order runs/row/order.json`

    Example: `reorder evaluate runs/spiral-1 --data root=DIR`

    Example: `reorder evaluate runs/spiral-1 --sensitivity` (how well it reads in other orders than its own)

    Example: `reorder evaluate runs/own --orders 16` (images with the paths they are read in, and order files)

    Example: `reorder evaluate runs/spiral-1 runs/row`

    Example: `reorder evaluate hf:google/vit-base-patch16-224 --sensitivity --data root=DIR` (does a trained
    classifier of Hugging Face, or of timm as `timm:NAME`, care about the order? Without --data, on noise)
    """
    _check(runs, order, data or [], sensitivity, orders)
    if _is_external(runs[0]):
        _pretrained_sensitivity(str(runs[0]), data or [])
        return
    from reorder.data.progress import Display
    from reorder.data.ranks import join
    from reorder.report.evaluation import (
        compare_runs,
        describe_difference,
        describe_evaluation,
        evaluate_run,
        order_sensitivity,
    )
    from reorder.report.tables import terminal_table
    from reorder.runs.directory import RunDir

    directories = [RunDir(path) for path in runs]
    if orders is not None:
        from reorder.report.own_orders import write_own_orders

        where, tau = write_own_orders(directories[0], orders)
        Display().say(f"mean Kendall's tau between two images' orders: {tau:.3f}\nsaved: {where}")
        return
    if len(directories) == 1 and sensitivity:
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
    a, b = directories
    Display().say(describe_difference(a, b, compare_runs(a, b)))


def _is_external(run: Path) -> bool:
    """Is it a model that others have trained?"""
    return str(run).startswith(("hf:", "timm:"))


def _pretrained_sensitivity(name: str, data: list[str]) -> None:
    from reorder.data.progress import Display
    from reorder.report.sensitivity import pretrained_sensitivity
    from reorder.report.tables import terminal_table

    table, display = pretrained_sensitivity(name, data), Display()
    display.console.print(terminal_table(table))
    display.say(table.caption)


def _check(
    runs: list[Path], order: Path | None, data: list[str], sensitivity: bool, orders: int | None
) -> None:
    """Refuse what is not there, or does not go together."""
    if len(runs) > 2:
        raise ValueError(f"give one run to evaluate or two to compare, not {len(runs)}")
    if len(runs) == 2 and (order is not None or data or sensitivity):
        raise ValueError(
            "--order, --data and --sensitivity are for one run; repeat --data for each key=value"
        )
    if orders is not None and (len(runs) > 1 or order is not None or data or sensitivity):
        raise ValueError("--orders is for one run, and goes with no other option")
    external = [str(run) for run in runs if _is_external(run)]
    if external and (len(runs) > 1 or not sensitivity):
        raise ValueError(f"{external[0]} is no run: it can only be tried alone, with --sensitivity")
    if sensitivity and order is not None:
        raise ValueError("--sensitivity chooses its own orders; leave --order away")
    check_changes(data)
    if len(runs) == 2 and runs[0].resolve() == runs[1].resolve():
        raise ValueError(f"{runs[0]} and {runs[1]} are the same run; give another one to compare it with")
    for run in runs:
        if not external:
            check_run(run)
    if order is not None:
        check_order_file(order)
