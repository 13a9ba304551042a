"""The signals that stop a run, after it is saved."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """A signal asked for the end of a run; `status` is what to exit with."""

    def __init__(self, number: int, what_now: str = "and saved; the same command, or --resume, continues"):
        super().__init__(f"stopped by {signal.Signals(number).name} {what_now}")
        self.status = 128 + number


class StopSignals:
    """Remembers SIGTERM, SIGINT and SIGHUP for the end of the step; a second SIGINT exits at once."""

    def __init__(self) -> None:
        self.number, self.waits = 0, True

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Stop as soon as a signal comes, while the block runs: it has nothing that must be saved."""
        self.waits = False
        try:
            yield
        finally:
            self.waits = True

    @contextmanager
    def watched(self) -> Iterator["StopSignals"]:
        """Take over the signals while the block runs, if this thread may."""
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # by nohup, to outlive the terminal
            numbers.append(signal.SIGHUP)
        try:
            before = {number: signal.signal(number, self._remember) for number in numbers}
        except ValueError:  # not the main thread: the program around us handles signals
            yield self
            return
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.number == number == signal.SIGINT:
            sys.exit(128 + number)
        self.number = number
        if not self.waits:
            raise Stopped(number, "before training began; the same command starts again")


def requeue() -> None:
    """Ask Slurm, if this is one of its jobs, to start the job again."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or os.environ.get("RANK", "0") != "0":  # one asks for all ranks
        return
    try:
        subprocess.run(["scontrol", "requeue", job], check=False)
    except OSError as error:
        print(f"reorder: cannot requeue job {job}: {error}", file=sys.stderr)
