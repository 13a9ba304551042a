"""Presets: functions that return a complete experiment; variants derive from one another.

`paper/...` are the runs of the paper: its main results (sections 4 and 5) and its ablations (appendix).
`release/...` are its main results by the authors' released code, where that differs (docs/paper.md).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from reorder.config import Data, Experiment, Model, Order, Train, reading_of
from reorder.orders.scans import SCANS

# A Transformer-XL as a reader of a stream: the class token comes last and is a slot like any other, and each
# block sees `memory` slots back, so that blocks times memory slots can reach the answer.
STREAM = {"readout": "last", "segment": 1, "memory_gradient": True, "dropout": 0.0}


def demo() -> Experiment:
    """A digit in clutter, read with a memory of 16 of 144 patches: the order decides which these are.

    reorder train demo    (4 minutes on 2 cores; row-major 10%, which is chance, the learned order 96%)
    """
    return Experiment(
        model=Model("transformer_xl", "mini", image_size=48, patch_size=4, options=STREAM | {"memory": 4}),
        data=Data(name="clutter", augment="none"),
        train=Train(
            epochs=4,
            batch_size=32,
            learning_rate=1e-3,
            warmup_epochs=0.3,
            compare=[*SCANS, "start", "noise", "paper"],
        ),
        order=Order(scan="random", policy="global"),
    )


def gigapixel() -> Experiment:
    """A digit among 4,096 patches, read by two blocks that remember 128 slots each.

    Row-major ends in the four bottom rows and cannot be better than chance. Backwards it ends at the digit:
    57% after two epochs. Search with epochs of more images than these, after one of which no order helps yet:

        reorder search gigapixel data.train_images=8000 --budget 7

    The same on images of 5888x5888 pixels, 135,424 patches, with a policy of blocks:

        reorder train gigapixel model.image_size=5888 model.patch_size=16 data.cell=16 train.batch_size=1 \\
            order.policy=blocks order.scan=random
    """
    base = demo()
    return replace(
        base,
        model=replace(base.model, size="64/2/4", image_size=256, options=STREAM | {"memory": 128}),
        data=replace(base.data, train_images=2000, validation_images=300),
        train=replace(base.train, epochs=3, batch_size=16, compare=False),
        order=Order(scan="row"),
    )


def digits() -> Experiment:
    """A mini Transformer-XL learns an order for scikit-learn's digits, next to two fixed orders."""
    return Experiment(
        model=Model(name="transformer_xl", size="mini", image_size=8, patch_size=2),
        data=Data(name="digits", augment="none"),  # a mirrored digit is another shape
        train=Train(epochs=40, batch_size=64, learning_rate=1e-3, compare=True),
        order=Order(scan="hilbert", policy="global"),
    )


def digits_vit() -> Experiment:
    """The same with a mini ViT, which is indifferent to the order."""
    base = digits()
    return replace(base, model=replace(base.model, name="vit"))


# GPUs times images on each. The appendix's table "Batch sizes for every model-dataset pairing" is per GPU: it
# halves with the GPUs' memory, 8 of 80 GB for ImageNet and 4 of 40 GB for Functional Map of the World.
BATCH_SIZES = {
    ("vit", "imagenet"): 8 * 896,
    ("vit", "fmow"): 4 * 448,
    ("transformer_xl", "imagenet"): 8 * 640,
    ("transformer_xl", "fmow"): 4 * 320,
    ("longformer", "imagenet"): 8 * 640,
    ("longformer", "fmow"): 4 * 320,
    ("mamba", "imagenet"): 8 * 640,
    ("mamba", "fmow"): 4 * 320,
}
# Section 4 states these two; everything else is the default of the backbone. Without a segment, of which the
# paper does not speak, the memory has no effect: all 196 patches are read at once.
OPTIONS = {"transformer_xl": {"memory": 128}, "longformer": {"window": 14}}


def paper(model: str, data: str, scan: str) -> Experiment:
    """A Base model that reads one scan for 100 epochs: the recipe of section 4.

    The batch is that of all the paper's GPUs: 5,120 images for ImageNet (ViT: 7,168) and 1,280 for Functional
    Map of the World (1,792). On fewer GPUs `train.accumulate` divides each GPU's share into parts, with the
    same steps; `train.accumulate=8` on one GPU has the paper's 640 images at a time:

        reorder train paper/mamba-imagenet-row data.root=DIR train.accumulate=8
        torchrun --nproc-per-node 2 -m reorder train paper/mamba-imagenet-row data.root=DIR train.accumulate=4
    """
    return Experiment(
        model=Model(
            name=model, size="base", image_size=224, patch_size=16, options=dict(OPTIONS.get(model, {}))
        ),
        data=Data(name=data, augment="flip"),
        train=Train(
            epochs=100,
            batch_size=BATCH_SIZES[model, data],
            learning_rate=1e-4,  # the authors' release multiplies it by the root of the number of GPUs
            weight_decay=0.03,
            warmup_epochs=5,
        ),
        order=Order(scan=scan, policy="none", estimator="paper"),
    )


def paper_reorder(model: str, data: str, scan: str) -> Experiment:
    """The same, but the scan is where a policy starts: Algorithm 1 and the curriculum of section 5.3.

    The policy's learning rate is 1e-4 in section 5.3 and 1e-5 in section 4; we follow the former.
    """
    base = paper(model, data, scan)
    order = replace(
        base.order,
        policy="global",
        temperature=0.2,
        learning_rate=1e-4,
        warmup_fraction=15 / 100,
        policy_fraction=30 / 100,
    )
    return replace(base, order=order)


# The authors' release: GPUs, images on each of them for Longformer, and its own forms of two scans.
RELEASE_GPUS = {"imagenet": 8, "fmow": 4}
RELEASE_LONGFORMER = {"imagenet": 576, "fmow": 288}
RELEASE_SCANS = {"diagonal": "release-diagonal", "hilbert": "release-hilbert"}


def release(model: str, data: str, scan: str) -> Experiment:
    """The same by the authors' released code, which differs from the paper in what is set here.

    Its learning rate is multiplied by the root of the number of GPUs, and the cosine ends at a hundredth of
    it. float16 needs a GPU; `train.precision=float32` runs anywhere.

        torchrun --nproc-per-node 8 -m reorder train release/mamba-imagenet-row data.root=DIR
    """
    base, gpus = paper(model, data, scan), RELEASE_GPUS[data]
    options = {**base.model.options, **({"readout": "last_patch"} if model == "mamba" else {})}
    train = replace(
        base.train,
        batch_size=gpus * RELEASE_LONGFORMER[data] if model == "longformer" else base.train.batch_size,
        learning_rate=math.sqrt(gpus) * 1e-4,
        learning_rate_floor=0.01,
        precision="float16",
    )
    order = replace(base.order, scan=RELEASE_SCANS.get(scan, scan))
    return replace(base, model=replace(base.model, options=options), train=train, order=order)


def release_reorder(model: str, data: str, scan: str) -> Experiment:
    """The same with a policy that starts at the scan's inverse, as the released code has it."""
    base = release(model, data, scan)
    rate = 1e-4 if model == "transformer_xl" else 1e-5
    order = replace(
        base.order,
        policy="global",
        temperature=0.2,
        temperature_advances="epoch",
        inverse_logits=True,
        learning_rate=math.sqrt(RELEASE_GPUS[data]) * rate,
        warmup_fraction=15 / 100,
        policy_fraction=30 / 100,
        warmup_order="init",
        baseline_start="zero",
        clip=5.0,
    )
    return replace(base, train=replace(base.train, hold_epochs=40), order=order)


def without_flips(base: Experiment) -> Experiment:
    """Resize and centre crop only."""
    return replace(base, data=replace(base.data, augment="none"))


def for_300_epochs(base: Experiment) -> Experiment:
    """Trained three times as long from the start; the policy learns in the same epochs, 15 to 45.

    Not the paper's way, which continued its runs of 100 epochs: this is one cosine of 300 epochs. For theirs,
    train 100 epochs and go on, which follows the longer cosine from epoch 100:

        reorder train paper/transformer_xl-imagenet-row data.root=DIR --out RUN
        reorder train --resume RUN train.epochs=300
    """
    stretch = 300 / base.train.epochs
    warmup, policy, *_ = base.order.curriculum
    order = replace(base.order, warmup_fraction=warmup / stretch, policy_fraction=policy / stretch)
    return replace(base, train=replace(base.train, epochs=300), order=order)


def with_order(base: Experiment, scan: str, policy: str = "none") -> Experiment:
    """Another order to read or to start from."""
    return replace(base, order=replace(base.order, scan=scan, policy=policy))


def _main_results() -> dict[str, Callable[[], Experiment]]:
    """Four models, two datasets, six scans, each fixed and as the start of a policy."""
    return _all_of("paper", paper, paper_reorder)


def _all_of(
    name: str, fixed: Callable[..., Experiment], learned: Callable[..., Experiment]
) -> dict[str, Callable[[], Experiment]]:
    return {
        f"{name}/{model}-{data}-{scan}{suffix}": partial(build, model, data, scan)
        for model, data in BATCH_SIZES
        for scan in SCANS
        for suffix, build in (("", fixed), ("-reorder", learned))
    }


def _ablations() -> dict[str, Callable[[], Experiment]]:
    """The appendix, all of it Transformer-XL on ImageNet."""
    main, run = _main_results(), "paper/transformer_xl-imagenet"
    row = main[f"{run}-row"]
    # The saved order is that of the best run with a policy; `order.scan=` takes another file.
    learned = f"runs/{run}-column-reorder/order.json"
    runs = {
        f"{name}-no-flips": _then(without_flips, base) for name, base in main.items() if name.startswith(run)
    }
    for name in (f"{run}-row", f"{run}-row-reorder"):
        runs[f"{name}-300-epochs"] = _then(for_300_epochs, main[name])
    runs[f"{run}-random"] = lambda: with_order(row(), "random")
    runs[f"{run}-random-every-batch"] = lambda: with_order(row(), "row", policy="random")
    runs[f"{run}-learned"] = lambda: with_order(row(), learned)
    return runs


def _then(
    change: Callable[[Experiment], Experiment], base: Callable[[], Experiment]
) -> Callable[[], Experiment]:
    return lambda: change(base())


PRESETS: dict[str, Callable[[], Experiment]] = {
    "demo": demo,
    "gigapixel": gigapixel,
    "digits": digits,
    "digits-vit": digits_vit,
    **_main_results(),
    **_ablations(),
    **_all_of("release", release, release_reorder),
}


def preset(name: str) -> Experiment:
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS) or ["digits", "digits-vit", "paper/..."]
        raise ValueError(
            f"unknown preset {name!r}; choose from {', '.join(near)} (`reorder train --list` shows all), "
            "or give a YAML file"
        )
    return PRESETS[name]()


def describe(experiment: Experiment) -> str:
    """What an experiment does, in one short line."""
    model, data, train, order = experiment.model, experiment.data, experiment.train, experiment.order
    # a saved order goes by the name of the run directory it is in
    start = Path(order.scan).parent.name if order.scan.endswith(".json") else order.scan
    flips = "" if data.augment == "flip" else ", no flips"
    precision = "" if train.precision == "float32" else f"{train.precision}, "
    return (
        f"{model.size} {model.name}, {data.name}{flips}, {train.epochs} epochs, batch {train.batch_size}, "
        f"{precision}order: {reading_of(order.policy, start)}"
    )
