"""Plans of a search against ones written by hand, and what every plan must satisfy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reorder.experiments.budget import BEST, FIXED, LEARNED, VARIED, describe, longer, plan

# budget, candidates, epochs: source, candidates, epochs, cost of each rung
BY_HAND = {
    # 40 epochs: candidates for 2 each, 13 + 7 of them; nothing else fits.
    (1, 60, 40): [(FIXED, 13, 2, 26), (VARIED, 7, 2, 14)],
    # 120 epochs. 10 to learn and 2 for what is learned; of 11 + 6 + 1 the best 6 and row-major go on for 4
    # epochs more, and of these the best 2 and row-major for 14 more, up to half a training.
    (3, 60, 40): [
        (FIXED, 12, 2, 24),
        (VARIED, 6, 2, 12),
        (LEARNED, 1, 2, 12),
        (BEST, 6, 6, 28),
        (BEST, 2, 20, 42),
    ],
    # 120 epochs have room for all 9, for 2 each, a sixth of a training, and for 20 variations. Of 8 + 20 + 1
    # the best 10 go on to half a training, and as these are many, 4 of them to the end.
    (12, 9, 10): [
        (FIXED, 9, 2, 18),
        (VARIED, 20, 2, 40),
        (LEARNED, 1, 2, 4),
        (BEST, 10, 5, 33),
        (BEST, 4, 10, 25),
    ],
}


@pytest.mark.parametrize(("budget", "candidates", "epochs"), BY_HAND)
def test_plans_match_those_written_by_hand(budget, candidates, epochs):
    found = plan(budget, candidates, epochs, seeds=2)
    rungs = [(rung.source, rung.candidates, rung.epochs, rung.cost) for rung in found.rungs]
    assert rungs == BY_HAND[budget, candidates, epochs]


@settings(max_examples=200, deadline=None)
@given(
    budget=st.floats(1, 60),
    candidates=st.integers(3, 80),
    epochs=st.integers(1, 120),
    seeds=st.integers(1, 5),
)
def test_a_plan_stays_within_the_budget_and_narrows(budget, candidates, epochs, seeds):
    try:
        found = plan(budget, candidates, epochs, seeds)
    except ValueError as error:
        assert "too few for a search" in str(error)  # noqa: PT017
        assert budget * epochs < 4 * max(1, round(epochs / 20))  # three candidates and a variation
        return
    # What is spent, counted run by run: a new candidate from its first epoch, another from where it stood.
    spent, trained = 0, found.rungs[0].epochs
    for rung in found.rungs:
        if rung.source == BEST:
            spent += (rung.candidates + 1) * (rung.epochs - trained)  # and row-major
            trained = rung.epochs
        else:
            assert rung.epochs == trained == found.rungs[0].epochs
            spent += rung.candidates * rung.epochs
            spent += max(1, round(epochs / 4)) if rung.source == LEARNED else 0
    assert spent == found.search_epochs <= budget * epochs
    assert found.equal_epochs == spent + epochs
    assert found.final_epochs == seeds * (4 * epochs + spent + epochs)
    fixed, *_ = found.rungs
    assert fixed.source == FIXED
    assert 3 <= fixed.candidates <= candidates
    assert fixed.epochs <= max(1, round(epochs / 6))
    best = [rung for rung in found.rungs if rung.source == BEST]
    assert all(rung.epochs <= epochs for rung in best)
    lengths = [fixed.epochs, *(rung.epochs for rung in best)]
    assert lengths == sorted(set(lengths))  # each rung trains
    entered = sum(rung.candidates for rung in found.rungs if rung.source != BEST) - 1
    for rung in best:
        assert rung.candidates == max(min(2, entered), -(-entered // 3))
        entered = rung.candidates


def test_a_budget_is_spent():
    for budget in (2, 3, 5, 8, 13, 21):
        found = plan(budget, 60, 30, 2)
        assert found.search_epochs > 0.7 * budget * 30


def test_training_goes_on_three_times_as_long_then_to_half_and_to_the_end():
    assert [longer(epochs, 100) for epochs in (5, 10, 15, 45, 50, 60)] == [15, 30, 50, 50, 100, 100]
    assert [longer(epochs, 3) for epochs in (1, 2)] == [3, 3]


def test_a_plan_is_told_in_words():
    told = describe(plan(3, 60, 40, 2))
    assert told == [
        "plan: 12 candidates for 2 epochs, 6 variations of the best for 2 epochs, what a straight-through "
        "run learns from the best for 2 epochs, row-major and the best 6 for 6 epochs, row-major and the "
        "best 2 for 20 epochs: 118 epochs, 3.0 full trainings",
        "then row-major, the best scan, a random order and the order found for 40 epochs, and row-major for "
        "158 epochs, with 2 seeds: 636 epochs",
    ]


def test_own_orders_are_part_of_what_is_told():
    told = describe(plan(3, 60, 40, 2)._replace(own_orders=True))
    assert told[1] == (
        "then row-major, the best scan, a random order, the order found and own orders for every image for "
        "40 epochs, and row-major for 158 epochs, with 2 seeds: 716 epochs"
    )


def test_a_budget_without_room_says_so():
    with pytest.raises(ValueError, match=r"--budget 1 is 3 epochs \(train\.epochs=3\), too few for a search"):
        plan(1, 60, 3, 2)
