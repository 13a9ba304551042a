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


def test_one_seed_has_the_error_over_images():
    found = paired_points([np.array([1, 1, 0, 0], bool)], [np.array([0, 1, 0, 0], bool)])
    assert found.sem == pytest.approx(np.std([100, 0, 0, 0]) / 2)


def test_a_verdict_is_a_file(tmp_path):
    write_verdict(tmp_path / "verdict.json", Verdict("it is better", "row", Difference(1.5, 0.5, 3, 100)))
    assert json.loads((tmp_path / "verdict.json").read_text()) == {
        "text": "it is better",
        "against": "row",
        "difference": 1.5,
        "difference_sem": 0.5,
        "seeds": 3,
        "images": 100,
    }
