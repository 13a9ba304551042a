"""A verdict: one sentence on whether an order was worth it, with the paired difference behind it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reorder.orders.disk import replace_file
from reorder.runs.statistics import mean_over_seeds, student_interval

# S seeds, n images

ERRORS = 2  # standard errors over images beyond which a difference is no accident


class Difference(NamedTuple):
    """How many points of top-1 one arm of a comparison is above another, on the same images and seeds."""

    points: float
    sem: float  # the larger of the errors over seeds and over images
    seeds: int
    images: int
    bound: float  # what 5% of accidents exceed at most; few seeds need more of their errors


class Verdict(NamedTuple):
    text: str
    against: str  # what the order was compared with
    difference: Difference
    own_orders: Difference | None = None  # of own orders for every image, to the order found


def paired_points(correct: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> Difference:
    """The difference of two arms, each with the correctness (n,) of every image for each of S seeds."""
    shares = [100 * (a.astype(float) - b) for a, b in zip(correct, other, strict=True)]
    means = [float(share.mean()) for share in shares]
    mean, over_seeds = mean_over_seeds(means, shares), student_interval(means)
    assert mean.image_error is not None  # all seeds have the same images
    sem = max(mean.seed_error or 0.0, mean.image_error)
    half = (over_seeds.high - over_seeds.low) / 2 if over_seeds is not None else 0.0
    bound = max(half, ERRORS * mean.image_error)
    return Difference(mean.value, sem, mean.seeds, len(shares[0]), bound)


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Write verdict.json: text, against, difference and difference_sem in points, seeds, images.

    With own orders for every image, `own_orders` says how much better they are than the order found.
    """
    difference, own = verdict.difference, verdict.own_orders
    content: dict[str, Any] = {
        "text": verdict.text,
        "against": verdict.against,
        "difference": difference.points,
        "difference_sem": difference.sem,
        "seeds": difference.seeds,
        "images": difference.images,
    }
    if own is not None:
        content["own_orders"] = {
            "against": "order found",
            "difference": own.points,
            "difference_sem": own.sem,
        }
    replace_file(path, json.dumps(content, indent=1) + "\n")
