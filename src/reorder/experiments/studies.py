"""Named studies: functions that return all runs of a comparison, built from the presets.

`paper/...` are the paper's own, and `paper/noise` the control that it lacks; `release/...` are the first two
by the recipe of the authors' released code. Each of the paper's has a `laptop/...` twin:
the same runs with mini models on Fashion-MNIST, where a grid of 7x7 patches stands for ImageNet and one of
14x14 for Functional Map of the World.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from reorder.config import Data, Experiment, Model, Train
from reorder.experiments.presets import (
    BATCH_SIZES,
    STREAM,
    demo,
    for_300_epochs,
    paper,
    paper_reorder,
    release,
    release_reorder,
    with_order,
    without_flips,
)
from reorder.orders.scans import SCANS


class Planned(NamedTuple):
    """A run of a study; with `learned_from`, it reads the order that this other run ends with."""

    experiment: Experiment
    learned_from: Experiment | None = None

    def changed(self, change: Callable[[Experiment], Experiment]) -> "Planned":
        """Both runs with the same change."""
        return Planned(change(self.experiment), self.learned_from and change(self.learned_from))


def paper_orders() -> list[Planned]:
    """Four models read six scans of two datasets (section 4)."""
    return [Planned(paper(model, data, scan)) for model, data in BATCH_SIZES for scan in SCANS]


def paper_reorders() -> list[Planned]:
    """The same with REOrder: a policy that starts from the scan (section 5)."""
    return [Planned(paper_reorder(model, data, scan)) for model, data in BATCH_SIZES for scan in SCANS]


def release_orders() -> list[Planned]:
    """The runs of paper/orders by the recipe of the authors' released code."""
    return [Planned(release(model, data, scan)) for model, data in BATCH_SIZES for scan in SCANS]


def release_reorders() -> list[Planned]:
    """The runs of paper/reorder by the recipe of the authors' released code."""
    return [Planned(release_reorder(model, data, scan)) for model, data in BATCH_SIZES for scan in SCANS]


def paper_noise() -> list[Planned]:
    """REOrder's control: each of its runs explores as much and learns nothing."""
    return [without_learning(plan) for plan in paper_reorders()]


def without_learning(plan: Planned) -> Planned:
    """A run that learns made into its control."""
    return Planned(with_order(plan.experiment, plan.experiment.order.scan, policy="noise"))


def paper_random() -> list[Planned]:
    """Row-major, REOrder from it, one random order, one for every batch, a learned order from the start."""
    row = paper("transformer_xl", "imagenet", "row")
    return [
        Planned(row),
        Planned(paper_reorder("transformer_xl", "imagenet", "row")),
        Planned(with_order(row, "random")),
        Planned(with_order(row, "row", policy="random")),
        # The paper takes its best learned order, which is the one that started from column-major.
        Planned(row, learned_from=paper_reorder("transformer_xl", "imagenet", "column")),
    ]


def paper_no_flips() -> list[Planned]:
    """Transformer-XL without augmentation: six scans, each fixed and with REOrder."""
    return [
        Planned(without_flips(build("transformer_xl", "imagenet", scan)))
        for scan in SCANS
        for build in (paper, paper_reorder)
    ]


def paper_300_epochs() -> list[Planned]:
    """Transformer-XL row by row, fixed and with REOrder, for 100 epochs and for 300."""
    runs = [build("transformer_xl", "imagenet", "row") for build in (paper, paper_reorder)]
    return [Planned(run) for run in runs] + [Planned(for_300_epochs(run)) for run in runs]


class Scale(NamedTuple):
    """What makes a run of the paper small."""

    data: Data
    images: int  # to train on
    image_size: int
    side: int  # of the grid, in patches
    epochs: int  # for the paper's 100
    batch_size: int
    seeds: tuple[int, ...]


# The budget of the laptop studies; a 14x14 grid, three to four times as slow as one of 7x7, has one seed.
IMAGES, VALIDATION_IMAGES, EPOCHS, BATCH_SIZE = 4_000, 4_000, 3, 16
LEARNING_RATE = {"vit": 1e-3, "transformer_xl": 1e-3, "longformer": 1e-3, "mamba": 3e-3}
SEEDS = (0, 1, 2)
FASHION_DATA = Data(name="idx", train_images=IMAGES, validation_images=VALIDATION_IMAGES)
FASHION = {
    paper_data: Scale(FASHION_DATA, IMAGES, 28, side, EPOCHS, BATCH_SIZE, seeds)
    for paper_data, side, seeds in (("imagenet", 7, SEEDS), ("fmow", 14, SEEDS[:1]))
}
DIGITS = {"imagenet": Scale(Data(name="digits"), 1437, 8, 4, epochs=6, batch_size=64, seeds=SEEDS[:1])}

# The paper's four models; besides, a Transformer-XL whose segment and memory are well below the patches, and
# plain Mamba, whose class token has to come last to see anything. They do without dropout, which is up to a
# quarter of the time of a mini model and of no use in so few epochs. Longformer's window is scaled with the
# patches: the paper's is 14 of 196, and on 7x7 patches 14 would see a third of the image. Options by the side
# of the grid.
SHORT_MEMORY = {
    4: {"segment": 2, "memory": 4, "dropout": 0.0},
    7: {"segment": 4, "memory": 8, "dropout": 0.0},
    14: {"segment": 8, "memory": 16, "dropout": 0.0},
}
WINDOW = {side: {"window": window, "dropout": 0.0} for side, window in {4: 2, 7: 4, 14: 14}.items()}
VARIANTS: list[tuple[str, dict[int, dict[str, Any]]]] = [
    ("vit", {}),
    ("transformer_xl", {side: {"dropout": 0.0} for side in WINDOW}),
    ("transformer_xl", SHORT_MEMORY),
    ("longformer", WINDOW),
    ("mamba", {}),
    ("mamba", {side: {"scans": 1, "readout": "last"} for side in WINDOW}),
]
# Adam moves a logit by about its rate a step: in all policy steps of a small run, at most by half the range
# that the logits start with. Where rewards are mostly noise, and a small run's are, further is a random walk.
# The paper's reach is alike: about 7,500 steps of 1e-4 on ImageNet (30 epochs of 250) are 0.75 of the range.
REACH = 0.5


def small(run: Experiment, scale: Scale, options: dict[str, Any], seed: int) -> Experiment:
    """A run of the paper with a mini model, on small images, in minutes."""
    epochs = scale.epochs * run.train.epochs // 100
    policy_steps = run.order.curriculum.policy_fraction * epochs * (scale.images // scale.batch_size)
    return Experiment(
        model=Model(
            run.model.name, "mini", scale.image_size, scale.image_size // scale.side, options=dict(options)
        ),
        data=replace(scale.data, augment=run.data.augment),
        train=Train(
            epochs=epochs,
            batch_size=scale.batch_size,
            learning_rate=LEARNING_RATE[run.model.name],
            weight_decay=run.train.weight_decay,
            warmup_epochs=0.05 * scale.epochs,  # 5 of the paper's 100
            seed=seed,
        ),
        order=replace(run.order, estimator="scaled", learning_rate=REACH / policy_steps),
    )


def twin(study: list[Planned], scales: dict[str, Scale]) -> list[Planned]:
    """A study's runs made small, with the further models.

    Grid by grid and scan by scan, all seeds of each, so that a sweep that ends early has whole comparisons.
    """
    scans = {scan: number for number, scan in enumerate(SCANS)}
    plans = []
    for paper_data, scale in scales.items():
        here = [plan for plan in study if plan.experiment.data.name == paper_data]
        for plan in sorted(here, key=lambda plan: scans.get(plan.experiment.order.scan, 0)):
            plans += _small_runs(plan, scale)
    return plans


def _small_runs(plan: Planned, scale: Scale) -> list[Planned]:
    """A run of the paper with every small model of its kind and every seed."""
    return [
        plan.changed(partial(small, scale=scale, options=by_side.get(scale.side, {}), seed=seed))
        for seed in scale.seeds
        for model, by_side in VARIANTS
        if model == plan.experiment.model.name
    ]


def with_control(study: list[Planned]) -> list[Planned]:
    """A study with, after every run that learns, its control."""
    plans = []
    for plan in study:
        plans.append(plan)
        if plan.experiment.order.policy == "global":
            plans.append(without_learning(plan))
    return plans


def laptop_orders() -> list[Planned]:
    """Six mini models read six scans of Fashion-MNIST in 7x7 and 14x14 patches."""
    return twin(paper_orders(), FASHION)


def laptop_reorders() -> list[Planned]:
    """The same with REOrder."""
    return twin(paper_reorders(), FASHION)


def laptop_noise() -> list[Planned]:
    """The equal-noise control, against which any claim that learning helps is to be made."""
    return twin(paper_noise(), FASHION)


def laptop_random() -> list[Planned]:
    """The twin of paper/random, with two Transformer-XLs and the equal-noise control."""
    return twin(with_control(paper_random()), FASHION)


def laptop_no_flips() -> list[Planned]:
    """The twin of paper/no-flips, with two Transformer-XLs and the equal-noise control."""
    return twin(with_control(paper_no_flips()), FASHION)


def laptop_300_epochs() -> list[Planned]:
    """The twin of paper/300-epochs, with two Transformer-XLs and the equal-noise control."""
    return twin(with_control(paper_300_epochs()), FASHION)


# Mamba's class token first is what it does by default.
READOUTS: list[dict[str, Any]] = [
    *({}, {"readout": "middle"}, {"readout": "last"}, {"readout": "mean"}),
    *({"scans": 1, "readout": readout} for readout in ("first", "middle", "last", "mean")),
]


def laptop_readout() -> list[Planned]:
    """Mamba with four scans and one, its class token first, middle or last, or the mean of all patches."""
    return [
        Planned(small(paper("mamba", "imagenet", scan), FASHION["imagenet"], options, seed))
        for seed in SEEDS
        for scan in SCANS
        for options in READOUTS
    ]


# Slots that each of two blocks remembers, by the side of the grid: about a seventh, a third and two thirds of
# the patches can reach the answer, or all.
MEMORIES: dict[int, tuple[int | None, ...]] = {7: (3, 7, 15, None), 14: (14, 30, 60, None)}


PLAIN_MAMBA = {"scans": 1, "readout": "last", "drop_path": 0.0, "pixel_norm": False}


def stream(side: int, memory: int | None, seed: int = 0) -> Experiment:
    """Fashion-MNIST read as a stream of patches by a Transformer-XL whose blocks remember so many slots.

    Without the LayerNorm of pixels, which erases how bright a patch is: it costs every order, and random ones
    the most (docs/learners.md).
    """
    base = demo()
    options = STREAM | {"pixel_norm": False} | ({"segment": None} if memory is None else {"memory": memory})
    return replace(
        base,
        model=replace(base.model, size="48/2/4", image_size=28, patch_size=28 // side, options=options),
        data=Data(name="idx", augment="none", train_images=10_000, validation_images=4_000),
        train=replace(base.train, epochs=4, learning_rate=2e-3, seed=seed, compare=False),
    )


def plain_mamba(side: int, seed: int = 0) -> Experiment:
    """The same stream read by one scan of Mamba, whose memory fades."""
    base = stream(side, None, seed)
    model = replace(base.model, name="mamba", options=PLAIN_MAMBA)
    return replace(base, model=model)


def orders_and_learners(base: Experiment) -> list[Planned]:
    """A run in each scan and a random order, with equal noise, and learned, in the run and from its start."""
    learner = with_order(base, "random", "global")
    return [
        *(Planned(with_order(base, scan)) for scan in (*SCANS, "random")),
        Planned(with_order(base, "random", "noise")),
        Planned(learner),
        Planned(with_order(base, "row"), learned_from=learner),
    ]


def laptop_memory() -> list[Planned]:
    """How much memory does a good order save? Scans, random and learned orders, by how much is seen."""
    return [
        plan
        for side, memories in MEMORIES.items()
        for seed in SEEDS
        for base in (*(stream(side, memory, seed) for memory in memories), plain_mamba(side, seed))
        for plan in orders_and_learners(base)
    ]


def laptop_quick() -> list[Planned]:
    """A bit of all on the digits, with one seed: orders, REOrder, its noise, random and learned orders."""
    orders = [plan for plan in paper_orders() if plan.experiment.data.name == "imagenet"]
    return [
        plan.changed(without_flips)  # a mirrored digit is another shape
        for plan in twin(orders + with_control(paper_random()), DIGITS)
    ]


STUDIES: dict[str, Callable[[], list[Planned]]] = {
    "laptop/quick": laptop_quick,
    "laptop/orders": laptop_orders,
    "laptop/reorder": laptop_reorders,
    "laptop/noise": laptop_noise,
    "laptop/random": laptop_random,
    "laptop/no-flips": laptop_no_flips,
    "laptop/300-epochs": laptop_300_epochs,
    "laptop/readout": laptop_readout,
    "laptop/memory": laptop_memory,
    "paper/orders": paper_orders,
    "paper/reorder": paper_reorders,
    "paper/noise": paper_noise,
    "paper/random": paper_random,
    "paper/no-flips": paper_no_flips,
    "paper/300-epochs": paper_300_epochs,
    "release/orders": release_orders,
    "release/reorder": release_reorders,
}
