"""The command line: one module per command, arguments only; what is slow to import is imported inside."""

import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import reorder
from reorder.cli import (
    bench,
    coverage,
    evaluate,
    export,
    order,
    predict,
    prior,
    report,
    scans,
    search,
    sweep,
    train,
)
from reorder.data.progress import visible
from reorder.training.signals import Stopped, requeue


def _plain_flags(params: list[Any]) -> list[Any]:
    """Parameters for a help in which flags, which take no value, are shown without `<bool>`."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _plain_flags(super().get_params(ctx))


app = typer.Typer(
    cls=_Group,
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


COMMANDS = (
    train.train,
    search.search,
    prior.prior,
    evaluate.evaluate,
    predict.predict,
    export.export,
    sweep.sweep,
    report.report,
    scans.scans,
    coverage.coverage,
    bench.bench,
)
for command in COMMANDS:
    app.command(cls=_Command)(command)

orders = typer.Typer(cls=_Group, rich_markup_mode="markdown")
for about_orders in order.COMMANDS:
    orders.command(cls=_Command)(about_orders)
app.add_typer(
    orders,
    name="order",
    help="Show, convert and compare order files.\n\nExample: `reorder order show runs/a/order.json`",
)

UsageError = typer.BadParameter.__base__  # click's, or typer's own copy of it, depending on the version


INTERRUPTED = 130  # what typer returns after Ctrl-C


def main() -> None:
    """Run the command line; bad input is one line on standard error and exit status 2."""
    try:
        status = app(standalone_mode=False, prog_name="reorder")
        if status != INTERRUPTED:
            sys.exit(status)
        raise KeyboardInterrupt
    except ValueError as error:
        _fail(str(error), 2)
    except Stopped as stopped:
        if stopped.status == 128 + signal.SIGTERM:
            requeue()
        _fail(str(stopped), stopped.status)
    except OSError as error:
        reason = error.strerror or str(error)
        _fail(f"cannot use {error.filename}: {reason}" if error.filename else reason, 2)
    except UsageError as error:  # type: ignore[misc]
        message = error.format_message().rstrip(".")
        path = error.ctx.command_path.split()[1:] if error.ctx else []
        _fail(f"{message[0].lower()}{message[1:]}; see: {' '.join(['reorder', *path])} --help", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; the same command starts again", INTERRUPTED)
    except Exception as error:
        if getattr(error, "status", None) is None:  # one of ours says what to exit with
            raise
        _fail(str(error), error.status)  # type: ignore[attr-defined]


def _fail(message: str, status: int) -> None:
    print(f"reorder: {visible(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(status)
