"""Training: a classifier next to the order its patches are read in, as in Algorithm 1 of the paper."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from reorder import curriculum, track
from reorder import order as orders
from reorder.config import Experiment, build, reading_of
from reorder.display import Display, Progress
from reorder.distributed import (
    ALONE,
    Stopped,
    StopSignals,
    World,
    from_first,
    mean,
    on_any,
    union,
    wait_for_all,
)
from reorder.evaluate import Evaluation, bootstrap_sem, evaluate
from reorder.learner import policy_metrics
from reorder.run import (
    MOST_SKIPPED,
    Run,
    SoFar,
    derive_seed,
    over_all_ranks,
    remember_policy,
    restore,
    save,
    setup,
    unwrapped,
)
from reorder.run_dir import RunDir


def train(
    experiment: Experiment,
    directory: RunDir,
    display: Display,
    world: World | None = None,
    stop: StopSignals | None = None,
    prior_of: RunDir | None = None,
) -> dict[str, Any]:
    """Train one experiment into its run directory, from where it stopped if it was begun; its summary.

    With order.scan=prior the prior is measured, unless this run, or the one given, has recorded it.
    """
    directory.check(experiment)
    if (finished := directory.summary()) is not None:
        display.say(f"{directory.path} is finished already")
        return finished
    track.check(experiment.train.track)
    prior, stop = None, stop or StopSignals()
    if experiment.order.scan == "prior":
        from reorder.prior.choice import recorded_or_measured  # here, for most runs do without it

        with stop.at_once():
            prior = recorded_or_measured(experiment, [directory, prior_of or directory], display)
    run = setup(experiment, world, prior)
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


def stop_if_asked(run: Run, stop: StopSignals) -> None:
    """End a run that was saved, on all ranks at once, if a signal has come to any."""
    if on_any([bool(stop.number)], run.world.device)[0]:
        wait_for_all()  # the first rank may still be writing
        raise Stopped(stop.number or signal.SIGTERM)


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


def train_step(run: Run, images: Tensor, labels: Tensor) -> None:
    """One step of Algorithm 1 on this rank's part of a batch."""
    settings, model, learner = run.experiment.train, run.model, run.learner
    warmup_steps = round(settings.warmup_epochs * run.loader.steps_per_epoch)
    run.optimizer.param_groups[0]["lr"] = run.optimizer.param_groups[1]["lr"] = curriculum.learning_rate(
        run.step, warmup_steps, run.total_steps, settings.learning_rate
    )
    torch.manual_seed(derive_seed(settings.seed, run.step, run.world.rank))  # of dropout and the like
    run.optimizer.zero_grad()
    order = learner.sample(run.step)
    before = [buffer.clone() for buffer in learner.buffers()]
    losses, right = backward_parts(run, images, labels, order)
    finite = unscaled = bool(mean(losses.mean()).isfinite())
    if finite:
        policy_loss = learner.loss(losses)
        if policy_loss.requires_grad:
            run.scaler.scale(policy_loss).backward()
        run.scaler.unscale_(run.optimizer)
        finite = bool(clip_grad_norm_(model.parameters(), settings.clip).isfinite()) and all(
            bool(parameter.grad.isfinite().all())
            for parameter in learner.parameters()
            if parameter.grad is not None
        )
    if finite:
        run.scaler.step(run.optimizer)
        if run.ema is not None:
            run.ema.update_parameters(unwrapped(model))
        run.so_far.add(losses, right)
        run.skipped_in_a_row = 0
    else:
        run.skipped += 1
        run.skipped_in_a_row += 1
        for buffer, old in zip(learner.buffers(), before, strict=True):
            buffer.copy_(old)  # the reward of a step that is skipped is no part of the baseline
    if unscaled:
        run.scaler.update()
    run.step += 1


def backward_parts(run: Run, images: Tensor, labels: Tensor, order: Tensor) -> tuple[Tensor, int]:
    """Losses (B,) of a batch and how many images are right; gradients are added up part by part."""
    parts = run.experiment.train.accumulate
    losses, right = [], 0
    for number, (some, names) in enumerate(zip(images.chunk(parts), labels.chunk(parts), strict=True)):
        last = number == parts - 1
        wait = nullcontext() if last or run.world.size == 1 else run.model.no_sync()  # type: ignore[operator]
        with wait:
            with run.autocast():
                logits = run.model(some, order)
                part = F.cross_entropy(logits, names, reduction="none")
            run.scaler.scale(part.sum() / len(images)).backward()
        losses.append(part.detach().float())
        right += int((logits.argmax(1) == names).sum())
    return torch.cat(losses), right


def epoch_metrics(run: Run, epoch: int, stop: StopSignals) -> dict[str, Any]:
    """A line about an epoch that is over."""
    learner, last, so_far = run.learner, run.step - 1, over_all_ranks(run)
    run.validation = validation = validate(run, learner.order(last), stop)
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
        "kendall_tau_from_start": orders.kendall_tau(learner.order(), run.initial),
        **policy_metrics(learner, last),
        "skipped_steps": run.skipped,
        "broken_images": len(run.loader.broken),
        "images_per_second": so_far.seen / max(1e-9, run.seconds - so_far.began),
    }


def validate(run: Run, order: Tensor, stop: StopSignals | None = None) -> Evaluation:
    """Evaluate on all validation images, each rank its share, with the averaged weights if there are any."""

    def batches() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        share = len(run.loader.dataset.validation) // run.world.size
        parts = run.experiment.train.accumulate  # what a step saves in memory, validation saves too
        together = share // (run.loader.batch_size // run.world.size)  # batches that every rank has
        for number, batch in enumerate(run.loader.validate()):
            if stop is not None and number < together:
                stop_if_asked(run, stop)
            yield from zip(*(column.chunk(parts) for column in batch), strict=True)

    model = run.ema.module if run.ema is not None else unwrapped(run.model)
    with run.autocast():
        result = evaluate(model, batches(), order, run.world.device)
    if on_any([run.loader.has_news], run.world.device)[0]:
        run.loader.share(union(run.loader.broken))
    return result


def finish(run: Run, directory: RunDir) -> dict[str, Any]:
    """Evaluate with the order found and write the results."""
    order = run.learner.order(run.total_steps - 1)
    result = run.validation or validate(run, order)  # a run that was stopped at its end has to look again
    summary = summarise(run, result, order)
    if run.world.first:
        directory.write_correct(result.correct)
        directory.write_sample(run.loader.sample())
        directory.write_metrics(run.metrics)
        directory.write_policy(run.moments, run.initial)
        keys = ("model", "data", "scan", "policy", "epochs", "seed", "top1")
        orders.save(
            directory.path / "order.json", order, unwrapped(run.model).grid, {k: summary[k] for k in keys}
        )
        directory.write_summary(summary)
    return summary


def summarise(run: Run, result: Evaluation, order: Tensor) -> dict[str, Any]:
    experiment, scan = run.experiment, run.experiment.order.scan
    trained = run.step * experiment.train.batch_size
    return {
        "model": experiment.model.name,
        "size": experiment.model.size,
        "data": experiment.data.name,
        "grid": list(unwrapped(run.model).grid),
        "scan": scan,
        **({"order_file": orders.load(scan).provenance} if scan.endswith(".json") else {}),
        **({"prior_scan": run.prior["chosen"]["scan"]} if run.prior else {}),
        "policy": experiment.order.policy,
        "epochs": experiment.train.epochs,
        "seed": experiment.train.seed,
        "top1": result.top1,
        "top1_sem": bootstrap_sem(
            result.correct, generator=torch.Generator().manual_seed(experiment.train.seed)
        ),
        "top5": result.top5,
        "loss": result.loss,
        "validation_images": len(result.correct),
        "kendall_tau_from_start": orders.kendall_tau(order, run.initial),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "skipped_steps": run.skipped,
        "broken_images": len(run.loader.broken),
        "images_per_second": trained / run.seconds,
        "seconds": run.seconds,
        "wall_seconds": run.wall_seconds,
        "order": order.tolist(),
    }


RESUME_MAY_CHANGE = (
    "train.epochs",
    "train.threads",
    "train.keep",
    "train.checkpoint_minutes",
    "train.checkpoint_steps",
    "train.timeout_minutes",
    "train.learning_rate",
    "train.clip",
    "train.precision",
    "train.track",
    "data.root",
    "data.workers",
    "data.max_broken",
)


def continued(experiment: Experiment, overrides: list[str]) -> Experiment:
    """The experiment with what may change when it is continued.

    A longer run follows the learning rate of the longer cosine from where it stands; the policy stage keeps
    the steps it had, so that a frozen order stays frozen.
    """
    for override in overrides:
        if override.split("=")[0] not in RESUME_MAY_CHANGE:
            choices = ", ".join(RESUME_MAY_CHANGE)
            raise ValueError(f"--resume cannot change {override.split('=')[0]!r}; it may change {choices}")
    changed = build(experiment, overrides=overrides)
    scale = experiment.train.epochs / changed.train.epochs
    if scale > 1:
        raise ValueError(
            f"train.epochs={changed.train.epochs} is less than the run's {experiment.train.epochs} epochs"
        )
    order = replace(
        changed.order,
        warmup_fraction=changed.order.warmup_fraction * scale,
        policy_fraction=changed.order.policy_fraction * scale,
    )
    return replace(changed, order=order) if scale < 1 else changed


def reopen(directory: RunDir, overrides: list[str], display: Display) -> Experiment:
    """Write down what changes when a run, and those beside it that it is compared with, are continued."""

    def change() -> tuple[Experiment, Experiment]:
        beside = [RunDir(file.parent) for file in sorted(directory.path.glob("fixed-*/config.yaml"))]
        runs = [directory, *beside]
        directory.experiment()  # refuses what is no run before a lock is made in it
        with ExitStack() as held:
            for run in runs:
                held.enter_context(run.locked())
            before = [run.experiment() for run in runs]
            after = [continued(experiment, overrides) for experiment in before]
            for run, experiment in zip(runs, after, strict=True):
                run.reopen(experiment)
        return before[0], after[0]

    before, after = from_first(change)
    if after.train.epochs > before.train.epochs:
        display.say(
            f"{before.train.epochs} epochs become {after.train.epochs}: the learning rate goes on where the "
            "longer cosine has it; the stages of the policy stay where they were"
        )
    return after


def train_with_comparison(
    experiment: Experiment,
    directory: RunDir,
    display: Display,
    world: World | None = None,
    stop: StopSignals | None = None,
) -> list[RunDir]:
    """Train the experiment and, with one seed and budget, row-major and its initial order held fixed."""
    alone = replace(experiment, train=replace(experiment.train, compare=False))
    runs = [(experiment, directory)]
    if experiment.order.policy != "none":
        for scan in dict.fromkeys([experiment.order.scan, "row"]):
            fixed = replace(alone, order=replace(experiment.order, scan=scan, policy="none"))
            name = "fixed-start" if scan.endswith(".json") else f"fixed-{scan}"
            runs.insert(0, (fixed, RunDir(directory.path / name)))
    directory.check(experiment)
    for each, where in reversed(runs):
        train(each, where, display, world, stop, prior_of=directory)
        if stop is not None and on_any([bool(stop.number)], (world or ALONE).device)[0]:
            raise Stopped(stop.number or signal.SIGTERM)
    return [where for _, where in runs]
