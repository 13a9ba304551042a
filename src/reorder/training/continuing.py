"""What may change when a run is continued, and what a longer run keeps."""

from contextlib import ExitStack
from dataclasses import replace

from reorder.config import Experiment, build, check_continuation
from reorder.data.progress import Display
from reorder.data.ranks import from_first
from reorder.runs.directory import RunDir


def continued(experiment: Experiment, overrides: list[str]) -> Experiment:
    """The experiment with what may change when it is continued.

    A longer run follows the learning rate of the longer cosine from where it stands; the policy stage keeps
    the steps it had, so that a frozen order stays frozen.
    """
    check_continuation(overrides)
    changed = build(experiment, overrides=overrides)
    scale = experiment.train.epochs / changed.train.epochs
    if scale > 1:
        raise ValueError(
            f"train.epochs={changed.train.epochs} is less than the run's {experiment.train.epochs} epochs"
        )
    warmup, policy, *_ = changed.order.curriculum
    order = replace(changed.order, warmup_fraction=warmup * scale, policy_fraction=policy * scale)
    return replace(changed, order=order) if scale < 1 else changed


def reopen(directory: RunDir, overrides: list[str], display: Display) -> Experiment:
    """Write down what changes when a run, and those beside it that it is compared with, are continued."""

    def change() -> tuple[Experiment, Experiment]:
        directory.experiment()  # refuses what is no run before a lock is made in it
        runs = [directory] if directory.handed_over else [directory, *directory.inside()]
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
