"""What learning gains over starts and models, and what other settings change, against sums by hand."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from written_runs import make_run

from reorder.comparisons import NOISE, START, Comparison, Pair
from reorder.gains import EXPLORED, LEARNED, gains, setting_changes
from reorder.results import collect, expand
from reorder.tables import Number


def learned(kind, start, by_seed, policy="global", settings="", model="m"):
    """A comparison of ten images, of which so many tenths more are right in the learned order."""
    pairs = []
    for seed, difference in by_seed.items():
        summary = {"policy": policy, "scan": start}
        order = {"global": f"learned from {start}", "noise": f"{start}, equal noise"}[policy] + settings
        a, b = np.arange(10) < 10 * max(0, difference), np.arange(10) < -10 * min(0, difference)
        result = SimpleNamespace(seed=seed, summary=summary, order=order, correct=a)
        paired = SimpleNamespace(difference=difference)
        pairs.append(Pair(result, SimpleNamespace(correct=b), paired))
    return Comparison((model, "d", order), kind, "other", pairs)


def test_gains_are_means_over_the_starts_that_have_all_seeds():
    comparisons = [
        learned(START, "row", {0: 0.1, 1: 0.2}),
        learned(START, "column", {0: 0.3, 1: -0.2}),
        learned(START, "spiral", {0: 0.9}),  # a start with fewer seeds would cost the others theirs
        learned(NOISE, "row", {0: 0.1}),  # a single start is no mean
        learned(START, "row", {0: 1.0, 1: 1.0}, policy="noise"),
    ]
    (gain,), notes = gains(comparisons)
    assert (gain.what, gain.against, gain.over, gain.seeds) == (LEARNED, START, 2, [0, 1])
    assert gain.differences == pytest.approx([0.2, 0.0])
    assert str(Number(gain.mean.value, gain.mean.seed_error)) == "0.10 ± 0.10"
    assert notes == [
        "m, d, learned against its start, fixed: not from spiral, for want of seeds that others have.",
        "m, d, learned against equal noise: not from column, spiral, for want of a partner.",
        "m, d, learned against row-major: not from row, column, spiral, for want of a partner.",
        "m, d, learned against best fixed scan: not from row, column, spiral, for want of a partner.",
    ]


def test_the_gain_of_several_models_is_their_mean_seed_by_seed():
    of = {"vit mini": (0.9, 0.9), "mamba mini": (0.1, 0.2), "longformer mini": (0.3, -0.4)}
    comparisons = [
        learned(START, start, dict(enumerate(differences)), model=model)
        for model, differences in of.items()
        for start in ("row", "column")
    ]
    *_, pooled = gains(comparisons)[0]
    assert pooled.model == "mean of 2 models, without the ViT"
    assert pooled.differences == pytest.approx([0.2, -0.1])
    assert pooled.mean.seed_error == pytest.approx(0.15)
    seeds = [[(i < 1) / 2 + (i < 3) / 2 for i in range(10)], [(i < 2) / 2 - (i < 4) / 2 for i in range(10)]]
    assert pooled.mean.image_error == pytest.approx(np.mean(seeds, axis=0).std() / math.sqrt(10))


def test_models_that_lack_runs_share_a_mean_of_what_all_have_and_it_is_said():
    comparisons = [
        learned(START, "row", {0: 0.1, 1: 0.2}, model="mamba mini"),
        learned(START, "column", {0: 0.5, 1: 0.5}, model="mamba mini"),
        learned(START, "row", {1: 0.4, 2: 0.9}, model="longformer mini"),
    ]
    (of_mamba, pooled), notes = gains(comparisons)
    assert (of_mamba.model, of_mamba.over) == ("mamba mini", 2)
    assert (pooled.model, pooled.over, pooled.seeds) == ("mean of 2 models, without the ViT", 1, [1])
    assert pooled.differences == pytest.approx([0.3])
    about = "mean of 2 models, without the ViT, d, learned against its start, fixed"
    assert f"{about}: of what all have, which is row with seed 1." in notes
    comparisons[-1] = learned(START, "spiral", {0: 0.4}, model="longformer mini")
    (only,), notes = gains(comparisons)
    assert only.model == "mamba mini"
    assert f"{about}: none, for they have no start and seed in common." in notes


def test_exploring_alone_is_compared_with_its_start_too():
    found, _ = gains([learned(START, start, {0: 0.1, 1: 0.3}, "noise") for start in ("row", "column")])
    assert [(gain.what, gain.against, gain.differences) for gain in found] == [
        (EXPLORED, START, pytest.approx([0.1, 0.3]))
    ]


def test_a_gain_of_one_seed_has_the_error_over_images():
    (gain,), _ = gains([learned(START, "row", {0: 0.1}), learned(START, "column", {0: -0.2})])
    # From row the first of ten images alone is gained, from column the first two are lost.
    shares = [0.0, -0.5, *[0.0] * 8]
    assert gain.mean.seed_error is None
    assert gain.mean.value == pytest.approx(np.mean(shares))
    assert gain.mean.image_error == pytest.approx(np.std(shares) / math.sqrt(10))


def test_other_settings_of_a_policy_are_no_further_starts():
    hot, cold = (", order.temperature=0.5", ", order.temperature=0.1")
    comparisons = [
        learned(START, start, {0: value}, settings=settings)
        for start, settings, value in (("row", hot, 0.1), ("column", hot, 0.3), ("row", cold, 0.9))
    ]
    (gain,), _ = gains(comparisons)
    assert (gain.model, gain.over, gain.differences) == ("m" + hot, 2, pytest.approx([0.2]))


def write_variant(path, scan_name, seed, right, options=None, **more):
    """A run with options of its model."""
    run = make_run(path, scan_name, "none", seed, right, "mamba", **more)
    text = (run.path / "config.yaml").read_text()
    (run.path / "config.yaml").write_text(
        text.replace("options: {}", f"options: {json.dumps(options or {})}")
    )


def test_settings_in_which_alone_runs_differ_are_compared_over_all_orders(tmp_path):
    """Of 60 images 6 are 10 points: +10 and +20 by row, +30 by column, where one seed has no partner."""
    right = {"row": ((30, 30), (36, 42)), "column": ((24, 30), (42, 48)), "spiral": ((30,), (60, 60))}
    for scan_name, (first, middle) in right.items():
        for seed, count in enumerate(first):
            write_variant(tmp_path / f"first-{scan_name}-{seed}", scan_name, seed, count)
        for seed, count in enumerate(middle):
            options = {"readout": "middle"}
            write_variant(tmp_path / f"middle-{scan_name}-{seed}", scan_name, seed, count, options)
    for seed in range(2):
        make_run(tmp_path / f"long-{seed}", "row", "none", seed, 33, "mamba", epochs=9)
        options = {"readout": "middle", "scans": 1}
        write_variant(tmp_path / f"plain-{seed}", "row", seed, 45, options)
    found = {(gain.what, gain.against): gain for gain in setting_changes(collect(expand([tmp_path])).results)}
    assert {names: (gain.model, gain.over, gain.seeds) for names, gain in found.items()} == {
        ("model.options.readout=middle", "model.options.readout=default"): ("mamba mini", 2, [0, 1]),
        ("model.options.scans=1", "model.options.scans=default"): ("mamba mini readout=middle", 1, [0, 1]),
        ("train.epochs=9", "train.epochs=3"): ("mamba mini", 1, [0, 1]),
    }
    gain = found["model.options.readout=middle", "model.options.readout=default"]
    assert gain.differences == pytest.approx([(0.1 + 0.3) / 2, (0.2 + 0.3) / 2])
    assert found["train.epochs=9", "train.epochs=3"].differences == pytest.approx([0.05, 0.05])


def test_runs_on_other_images_are_no_change_of_a_setting(tmp_path):
    make_run(tmp_path / "a")
    other = make_run(tmp_path / "b")
    text = (other.path / "config.yaml").read_text()
    (other.path / "config.yaml").write_text(text.replace("validation_images: null", "validation_images: 60"))
    results = collect(expand([tmp_path])).results
    assert len(results) == 2
    assert setting_changes(results) == []
