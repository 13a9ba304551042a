"""Schedules against lists written by hand."""

import pytest

from reorder.orders.curriculum import learning_rate, stage, temperature


def test_temperature_is_a_triangle_over_the_policy_stage():
    # Steps 0..12, policy stage from 2 up to 10: peak at the middle step 6.
    by_hand = [0, 0, 0, 0.05, 0.1, 0.15, 0.2, 0.15, 0.1, 0.05, 0, 0, 0]
    assert [temperature(step, 2, 10, 0.2) for step in range(13)] == pytest.approx(by_hand)


def test_the_papers_curriculum_peaks_at_epoch_thirty_of_a_hundred():
    # N = 15 and M = 30 epochs, in steps of a tenth of an epoch.
    values = [temperature(step, 150, 450, 0.2) for step in range(1000)]
    assert values.index(max(values)) == 300
    assert max(values) == 0.2
    assert values[150] == values[450] == 0
    assert sum(values) == pytest.approx(300 * 0.2 / 2)  # the area of the triangle


def test_no_policy_stage_means_no_noise():
    assert temperature(5, 5, 5, 0.2) == 0


def test_stages_change_at_start_and_stop():
    by_hand = ["warm-up", "warm-up", "policy", "policy", "policy", "frozen", "frozen"]
    assert [stage(step, 2, 5) for step in range(7)] == by_hand


def test_learning_rate_rises_linearly_then_follows_half_a_cosine():
    by_hand = [0.25, 0.5, 0.75, 1.0, 1.0, 0.8535534, 0.5, 0.1464466]
    assert [learning_rate(step, 4, 8, 1.0) for step in range(8)] == pytest.approx(by_hand)
    assert learning_rate(8, 4, 8, 1.0) == pytest.approx(0)


def test_a_table_of_steps_can_move_on_by_the_epoch():
    # Policy stage from 2 up to 10, epochs of 3 steps: the values of steps 2, 3 and 4 for 3, 3 and 2 steps.
    by_hand = [0, 0, 0, 0, 0, 0.05, 0.05, 0.05, 0.1, 0.1, 0, 0, 0]
    assert [temperature(step, 2, 10, 0.2, every=3) for step in range(13)] == pytest.approx(by_hand)


def test_the_learning_rate_can_be_held_and_end_above_zero():
    by_hand = [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8535534, 0.5, 0.1464466]
    assert [learning_rate(step, 2, 9, 1.0, hold_steps=3) for step in range(9)] == pytest.approx(by_hand)
    above = [0.5, 1.0, 1.0, 0.55, 0.1]  # half way down from 1 to 0.1 is 0.55
    assert [learning_rate(step, 2, 4, 1.0, floor=0.1) for step in range(5)] == pytest.approx(above)
    # Held to the end, it never falls.
    assert [learning_rate(step, 1, 4, 2.0, hold_steps=9) for step in range(5)] == [2.0] * 5
