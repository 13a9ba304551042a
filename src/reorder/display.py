"""What the terminal shows during long work: a live bar, plain lines when not a terminal, or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

TRAINING_COLUMNS = (
    TextColumn("[bold]{task.description}"),
    BarColumn(bar_width=20),
    MofNCompleteColumn(),
    TextColumn("{task.fields[detail]}"),
    TimeRemainingColumn(),
)


class Progress:
    """Progress of one training run; this one shows nothing."""

    def step(self, stage: str, temperature: float, loss: float, top1: float) -> None:
        pass

    def epoch(self, metrics: dict[str, Any]) -> None:
        pass


class LineProgress(Progress):
    """One line per epoch, for logs and pipes."""

    def __init__(self, console: Console, title: str):
        self.console, self.title = console, title

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.console.print(
            f"{self.title}  epoch {metrics['epoch']}  {metrics['stage']}  "
            f"temperature {metrics['temperature']:.3f}  loss {metrics['loss']:.3f}  "
            f"validation top-1 {metrics['validation_top1']:.1%}  "
            f"{metrics['images_per_second']:.0f} images/s",
            soft_wrap=True,
            highlight=False,
        )


class BarProgress(Progress):
    """A live bar with epoch, stage, temperature, loss, accuracy, speed and the time left."""

    def __init__(self, bars: Bars, title: str, total_steps: int, done_steps: int):
        self.bars = bars
        self.task = bars.add_task(title, total=total_steps, completed=done_steps, detail="")
        self.last = ""

    def step(self, stage: str, temperature: float, loss: float, top1: float) -> None:
        detail = f"{stage}  T {temperature:.2f}  loss {loss:.3f}  train {top1:.1%}{self.last}"
        self.bars.update(self.task, advance=1, detail=detail)

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.last = (
            f"  val {metrics['validation_top1']:.1%}  epoch {metrics['epoch']}"
            f"  {metrics['images_per_second']:.0f} img/s"
        )


class Display:
    def __init__(self, quiet: bool = False):
        self.console = Console(quiet=quiet)
        self.quiet = quiet

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False)

    @contextmanager
    def training(self, title: str, total_steps: int, done_steps: int) -> Iterator[Progress]:
        """Show a training run while the block runs."""
        if self.quiet:
            yield Progress()
        elif not self.console.is_terminal:
            yield LineProgress(self.console, title)
        else:
            with Bars(*TRAINING_COLUMNS, console=self.console) as bars:
                yield BarProgress(bars, title, total_steps, done_steps)
