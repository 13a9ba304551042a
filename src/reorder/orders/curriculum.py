"""Schedules, as pure functions of the step: the stage, the exploration temperature, the learning rate."""

import math

WARM_UP, POLICY, FROZEN = STAGES = ("warm-up", "policy", "frozen")


def stage_steps(total_steps: int, warmup_fraction: float, policy_fraction: float) -> tuple[int, int]:
    """The steps of a run at which the policy stage starts and stops."""
    return round(warmup_fraction * total_steps), round((warmup_fraction + policy_fraction) * total_steps)


def stage(step: int, start_step: int, stop_step: int) -> str:
    """Which of the three parts of the curriculum a step belongs to; the policy learns in [start, stop)."""
    if step < start_step:
        return WARM_UP
    return POLICY if step < stop_step else FROZEN


def temperature(step: int, start_step: int, stop_step: int, peak: float, every: int = 1) -> float:
    """A triangle: zero at both ends of the policy stage and outside it, `peak` midway.

    The authors' release has this table of a value for each step and moves on in it after `every` steps, an
    epoch's: it ends after 30 of 7,500 values, far below the peak.
    """
    # By the step; in the paper by the epoch, as its peak lasts one epoch, and it does not give the shape.
    half = (stop_step - start_step) / 2
    if not start_step <= step < stop_step:
        return 0.0
    return peak * max(0.0, 1 - abs((step - start_step) // every - half) / half)


def progress(step: int, start_step: int, stop_step: int) -> float:
    """How much of the policy stage is over: 0 before it, 1 after it."""
    return min(1.0, max(0.0, (step - start_step) / max(1, stop_step - start_step)))


def falling(step: int, start_step: int, stop_step: int, peak: float) -> float:
    """`peak` until the policy stage starts, and then linearly down to zero at its end."""
    return peak * (1 - progress(step, start_step, stop_step)) if step < stop_step else 0.0


def learning_rate(
    step: int, warmup_steps: int, total_steps: int, base: float, hold_steps: int = 0, floor: float = 0.0
) -> float:
    """Linear from base / warmup_steps up to `base`, then half a cosine down to zero after the last step.

    Between the two it can be held at `base`, and the cosine can end at a part of it, the `floor`.
    """
    if step < warmup_steps:
        return base * (step + 1) / warmup_steps
    falls = warmup_steps + hold_steps
    progress = max(0, step - falls) / max(1, total_steps - falls)
    return base * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
