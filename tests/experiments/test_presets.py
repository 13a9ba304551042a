"""Presets: every run of the paper is there, complete, and with the paper's numbers."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from reorder import OrderLearner
from reorder.config import build, to_yaml
from reorder.data.ranks import World
from reorder.experiments.presets import PRESETS, describe, preset
from reorder.models.classifier import create_model
from reorder.models.sizes import size_of
from reorder.orders.candidates import candidates
from reorder.training.continuing import continued
from reorder.training.setup import check_machine, learner_of

# The appendix's table "Batch sizes for every model-dataset pairing", which is per GPU, and the GPUs it names.
BATCHES = """
vit imagenet 896
vit fmow 448
transformer_xl imagenet 640
transformer_xl fmow 320
longformer imagenet 640
longformer fmow 320
mamba imagenet 640
mamba fmow 320
"""
GPUS = {"imagenet": 8, "fmow": 4}
MAIN = re.compile(
    r"paper/(vit|transformer_xl|longformer|mamba)-(imagenet|fmow)"
    r"-(row|column|hilbert|spiral|diagonal|snake)(-reorder)?"
)


def test_the_96_main_runs_are_what_their_names_say():
    batches = {tuple(line.split()[:2]): int(line.split()[2]) for line in BATCHES.strip().splitlines()}
    seen = Counter()
    for name in PRESETS:
        if (match := MAIN.fullmatch(name)) is None:
            continue
        model, data, scan, reorder = match.groups()
        run = preset(name)
        assert (run.model.name, run.data.name, run.order.scan) == (model, data, scan)
        assert run.order.policy == ("global" if reorder else "none")
        assert run.train.batch_size == GPUS[data] * batches[model, data]
        seen[model, data] += 1
    assert seen == dict.fromkeys(batches, 12)
    assert seen.total() == 96


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("paper/")])
def test_every_run_of_the_paper_keeps_its_recipe(name):
    run = preset(name)
    assert (run.model.size, run.model.image_size, run.model.patch_size) == ("base", 224, 16)
    assert run.train.epochs == (300 if name.endswith("-300-epochs") else 100)
    assert (run.train.learning_rate, run.train.weight_decay, run.train.warmup_epochs) == (1e-4, 0.03, 5)
    assert run.data.augment == ("none" if name.endswith("-no-flips") else "flip")
    if "-reorder" in name:
        assert (run.order.policy, run.order.estimator, run.order.temperature) == ("global", "paper", 0.2)
        assert run.order.learning_rate == 1e-4
    assert not run.train.compare
    assert build(run, overrides=["train.seed=0"]) == run  # survives being written and read
    assert to_yaml(run)


def test_the_ablations_of_the_appendix_are_the_rest():
    run = "paper/transformer_xl-imagenet"
    rest = {name for name in PRESETS if name.startswith("paper/") and not MAIN.fullmatch(name)}
    scans = ("row", "column", "hilbert", "spiral", "diagonal", "snake")
    no_flips = {f"{run}-{scan}{reorder}-no-flips" for scan in scans for reorder in ("", "-reorder")}
    longer = {f"{run}-row-300-epochs", f"{run}-row-reorder-300-epochs"}
    others = {f"{run}-random", f"{run}-random-every-batch", f"{run}-learned"}
    assert rest == no_flips | longer | others
    assert (
        len(PRESETS) == 96 + 12 + 2 + 3 + 3 + 1 + 96
    )  # the last but one is gigapixel, the last are release/...


def test_the_ablations_change_one_thing():
    run = "paper/transformer_xl-imagenet"
    row = preset(f"{run}-row")
    orders = {name: preset(f"{run}-{name}").order for name in ("random", "random-every-batch", "learned")}
    assert (orders["random"].scan, orders["random"].policy) == ("random", "none")
    assert (orders["random-every-batch"].scan, orders["random-every-batch"].policy) == ("row", "random")
    assert orders["learned"].policy == "none"
    assert orders["learned"].scan.endswith(f"/runs/{run}-column-reorder/order.json")
    for name in orders:
        other = preset(f"{run}-{name}")
        assert (other.model, other.data, other.train) == (row.model, row.data, row.train)


@pytest.mark.parametrize("suffix", ["", "-300-epochs"])
def test_the_policy_learns_in_epochs_15_to_45(suffix):
    run = preset(f"paper/transformer_xl-imagenet-row-reorder{suffix}")
    steps = 1_281_167 // run.train.batch_size
    assert steps == 250
    learner = OrderLearner(
        (14, 14),
        run.order.scan,
        total_steps=run.train.epochs * steps,
        warmup_fraction=run.order.warmup_fraction,
        policy_fraction=run.order.policy_fraction,
    )
    assert (learner.start_step, learner.stop_step) == (15 * steps, 45 * steps)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("vit", 86_570_728),
        ("transformer_xl", 93_764_584),
        ("longformer", 107_834_344),  # with learned positions, as the text says; the table's has none
        ("mamba", 85_036_264),
    ],
)
def test_the_models_have_the_paper_s_sizes(name, parameters):
    model = preset(f"paper/{name}-imagenet-row").model
    with torch.device("meta"):
        built = create_model(
            name, model.size, model.image_shape, model.patch_size, classes=1000, **model.options
        )
    assert built.grid == (14, 14)
    assert sum(p.numel() for p in built.parameters()) == parameters


def test_memory_and_window_are_stated():
    assert preset("paper/transformer_xl-fmow-row").model.options == {"memory": 128}
    assert preset("paper/longformer-fmow-row").model.options == {"window": 14}


def test_changing_one_experiment_leaves_the_preset_alone():
    preset("paper/longformer-fmow-row").model.options["window"] = 2
    assert preset("paper/longformer-fmow-row").model.options == {"window": 14}


def test_no_two_presets_are_the_same_experiment_or_look_it():
    assert len({to_yaml(preset(name)) for name in PRESETS}) == len(PRESETS)
    assert len({describe(preset(name)) for name in PRESETS}) == len(PRESETS)


def test_descriptions():
    said = describe(preset("paper/transformer_xl-imagenet-spiral-reorder-no-flips"))
    assert said == (
        "base transformer_xl, imagenet, no flips, 100 epochs, batch 5120, order: learned from spiral"
    )
    said = describe(preset("release/mamba-fmow-diagonal-reorder"))
    assert said == "base mamba, fmow, 100 epochs, batch 1280, float16, order: learned from release-diagonal"
    said = describe(preset("paper/transformer_xl-imagenet-learned"))
    assert said.endswith("order: transformer_xl-imagenet-column-reorder, fixed")


# What the authors' release sets, read from its configurations and trainer: batch per GPU, and the rate of the
# policy in its file names (po1e-4, po1e-5); both rates are multiplied by the root of the number of GPUs.
RELEASED = """
vit imagenet 896 1e-5
vit fmow 448 1e-5
transformer_xl imagenet 640 1e-4
transformer_xl fmow 320 1e-4
longformer imagenet 576 1e-5
longformer fmow 288 1e-5
mamba imagenet 640 1e-5
mamba fmow 320 1e-5
"""


@pytest.mark.parametrize("line", RELEASED.strip().splitlines())
@pytest.mark.parametrize("scan", ["row", "column", "hilbert", "spiral", "diagonal", "snake"])
def test_the_runs_of_the_release_have_its_numbers(line, scan):
    model, data, batch, rate = line.split()
    root = {"imagenet": 2.8284271, "fmow": 2.0}[data]
    for end in ("", "-reorder"):
        run, paper = (preset(f"{kind}/{model}-{data}-{scan}{end}") for kind in ("release", "paper"))
        assert run.train.batch_size == GPUS[data] * int(batch)
        assert run.train.learning_rate == pytest.approx(root * 1e-4)
        assert (run.train.precision, run.train.learning_rate_floor, run.train.clip) == ("float16", 0.01, 5.0)
        # REOrder's runs hold the peak rate until epoch 45, fixed ones until the warm-up ends at epoch 5
        assert run.train.warmup_epochs + run.train.hold_epochs == (45 if end else 5)
        own = f"release-{scan}" if scan in ("hilbert", "diagonal") else scan
        assert run.order.scan == own
        readout = {"readout": "last_patch"} if model == "mamba" else {}
        assert run.model.options == paper.model.options | readout
        assert (run.data, run.train.epochs) == (paper.data, paper.train.epochs)
        assert build(run, overrides=["train.seed=0"]) == run
        check_machine(
            build(run, overrides=["train.precision=float32"]), World(0, GPUS[data], torch.device("cpu"))
        )
    order = run.order
    assert (order.estimator, order.temperature, order.temperature_advances) == ("paper", 0.2, "epoch")
    assert order.learning_rate == pytest.approx(root * float(rate))
    assert (order.inverse_logits, order.baseline_start, order.warmup_order) == (True, "zero", "init")
    assert (order.warmup_fraction, order.policy_fraction, order.clip) == (0.15, 0.30, 5.0)


def test_the_release_s_temperature_ends_at_less_than_a_hundredth_of_the_paper_s():
    run = preset("release/transformer_xl-imagenet-row-reorder")
    steps = 1_281_167 // run.train.batch_size
    learner = learner_of(run, SimpleNamespace(grid=(14, 14)), torch.arange(196), steps)
    at = [learner.temperature(epoch * steps) for epoch in range(100)]
    # Its table has 7,500 values, half of them rising to 0.2, and one is used in each of epochs 15 to 44.
    table = [0.2 * value / 3749 for value in range(30)]
    assert at[15:45] == pytest.approx(table, rel=1e-3)
    assert max(at) == pytest.approx(0.00155, rel=0.01)
    assert at[:15] == [0] * 15
    assert at[45:] == [0] * 55
    assert learner.temperature(45 * steps - 1) == at[44]  # the same in all steps of an epoch


def test_a_misspelt_preset_is_told_the_nearest():
    with pytest.raises(ValueError, match="choose from paper/mamba-fmow-snake"):
        preset("paper/mamba-fmow-snale")


def test_the_batches_of_the_paper_can_be_divided_among_fewer_gpus():
    for data, totals in (("imagenet", (7168, 5120)), ("fmow", (1792, 1280))):
        for model, total in zip(("vit", "mamba"), totals, strict=True):
            run = preset(f"paper/{model}-{data}-row")
            for gpus in (1, 2, 4, 8):
                parts = max(1, GPUS[data] // gpus)
                each = build(run, overrides=[f"train.accumulate={parts}"])
                check_machine(each, World(0, gpus, torch.device("cpu")))
                assert each.train.batch_size == total
                assert total // gpus // parts <= total // GPUS[data]  # no more at a time than in the paper


def test_a_run_of_100_epochs_can_be_continued_to_300_as_the_paper_did():
    run = "paper/transformer_xl-imagenet-row-reorder"
    longer, fresh = continued(preset(run), ["train.epochs=300"]), preset(f"{run}-300-epochs")
    assert longer.train == fresh.train
    assert longer.order.warmup_fraction == pytest.approx(fresh.order.warmup_fraction)
    assert longer.order.policy_fraction == pytest.approx(fresh.order.policy_fraction)


def test_row_major_ends_without_the_gigapixel_presets_digit_and_backwards_it_ends_with_all_of_it():
    experiment = preset("gigapixel")
    rows, columns = (side // experiment.model.patch_size for side in experiment.model.image_shape)
    reach = size_of(experiment.model.size).depth * experiment.model.options["memory"]
    assert (rows * columns, reach) == (4096, 256)
    digit = {row * columns + column for row in (1, 2, 3) for column in (1, 2, 3)}
    found = candidates((rows, columns), 20)
    assert not digit & set(found["row"][-reach:].tolist())
    assert digit <= set(found["row-reversed"][-reach:].tolist())
