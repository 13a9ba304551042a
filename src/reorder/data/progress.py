"""What the terminal shows during long work: a live bar, plain lines when not a terminal, or nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reorder.orders.curriculum import STAGES

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


def time_left(done: float, rest: float, seconds: float) -> str:
    """How long the rest takes, at the pace of what was done in so many seconds."""
    if rest and done <= 0:  # a run that was stopped while it was validated
        return "unknown time left"
    return f"{timedelta(seconds=round(rest * seconds / done if rest else 0))} left"


class LineProgress(Progress):
    """One line per epoch, for logs and pipes."""

    def __init__(self, console: Console, title: str, epochs: int, done_epochs: float):
        self.console, self.title, self.epochs = console, title, epochs
        self.began, self.done_epochs = time.monotonic(), done_epochs

    def epoch(self, metrics: dict[str, Any]) -> None:
        done, rest = metrics["epoch"] - self.done_epochs, self.epochs - metrics["epoch"]
        learning = metrics["stage"] in STAGES
        parts = [
            self.title,
            f"epoch {metrics['epoch']}/{self.epochs}",
            *([metrics["stage"], f"temperature {metrics['temperature']:.3f}"] if learning else []),
            f"loss {metrics['loss']:.3f}",
            f"train top-1 {metrics['top1']:.1%}",
            f"validation top-1 {metrics['validation_top1']:.1%}",
            f"{metrics['images_per_second']:.0f} images/s",
            time_left(done, rest, time.monotonic() - self.began),
        ]
        self.console.print("  ".join(parts), soft_wrap=True, highlight=False)


class Part(NamedTuple):
    """A part of a line; rank 0 is always shown, the others by their rank as long as there is room."""

    text: str
    rank: int = 0


def fitting(parts: list[Part], width: int) -> list[Part]:
    """The parts that are shown in a width, with ", " between them, in their own sequence."""
    kept: list[Part] = []
    for part in sorted(parts, key=lambda part: part.rank):
        if part.rank == 0 or len(", ".join(each.text for each in [*kept, part])) <= width:
            kept.append(part)
    return [part for part in parts if part in kept]


class BarProgress(Progress):
    """A live line, as wide as the terminal: what is trained, a bar, and what there is room for."""

    bar = Part(" " * 6, 4)  # of at least so many columns

    def __init__(self, title: str, epochs: int, steps_per_epoch: int, done_steps: int):
        self.title, self.epochs, self.steps_per_epoch = Part(visible(title), 5), epochs, steps_per_epoch
        self.began, self.done_before, self.done = time.monotonic(), done_steps, done_steps
        self.parts: list[Part] = []  # of the last step
        self.validation: list[Part] = []  # of the last epoch

    def step(self, stage: str, temperature: float, loss: float, top1: float, speed: float) -> None:
        now = min(self.epochs, self.done // self.steps_per_epoch + 1)
        self.done += 1
        learning = [Part(stage, 6), Part(f"temperature {temperature:.2f}", 9)]
        self.parts = [
            Part(f"epoch {now}/{self.epochs}", 2),
            *(learning if stage in STAGES else []),
            Part(f"{speed:.0f} images/s", 8),
            Part(f"loss {loss:.2f}", 7),
            Part(f"train top-1 {top1:.0%}"),
        ]

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.validation = [Part(f"validation {metrics['validation_top1']:.0%}", 1)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        total, seconds = self.epochs * self.steps_per_epoch, time.monotonic() - self.began
        left = Part(time_left(self.done - self.done_before, total - self.done, seconds), 3)
        kept = fitting([self.title, self.bar, *self.parts, *self.validation, left], options.max_width)
        title = [Text(part.text) for part in kept if part is self.title]
        rest = Text(", ".join(part.text for part in kept if part not in (self.title, self.bar)))
        room = options.max_width - sum(len(text) + 1 for text in [*title, rest])
        bar = [ProgressBar(total, self.done, width=room)] if self.bar in kept else []
        line = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
        for _ in [*title, *bar, rest]:
            line.add_column(no_wrap=True)
        line.add_row(*title, *bar, rest)
        yield line


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
            bar = BarProgress(title, epochs, steps_per_epoch, done_steps)
            with Live(bar, console=self.console, refresh_per_second=10):
                yield bar

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
