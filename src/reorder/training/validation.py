"""Looking at the validation images during a run, and stopping it where nothing is lost."""

import signal

from reorder.data.ranks import on_any, wait_for_all
from reorder.models.accuracy import Evaluation, evaluate_loader
from reorder.orders.read import Reading
from reorder.training.signals import Stopped, StopSignals
from reorder.training.state import Run, unwrapped


def stop_if_asked(run: Run, stop: StopSignals) -> None:
    """End a run that was saved, on all ranks at once, if a signal has come to any."""
    if on_any([bool(stop.number)], run.world.device)[0]:
        wait_for_all()  # the first rank may still be writing
        raise Stopped(stop.number or signal.SIGTERM)


def validate(run: Run, order: Reading, stop: StopSignals | None = None) -> Evaluation:
    """Evaluate in an order, with the averaged weights if there are any; a signal may stop it."""
    model = run.ema.module if run.ema is not None else unwrapped(run.model)
    check = None if stop is None else lambda: stop_if_asked(run, stop)
    parts = run.experiment.train.accumulate  # what a step saves in memory, validation saves too
    with run.autocast():
        return evaluate_loader(model, run.loader, order, run.world.device, parts, check)
