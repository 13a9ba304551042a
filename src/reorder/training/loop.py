"""Training: a classifier next to the order its patches are read in, as in Algorithm 1 of the paper."""

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from reorder.config import Experiment, reading_of
from reorder.data.datasets import Dataset
from reorder.data.progress import Display, Progress
from reorder.data.ranks import World, from_first, on_any, union
from reorder.runs.directory import DataFile, RunDir
from reorder.training import trackers as track
from reorder.training.checkpoint import MOST_SKIPPED, remember_policy, restore, save
from reorder.training.setup import setup
from reorder.training.signals import Stopped, StopSignals
from reorder.training.state import Run, SoFar, over_all_ranks, unwrapped
from reorder.training.step import train_step
from reorder.training.summary import finish
from reorder.training.validation import stop_if_asked, validate


def train(
    experiment: Experiment,
    directory: RunDir,
    display: Display,
    world: World | None = None,
    stop: StopSignals | None = None,
    data: Dataset | None = None,
) -> dict[str, Any]:
    """Train one experiment into its run directory, from where it stopped if it was begun; its summary.

    `data` are the experiment's, if they are loaded already. With order.scan=prior the prior is measured,
    unless this run has recorded it.
    """
    directory.check(experiment)
    if (finished := directory.summary()) is not None:
        display.say(f"{directory.path} is finished already")
        return finished
    track.check(experiment.train.track)
    prior, stop = None, stop or StopSignals()
    if experiment.order.scan == "prior":
        from reorder.training.prior_choice import (
            recorded_or_measured,
        )  # imported here: slow, seldom needed

        with stop.at_once():
            prior = recorded_or_measured(experiment, [directory], display)
    run = setup(experiment, world, prior, data)
    with ExitStack() as held:  # all ranks go on, or refuse, as the first does

        def claim() -> dict[str, Any] | None:
            held.enter_context(directory.locked())
            directory.check(experiment)  # again: another process may have been here since
            recorded = directory.prior()
            if prior and recorded and recorded["chosen"] != prior["chosen"]:
                raise ValueError(f"{directory.path} has got another prior meanwhile; give the command again")
            return directory.summary()

        if (finished := from_first(claim)) is not None:
            display.say(f"{directory.path} was finished by another process")
            return finished
        return train_run(run, directory, display, stop)


def train_run(run: Run, directory: RunDir, display: Display, stop: StopSignals) -> dict[str, Any]:
    """Train a run that is set up, from where its directory left it; its summary."""
    experiment, steps = run.experiment, run.loader.steps_per_epoch
    if run.world.first:
        directory.create(experiment)
        directory.write_data(DataFile(run.loader.dataset.classes, run.loader.dataset.inputs))
        if run.prior is not None:
            directory.write_prior(run.prior)
    restore(run, directory, display)
    title = reading_of(experiment.order.policy, Path(experiment.order.scan).stem)
    with (
        stop.watched(),
        closing(
            track.start(experiment, directory.path, run.step) if run.world.first else track.Nowhere()
        ) as tracker,
        display.training(title, experiment.train.epochs, steps, run.step) as progress,
    ):
        if run.metrics and run.metrics[-1]["step"] == run.step:  # was it sent before the run was killed?
            track.track_epoch(tracker, run.metrics[-1], run.moments[-1][-1], unwrapped(run.model).grid)
        while len(run.metrics) < experiment.train.epochs:
            train_epoch(run, directory, progress, stop)
            track.track_epoch(tracker, run.metrics[-1], run.moments[-1][-1], unwrapped(run.model).grid)
            stop_if_asked(run, stop)
    return finish(run, directory)


def train_epoch(run: Run, directory: RunDir, progress: Progress, stop: StopSignals) -> None:
    """The rest of an epoch, step by step, with checkpoints; then a look at the validation images."""
    settings, steps = run.experiment.train, run.loader.steps_per_epoch
    epoch = len(run.metrics)
    run.model.train()
    saved = began = time.perf_counter()
    for images, labels in run.loader.epoch(epoch, run.step - epoch * steps):
        train_step(run, images.to(run.world.device), labels.to(run.world.device))
        remember_policy(run)
        now = time.perf_counter()
        run.seconds, began = run.seconds + now - began, now
        so_far = run.so_far
        progress.step(
            run.learner.stage(run.step - 1),
            run.learner.temperature(run.step - 1),
            so_far.loss / max(1, so_far.seen),
            so_far.right / max(1, so_far.seen),
            so_far.seen / max(1e-9, run.seconds - so_far.began),
        )
        late = now - saved > 60 * settings.checkpoint_minutes
        late |= settings.checkpoint_steps > 0 and run.step % settings.checkpoint_steps == 0
        stopping, due, broken = on_any([bool(stop.number), late, run.loader.has_news], run.world.device)
        if broken:
            run.loader.share(union(run.loader.broken))
        failing = run.skipped_in_a_row >= MOST_SKIPPED  # saving says so
        if stopping or due or failing:
            save(run, directory)
            saved = began = time.perf_counter()
        if stopping:
            stop_if_asked(run, stop)
    try:
        line = epoch_metrics(run, epoch, stop)
    except Stopped:
        save(run, directory)
        stop_if_asked(run, stop)
    run.metrics.append(line)
    run.so_far = SoFar(began=run.seconds)
    save(run, directory)
    progress.epoch(line)


def epoch_metrics(run: Run, epoch: int, stop: StopSignals) -> dict[str, Any]:
    """A line about an epoch that is over."""
    learner, last, so_far = run.learner, run.step - 1, over_all_ranks(run)
    run.validation = validation = validate(run, learner.reading(last), stop)
    policy = learner.metrics(last)
    policy.pop("gradient_signal_to_noise", None)  # not in checkpoints: a resumed run could not go on with it
    return {
        "epoch": epoch + 1,
        "step": run.step,
        "stage": learner.stage(last),
        "temperature": learner.temperature(last),
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        "loss": so_far.loss / max(1, so_far.seen),
        "top1": so_far.right / max(1, so_far.seen),
        "validation_loss": validation.loss,
        "validation_top1": validation.top1,
        "validation_top5": validation.top5,
        **policy,
        "skipped_steps": run.skipped,
        "broken_images": len(run.loader.broken),
        "images_per_second": so_far.seen / max(1e-9, run.seconds - so_far.began),
    }
