"""Schedules, as pure functions of the step: the stage, the exploration temperature, the learning rate."""

import math

WARM_UP, POLICY, FROZEN = STAGES = ("warm-up", "policy", "frozen")


def stage(step: int, start_step: int, stop_step: int) -> str:
    """Which of the three parts of the curriculum a step belongs to; the policy learns in [start, stop)."""
    if step < start_step:
        return WARM_UP
    return POLICY if step < stop_step else FROZEN


def temperature(step: int, start_step: int, stop_step: int, peak: float) -> float:
    """A triangle: zero at both ends of the policy stage and outside it, `peak` midway."""
    # By the step; in the paper by the epoch, as its peak lasts one epoch, and it does not give the shape.
    half = (stop_step - start_step) / 2
    if half <= 0:
        return 0.0
    return peak * max(0.0, 1 - abs(step - start_step - half) / half)


def learning_rate(step: int, warmup_steps: int, total_steps: int, base: float) -> float:
    """Linear from base / warmup_steps up to `base`, then half a cosine down to zero after the last step."""
    if step < warmup_steps:
        return base * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return base * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
