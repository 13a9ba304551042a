"""Verdicts in words, from differences written by hand."""

import pytest

from reorder.experiments.final import FOUND, RANDOM, SCAN, describe
from reorder.runs.verdict import Difference


def points(value, sem):
    return Difference(value, sem, seeds=2, images=1000)


NOTHING = {SCAN: points(0.1, 0.2), RANDOM: points(-0.2, 0.2)}


@pytest.mark.parametrize(
    ("found", "equal", "others", "said"),
    [
        (
            points(12.4, 0.6),
            points(9.1, 0.7),
            NOTHING,
            "the order found is 12.4 ± 0.6 points better than row-major, 9.1 ± 0.7 better than row-major "
            "trained as long as the whole search took",
        ),
        (
            points(2.4, 0.6),
            points(-3.0, 0.5),
            NOTHING,
            "the order found is 2.4 ± 0.6 points better than row-major, but 3.0 ± 0.5 worse than row-major "
            "trained as long as the whole search took: for one model, longer training is worth more",
        ),
        (
            points(2.4, 0.6),
            points(0.9, 0.5),
            NOTHING,
            "the order found is 2.4 ± 0.6 points better than row-major, but no better than row-major trained "
            "as long as the whole search took (+0.9 ± 0.5)",
        ),
        (
            points(2.4, 0.6),
            points(-0.9, 0.5),
            NOTHING,
            "the order found is 2.4 ± 0.6 points better than row-major, but no better than row-major trained "
            "as long as the whole search took (-0.9 ± 0.5)",
        ),
        (
            points(0.2, 0.3),
            points(-3.0, 0.5),
            NOTHING,
            "no order among 60 was found to differ from row-major by more than 0.8 points: for this model "
            "and data order does not matter; keep row-major",
        ),
        (
            points(-0.2, 1.5),
            points(0.0, 0.5),
            NOTHING,
            "no order among 60 was found to differ from row-major by more than 3.2 points, which is too much "
            "to tell: give more --seeds, validation images or epochs",
        ),
        (
            points(0.2, 0.3),
            points(0.0, 0.5),
            {SCAN: points(-1.2, 0.3), RANDOM: points(-5.1, 0.7)},
            "no order among 60 was found to be better than row-major, and the random order is 5.1 ± 0.7 "
            "points worse; keep row-major",
        ),
        (
            points(-2.0, 0.3),
            points(0.0, 0.5),
            NOTHING,
            f"no order among 60 was found to be better than row-major, and the {FOUND} is 2.0 ± 0.3 points "
            "worse; keep row-major",
        ),
        (
            points(0.2, 0.3),
            points(0.0, 0.5),
            {SCAN: points(1.2, 0.3), RANDOM: points(-5.1, 0.7)},
            "no order among 60 was found to be better than row-major, but the best scan it was compared with "
            "is, by 1.2 ± 0.3 points; read that",
        ),
    ],
)
def test_the_verdict_says_what_the_differences_do(found, equal, others, said):
    assert describe(found, equal, others, 60) == said
