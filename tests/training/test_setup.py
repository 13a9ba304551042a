"""What a run keeps while it is under way."""

from types import SimpleNamespace

import torch

from reorder.orders.fixed import FixedOrder
from reorder.orders.learner import OrderLearner
from reorder.training.checkpoint import remember_policy


def remembered(learner, steps_per_epoch, total_steps):
    """The moments that a run of so many steps keeps; the first logit is the step it was kept in."""
    run = SimpleNamespace(
        learner=learner, loader=SimpleNamespace(steps_per_epoch=steps_per_epoch), step=0, moments=[]
    )
    for run.step in range(total_steps + 1):
        if isinstance(learner, OrderLearner):
            learner.policy.logits.data[0] = run.step
        remember_policy(run)
    return run.moments


def learner_of(total_steps, start, stop):
    learner = OrderLearner(
        (2, 2),
        "row",
        total_steps=total_steps,
        warmup_fraction=start / total_steps,
        policy_fraction=(stop - start) / total_steps,
        estimator="paper",
    )
    assert (learner.start_step, learner.stop_step) == (start, stop)
    return learner


def test_of_a_long_policy_stage_41_moments_are_kept_and_all_ends_of_epochs():
    moments = remembered(learner_of(2000, 500, 1500), 400, 2000)
    learning = [*range(500, 1501, 25)]  # from its start to its stop
    assert len(learning) == 41
    kept = sorted({0, 400, 800, 1200, 1600, 2000, *learning})
    assert [logits[0].item() for *_, logits in moments] == kept
    assert [epoch for epoch, *_ in moments] == [step / 400 for step in kept]
    # of each, the stage and the temperature of the step before it
    stages = ["warm-up" if step <= 500 else "policy" if step <= 1500 else "frozen" for step in kept]
    assert [stage for _, stage, *_ in moments] == ["before training", *stages[1:]]
    at_step = {step: temperature for step, (_, _, temperature, _) in zip(kept, moments, strict=True)}
    assert at_step[0] == at_step[500] == at_step[1600] == 0 < at_step[525] < at_step[1000] > at_step[1500]


def test_of_a_short_policy_stage_every_step_is_kept_once():
    moments = remembered(learner_of(40, 12, 22), 8, 40)
    assert [logits[0].item() for *_, logits in moments] == [0, 8, *range(12, 23), 24, 32, 40]


def test_without_a_policy_the_ends_of_epochs_are_kept():
    moments = remembered(FixedOrder((2, 2)), 8, 24)
    assert [(epoch, stage) for epoch, stage, *_ in moments] == [
        (0, "before training"),
        (1, "fixed"),
        (2, "fixed"),
        (3, "fixed"),
    ]
    assert all(torch.numel(logits) == 0 for *_, logits in moments)
