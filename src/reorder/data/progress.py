"""What the terminal shows during long work: a live bar, plain lines when not a terminal, or nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

TRAINING_COLUMNS = (
    TextColumn("{task.description}", markup=False),
    BarColumn(bar_width=6),
    TextColumn("{task.fields[detail]}", markup=False),
    TimeRemainingColumn(compact=True),
)

COUNTING_COLUMNS = (
    TextColumn("{task.description}", markup=False),
    BarColumn(bar_width=20),
    MofNCompleteColumn(),
    TimeRemainingColumn(compact=True),
)


class Progress:
    """Progress of one training run; this one shows nothing."""

    def step(self, stage: str, temperature: float, loss: float, top1: float, speed: float) -> None:
        """Loss, accuracy and speed (images per second) are of the epoch so far."""

    def epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over; its line of metrics."""


class LineProgress(Progress):
    """One line per epoch, for logs and pipes."""

    def __init__(self, console: Console, title: str, epochs: int, done_epochs: float):
        self.console, self.title, self.epochs = console, title, epochs
        self.began, self.done_epochs = time.monotonic(), done_epochs

    def epoch(self, metrics: dict[str, Any]) -> None:
        rest, done = self.epochs - metrics["epoch"], metrics["epoch"] - self.done_epochs
        left: timedelta | str = "unknown"  # the run was stopped while it was validated
        if rest == 0 or done:
            left = timedelta(seconds=round(rest * (time.monotonic() - self.began) / (done or 1)))
        self.console.print(
            f"{self.title}  epoch {metrics['epoch']}/{self.epochs}  {metrics['stage']}  "
            f"temperature {metrics['temperature']:.3f}  loss {metrics['loss']:.3f}  "
            f"top-1 {metrics['top1']:.1%}  validation top-1 {metrics['validation_top1']:.1%}  "
            f"{metrics['images_per_second']:.0f} images/s  {left} left",
            soft_wrap=True,
            highlight=False,
        )


class BarProgress(Progress):
    """A live line with epoch, stage, temperature, loss, accuracy, speed and the time left."""

    def __init__(self, bars: Bars, title: str, epochs: int, steps_per_epoch: int, done_steps: int):
        self.bars, self.epochs, self.now = bars, epochs, done_steps // steps_per_epoch + 1
        self.task = bars.add_task(title, total=epochs * steps_per_epoch, completed=done_steps, detail="")
        self.validation = ""

    def step(self, stage: str, temperature: float, loss: float, top1: float, speed: float) -> None:
        detail = f"{self.now}/{self.epochs} {stage} T{temperature:.2f} loss {loss:.2f} {top1:.0%}"
        self.bars.update(self.task, advance=1, detail=f"{detail}{self.validation} {speed:.0f}/s")

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.now = min(self.epochs, metrics["epoch"] + 1)
        self.validation = f" val {metrics['validation_top1']:.0%}"


def visible(text: str) -> str:
    """Text in which characters that a terminal would obey, or cannot show, are spelled out."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text
    )


class Display:
    """The terminal. Names and paths are shown as they are: `[...]` and `:name:` mean nothing to it."""

    def __init__(self, quiet: bool = False, console: Console | None = None):
        self.console = console or Console(quiet=quiet, markup=False, emoji=False)
        self.quiet = quiet

    def say(self, text: str) -> None:
        self.console.print(visible(text), soft_wrap=True, highlight=False)

    @contextmanager
    def training(
        self, title: str, epochs: int, steps_per_epoch: int, done_steps: int = 0
    ) -> Iterator[Progress]:
        """Show a training run while the block runs."""
        if self.quiet:
            yield Progress()
        elif not self.console.is_terminal:
            yield LineProgress(self.console, title, epochs, done_steps / steps_per_epoch)
        else:
            with Bars(*TRAINING_COLUMNS, console=self.console) as bars:
                yield BarProgress(bars, title, epochs, steps_per_epoch, done_steps)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Count to `total` by calls with the number just done: a bar, or in a pipe one line at the end."""
        if self.console.is_terminal and not self.quiet:
            with Bars(*COUNTING_COLUMNS, console=self.console) as bars:
                task = bars.add_task(title, total=total)
                yield lambda count: bars.advance(task, count)
            return
        began = time.monotonic()
        yield lambda count: None
        self.say(f"{title}: {total:,} in {time.monotonic() - began:.1f} s")
