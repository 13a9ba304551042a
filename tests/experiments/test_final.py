"""Verdicts in words, from differences written by hand."""

import pytest

from reorder.experiments.final import FOUND, RANDOM, SCAN, Own, describe
from reorder.runs.verdict import Difference


def points(value, sem):
    return Difference(value, sem, seeds=2, images=1000, bound=2 * sem)


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


BETTER = "the order found is 12.4 ± 0.6 points better than row-major, "
LONG = "row-major trained as long as the whole search took"
NONE = "no order among 60 was found to be better than row-major, "
NEITHER = (
    "no order among 60, nor own orders for every image, was found to differ from row-major by more than "
)
MODEL = "with an order of its own for every image the model is "


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (points(3.1, 0.6), f"{MODEL}3.1 ± 0.6 points better still"),
        (points(-2.0, 0.5), f"{MODEL}2.0 ± 0.5 points worse than with the order found"),
        (points(0.2, 0.5), "own orders for every image add nothing (+0.2 ± 0.5)"),
        (points(-0.3, 0.4), "own orders for every image add nothing (-0.3 ± 0.4)"),
        (
            points(1.1, 0.6),
            "whether own orders for every image add anything to the order found cannot be told (+1.1 ± 0.6)",
        ),
    ],
)
def test_the_verdict_says_what_own_orders_add_to_an_order_that_is_better(own, said):
    own = Own(points(15.5, 0.7), own, points(12.0, 0.8))
    told = describe(points(12.4, 0.6), points(9.1, 0.7), NOTHING, 60, own)
    assert told == f"{BETTER}9.1 ± 0.7 better than {LONG}; {said}"


def test_own_orders_are_held_to_equal_compute_where_the_order_found_fails_it():
    own = Own(points(15.5, 0.7), points(3.1, 0.6), points(2.0, 0.8))
    assert describe(points(12.4, 0.6), points(-1.0, 0.7), NOTHING, 60, own) == (
        f"{BETTER}but no better than {LONG} (-1.0 ± 0.7); {MODEL}3.1 ± 0.6 points better still, 2.0 ± 0.8 "
        f"better than {LONG}"
    )


@pytest.mark.parametrize(
    ("own", "others", "said"),
    [
        (
            Own(points(30.1, 1.0), points(29.9, 1.1), points(28.0, 1.2)),
            NOTHING,
            f"{NONE}but own orders for every image are, by 30.1 ± 1.0 points, 28.0 ± 1.2 better than {LONG}; "
            f"{MODEL}29.9 ± 1.1 points better than with the order found",
        ),
        (
            Own(points(1.8, 0.7), points(0.4, 0.6), points(-4.0, 0.5)),
            NOTHING,
            f"{NONE}but own orders for every image are, by 1.8 ± 0.7 points, but 4.0 ± 0.5 worse than "
            f"{LONG}: for one model, longer training is worth more; own orders for every image add nothing "
            "(+0.4 ± 0.6)",
        ),
        (
            Own(points(0.3, 0.4), points(0.1, 0.3), points(0.0, 0.5)),
            NOTHING,
            f"{NEITHER}1.1 points: for this model and data order does not matter; keep row-major; own orders "
            "for every image add nothing (+0.1 ± 0.3)",
        ),
        (
            Own(points(1.5, 0.8), points(1.3, 0.8), points(0.0, 0.5)),
            NOTHING,
            f"{NEITHER}3.1 points, which is too much to tell: give more --seeds, validation images or "
            "epochs; whether own orders for every image add anything to the order found cannot be told "
            "(+1.3 ± 0.8)",
        ),
        (
            Own(points(-5.0, 0.7), points(-5.2, 0.7), points(-6.0, 0.5)),
            NOTHING,
            f"{NONE}and own orders for every image are 5.0 ± 0.7 points worse; keep row-major; {MODEL}"
            "5.2 ± 0.7 points worse than with the order found",
        ),
        (
            Own(points(1.0, 0.3), points(0.8, 0.3), points(0.0, 0.5)),
            {SCAN: points(4.2, 0.3)},
            f"{NONE}but the best scan it was compared with is, by 4.2 ± 0.3 points; read that; {MODEL}"
            "0.8 ± 0.3 points better than with the order found",
        ),
    ],
)
def test_where_the_order_found_is_no_better_own_orders_may_be(own, others, said):
    assert describe(points(0.2, 0.3), points(0.0, 0.5), others, 60, own) == said
