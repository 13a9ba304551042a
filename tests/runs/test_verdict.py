import json

import numpy as np
import pytest

from reorder.runs.verdict import Difference, Verdict, paired_points, write_verdict


def test_the_difference_is_the_mean_over_seeds_in_points():
    ours = [np.array([1, 1, 1, 0], bool), np.array([1, 1, 1, 1], bool)]
    theirs = [np.array([1, 0, 1, 0], bool), np.array([0, 0, 1, 1], bool)]
    found = paired_points(ours, theirs)
    assert found.points == pytest.approx((25 + 50) / 2)
    assert (found.seeds, found.images) == (2, 4)


def test_the_error_is_the_larger_of_seeds_and_images():
    ours = [np.array([1, 1, 1, 0], bool), np.array([1, 1, 1, 1], bool)]
    theirs = [np.array([1, 0, 1, 0], bool), np.array([0, 0, 1, 1], bool)]
    over_seeds = np.std([25, 50], ddof=1) / np.sqrt(2)
    over_images = np.std([50, 100, 0, 0]) / np.sqrt(4)  # each image's mean over the seeds
    assert over_images > over_seeds
    assert paired_points(ours, theirs).sem == pytest.approx(over_images)
    many_images = [np.repeat(correct, 100) for correct in ours], [np.repeat(c, 100) for c in theirs]
    assert paired_points(*many_images).sem == pytest.approx(over_seeds)


def test_few_seeds_need_more_of_their_errors():
    # Student's 97.5% quantiles of 1 and 2 degrees of freedom, from a table: 12.706 and 4.303.
    for shares, quantile in (([25, 27], 12.706), ([25, 26, 27], 4.303)):
        ours = [np.repeat([True, False], [share * 100, 10_000 - share * 100]) for share in shares]
        theirs = [np.zeros(10_000, bool) for _ in shares]
        found = paired_points(ours, theirs)
        assert found.bound == pytest.approx(quantile * np.std(shares, ddof=1) / len(shares) ** 0.5, rel=1e-3)
    one = paired_points(ours[:1], theirs[:1])
    assert one.bound == pytest.approx(2 * one.sem)


def test_accidents_pass_the_bound_in_one_of_twenty_comparisons():
    random, passed, repeats = np.random.default_rng(0), 0, 1000
    for _ in range(repeats):
        # Each training's expected accuracy varies by 4 points; the difference of two arms is an accident.
        rates = 0.7 + 0.04 * random.normal(size=(2, 2))
        right = (random.random((2, 2, 400)) < rates[..., None]).astype(bool)
        found = paired_points(list(right[0]), list(right[1]))
        passed += abs(found.points) > found.bound
    assert passed / repeats < 0.06


def test_one_seed_has_the_error_over_images():
    found = paired_points([np.array([1, 1, 0, 0], bool)], [np.array([0, 1, 0, 0], bool)])
    assert found.sem == pytest.approx(np.std([100, 0, 0, 0]) / 2)


def test_a_verdict_is_a_file(tmp_path):
    write_verdict(
        tmp_path / "verdict.json", Verdict("it is better", "row", Difference(1.5, 0.5, 3, 100, 1.0))
    )
    assert json.loads((tmp_path / "verdict.json").read_text()) == {
        "text": "it is better",
        "against": "row",
        "difference": 1.5,
        "difference_sem": 0.5,
        "seeds": 3,
        "images": 100,
    }
