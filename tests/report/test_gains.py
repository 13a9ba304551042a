"""What learning gains over starts and models, and what other settings change, against sums by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from written_runs import make_run

from reorder.report.comparisons import NOISE, START, Pair, as_table, mean_difference
from reorder.report.gains import LEARNED, gains, setting_changes
from reorder.report.results import collect, expand
from reorder.report.tables import Number


def learned(against, start, by_seed, policy="global", settings="", model="m", epochs=3):
    """Pairs of ten images, of which so many tenths more are right in the learned order."""
    kind = {"global": "learned", "noise": "equal noise"}[policy]
    run = SimpleNamespace(keys={"train.epochs": epochs, "model.name": model})
    pairs = []
    for seed, difference in by_seed.items():
        a, b = np.arange(10) < 10 * max(0, difference), np.arange(10) < -10 * min(0, difference)
        names = (against, kind, model, "d", settings, start, f"{kind} from {start}", "other", seed)
        pairs.append(Pair(*names, run, run, a.astype(float) - b))
    return pairs


def gains_of(*comparisons):
    return gains(as_table([pair for pairs in comparisons for pair in pairs]))


def differences(gain):
    return [share.mean() for share in gain.shares]


def test_gains_are_means_over_the_starts_that_share_most_seeds():
    comparisons = [
        learned(START, "row", {0: 0.1, 1: 0.2, 2: 0.9}),
        learned(START, "column", {0: 0.3, 1: -0.2}),
        learned(START, "spiral", {0: 0.9}),  # with it there would be a single seed
        learned(NOISE, "row", {0: 0.1}),  # a single start is no mean
        learned(START, "row", {0: 1.0, 1: 1.0}, policy="noise"),
    ]
    (gain,), notes = gains_of(*comparisons)
    assert (gain.what, gain.against, gain.over, gain.seeds) == (LEARNED, START, 2, [0, 1])
    assert differences(gain) == pytest.approx([0.2, 0.0])
    assert (
        str(Number(mean_difference(gain.shares).value, mean_difference(gain.shares).seed_error))
        == "0.10 ± 0.10"
    )
    assert notes == [
        "m, d, learned against its start, fixed: of row, column with seed 0, 1; what does not share those "
        "seeds is left out."
    ]


def test_the_gain_of_several_models_is_their_mean_seed_by_seed():
    of = {"vit mini": (0.9, 0.9), "mamba mini": (0.1, 0.2), "longformer mini": (0.3, -0.4)}
    comparisons = [
        learned(START, start, dict(enumerate(differences)), model=model)
        for model, differences in of.items()
        for start in ("row", "column")
    ]
    *_, pooled = gains_of(*comparisons)[0]
    assert pooled.model == "mean of 2 models, without the ViT"
    assert differences(pooled) == pytest.approx([0.2, -0.1])
    assert mean_difference(pooled.shares).seed_error == pytest.approx(0.15)
    seeds = [[(i < 1) / 2 + (i < 3) / 2 for i in range(10)], [(i < 2) / 2 - (i < 4) / 2 for i in range(10)]]
    assert mean_difference(pooled.shares).image_error == pytest.approx(
        np.mean(seeds, axis=0).std() / math.sqrt(10)
    )


def test_models_that_lack_runs_share_a_mean_of_what_all_have_and_it_is_said():
    comparisons = [
        learned(START, "row", {0: 0.1, 1: 0.2}, model="mamba mini"),
        learned(START, "column", {0: 0.5, 1: 0.5}, model="mamba mini"),
        learned(START, "row", {1: 0.4, 2: 0.9}, model="longformer mini"),
    ]
    (of_mamba, pooled), notes = gains_of(*comparisons)
    assert (of_mamba.model, of_mamba.over) == ("mamba mini", 2)
    assert (pooled.model, pooled.over, pooled.seeds) == ("mean of 2 models, without the ViT", 1, [1])
    assert differences(pooled) == pytest.approx([0.3])
    about = "d, learned against its start, fixed"
    found = "mamba mini, longformer mini, from row with seed 1; what they do not share is left out"
    assert f"mean of 2 models, without the ViT, {about}: of {found}." in notes
    comparisons[-1] = learned(START, "spiral", {0: 0.4}, model="longformer mini")
    (only,), notes = gains_of(*comparisons)
    assert only.model == "mamba mini"
    assert f"{about}: no mean over models, which share no start and seed." in notes


def test_a_model_that_was_only_tried_or_trained_otherwise_leaves_the_mean_of_the_others():
    main = [
        learned(START, start, {0: 0.1, 1: 0.3}, model=model)
        for model in ("mamba mini", "longformer mini")
        for start in ("row", "column")
    ]
    trial = learned(START, "row", {0: 0.9}, model="mamba mini readout=mean")
    found, notes = gains_of(*main, trial)
    assert (found[-1].model, found[-1].over) == ("mean of 2 models, without the ViT", 2)
    assert differences(found[-1]) == pytest.approx([0.1, 0.3])
    assert any(note.startswith("mean of 2 models") and "longformer mini, from row" in note for note in notes)
    long = [
        learned(START, start, {0: 0.9, 1: 0.9}, model="transformer_xl mini", epochs=9)
        for start in ("row", "column")
    ]
    (pooled,) = (gain for gain in gains_of(*main, *long)[0] if "mean of" in gain.model)
    assert differences(pooled) == pytest.approx([0.1, 0.3])


def test_exploring_alone_is_compared_with_its_start_too():
    found, _ = gains_of(*(learned(START, start, {0: 0.1, 1: 0.3}, "noise") for start in ("row", "column")))
    assert [(gain.what, gain.against, differences(gain)) for gain in found] == [
        (NOISE, START, pytest.approx([0.1, 0.3]))
    ]


def test_a_gain_of_one_seed_has_the_error_over_images():
    (gain,), _ = gains_of(learned(START, "row", {0: 0.1}), learned(START, "column", {0: -0.2}))
    # From row the first of ten images alone is gained, from column the first two are lost.
    shares = [0.0, -0.5, *[0.0] * 8]
    assert mean_difference(gain.shares).seed_error is None
    assert mean_difference(gain.shares).value == pytest.approx(np.mean(shares))
    assert mean_difference(gain.shares).image_error == pytest.approx(np.std(shares) / math.sqrt(10))


def test_other_settings_of_a_policy_are_no_further_starts():
    hot, cold = (", order.temperature=0.5", ", order.temperature=0.1")
    comparisons = [
        learned(START, start, {0: value}, settings=settings)
        for start, settings, value in (("row", hot, 0.1), ("column", hot, 0.3), ("row", cold, 0.9))
    ]
    (gain,), _ = gains_of(*comparisons)
    assert (gain.model, gain.over, differences(gain)) == ("m" + hot, 2, pytest.approx([0.2]))


def write_variant(path, scan_name, seed, right, old="", new="", policy="none", **more):
    """A run whose configuration has something replaced."""
    run = make_run(path, scan_name, policy, seed, right, "mamba", **more)
    text = (run.path / "config.yaml").read_text()
    assert old in text
    (run.path / "config.yaml").write_text(text.replace(old, new))


def changes_in(path):
    found, notes = setting_changes(collect(expand([path])).results)
    return {(gain.what, gain.against): gain for gain in found}, notes


def test_settings_in_which_alone_runs_differ_are_compared_over_all_orders(tmp_path):
    """Of 60 images 6 are 10 points: +10 and +20 by row, +30 by column; of spiral a seed has no partner."""
    right = {"row": ((30, 30), (36, 42)), "column": ((24, 30), (42, 48)), "spiral": ((30,), (60, 60))}
    for scan_name, (first, middle) in right.items():
        for seed, count in enumerate(first):
            write_variant(tmp_path / f"first-{scan_name}-{seed}", scan_name, seed, count)
        for seed, count in enumerate(middle):
            options = ("options: {}", "options: {readout: middle}")
            write_variant(tmp_path / f"middle-{scan_name}-{seed}", scan_name, seed, count, *options)
    for seed in range(2):
        write_variant(tmp_path / f"long-{seed}", "row", seed, 33, epochs=9)
        write_variant(tmp_path / f"plain-{seed}", "row", seed, 27, "augment: flip", "augment: none")
        options = ("options: {}", "options: {readout: middle, scans: 1}")
        write_variant(tmp_path / f"scans-{seed}", "row", seed, 45, *options)
    found, notes = changes_in(tmp_path)
    assert {names: (gain.model, gain.over, gain.seeds) for names, gain in found.items()} == {
        ("model.options.readout=middle", "model.options.readout=default"): ("mamba mini", 2, [0, 1]),
        ("model.options.scans=1", "model.options.scans=default"): ("mamba mini readout=middle", 1, [0, 1]),
        ("train.epochs=9", "train.epochs=3"): ("mamba mini", 1, [0, 1]),
        ("data.augment=none", "data.augment=flip"): ("mamba mini", 1, [0, 1]),
    }
    gain = found["model.options.readout=middle", "model.options.readout=default"]
    assert differences(gain) == pytest.approx([(0.1 + 0.3) / 2, (0.2 + 0.3) / 2])
    assert differences(found["train.epochs=9", "train.epochs=3"]) == pytest.approx([0.05, 0.05])
    assert len(notes) == 1
    assert "of row, fixed, column, fixed with seed 0, 1; what does not share" in notes[0]


def test_runs_that_differ_in_more_or_in_their_images_are_no_change_of_a_setting(tmp_path):
    write_variant(tmp_path / "a" / "all", "row", 0, 30)
    images = ("validation_images: null", "validation_images: 60")
    write_variant(tmp_path / "a" / "few", "row", 0, 30, *images)
    for name, more in (("short", {}), ("long", {"epochs": 9, "policy_fraction": 0.1})):
        write_variant(tmp_path / "b" / name, "row", 0, 30, policy="global", **more)
        write_variant(tmp_path / "b" / f"fixed-{name}", "row", 0, 30, epochs=more.get("epochs", 3))
    assert len(collect(expand([tmp_path / "a"])).results) == 2
    assert changes_in(tmp_path / "a")[0] == {}
    (gain,) = changes_in(tmp_path / "b")[0].values()
    assert (gain.what, gain.over) == ("train.epochs=9", 1)  # of the fixed orders; learned ones differ in more
