"""From an experiment to a run that can begin: data, model, learner, optimizer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from reorder.config import LEARNED, Experiment, Order
from reorder.data.datasets import Dataset, load_dataset
from reorder.data.loader import Loader
from reorder.data.ranks import ALONE, World
from reorder.models.classifier import Classifier, model_of
from reorder.orders.fixed import FixedOrder, RandomOrder
from reorder.orders.image_policy import ImagePolicy
from reorder.orders.learner import OrderLearner
from reorder.orders.named import starting_order
from reorder.training.checkpoint import remember_policy
from reorder.training.state import Run


def setup(
    experiment: Experiment,
    world: World | None = None,
    prior: dict[str, Any] | None = None,
    data: Dataset | None = None,
) -> Run:
    """Data, model, learner and optimizer of an experiment; a function of its seed and the prior, if any.

    `data` are the experiment's, if they are loaded already.
    """
    world = world or ALONE
    settings, order = experiment.train, experiment.order
    check_machine(experiment, world)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    data = data or load_dataset(experiment.data, experiment.model.image_shape)
    model = model_of(experiment.model, data.channels, len(data.classes)).to(world.device)
    loader = Loader(data, experiment.data, settings.batch_size, settings.seed, world.rank, world.size)
    initial = starting_order(prior["chosen"]["scan"] if prior else order.scan, model.grid, settings.seed)
    # The learner is small and stays on the CPU: its float64 sums are not for every accelerator.
    learner = learner_of(experiment, model, initial, loader.steps_per_epoch)
    if isinstance(learner, OrderLearner):
        initial = learner.start  # that of the release's logits, or the nearest that blocks can have
        if isinstance(learner.policy, ImagePolicy):
            learner.policy.to(world.device)  # but for one that looks at every image
    groups = [
        *weight_groups(model, settings.decay_all),
        {"params": [*learner.parameters()], "lr": policy_rate(order, learner)},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, 0.999), weight_decay=settings.weight_decay, fused=True
    )
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema)) if settings.ema else None
    scaler = torch.amp.GradScaler(world.device.type, enabled=settings.precision == "float16")
    parallel = parallelise(model, settings.compile, world)
    run = Run(experiment, world, loader, parallel, learner, optimizer, initial, prior, scaler, ema)
    remember_policy(run)
    return run


def policy_rate(order: Order, learner: OrderLearner | FixedOrder) -> float:
    """The learning rate of the policy: as configured, or else the estimator's."""
    if order.learning_rate is not None or isinstance(learner, FixedOrder):
        return order.learning_rate or 0.0
    return learner.learning_rate


def check_machine(experiment: Experiment, world: World) -> None:
    """Refuse what this machine, or this number of processes, cannot do."""
    settings = experiment.train
    if settings.precision == "float16" and world.device.type == "cpu":
        raise ValueError("train.precision=float16 needs a GPU; choose float32 or bfloat16")
    if settings.batch_size % (world.size * settings.accumulate):
        raise ValueError(
            f"train.batch_size={settings.batch_size} is not divisible by {world.size} processes "
            f"x train.accumulate={settings.accumulate}"
        )
    order, share = experiment.order, settings.batch_size // (world.size * settings.accumulate)
    if order.policy in LEARNED and order.estimator == "paired" and share % order.orders_per_image:
        raise ValueError(
            f"order.orders_per_image={order.orders_per_image} does not divide the {share} images that are "
            "read at once (train.batch_size by processes and train.accumulate)"
        )
    if world.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def weight_groups(model: nn.Module, decay_all: bool) -> list[dict[str, Any]]:
    """The model's weights in two groups: those that decay, and, unless all do, those that are spared."""
    spared = [
        parameter
        for name, parameter in model.named_parameters()
        if not decay_all and (parameter.dim() < 2 or name.endswith(("pos_embed", "cls_token", "distances")))
    ]
    kept = {id(parameter) for parameter in spared}
    return [
        {"params": [parameter for parameter in model.parameters() if id(parameter) not in kept]},
        {"params": spared, "weight_decay": 0.0},
    ]


def parallelise(model: nn.Module, compiled: bool, world: World) -> nn.Module:
    """The model, compiled if asked for, and with gradients averaged over ranks if there are several."""
    ready: nn.Module = torch.compile(model) if compiled else model  # type: ignore[assignment]
    if world.size == 1:
        return ready
    devices = [world.device.index] if world.device.type == "cuda" else None
    return DistributedDataParallel(ready, device_ids=devices)


def learner_of(
    experiment: Experiment, model: Classifier, initial: Tensor, steps_per_epoch: int
) -> OrderLearner | FixedOrder:
    """What asks for the order of each batch in a run whose epochs have so many steps."""
    settings, grid = experiment.order, model.grid
    if settings.policy == "none":
        return FixedOrder(grid, initial)
    if settings.policy == "random":
        return RandomOrder(grid, initial, experiment.train.seed)
    return OrderLearner(
        grid,
        initial,
        total_steps=experiment.train.epochs * steps_per_epoch,
        warmup_fraction=settings.warmup_fraction,
        policy_fraction=settings.policy_fraction,
        peak_temperature=settings.temperature,
        estimator=settings.estimator,
        orders_per_image=settings.orders_per_image,
        warmup_order=settings.warmup_order,
        baseline_start=settings.baseline_start,
        inverse_logits=settings.inverse_logits,
        temperature_every=steps_per_epoch if settings.temperature_advances == "epoch" else 1,
        block=settings.block if settings.policy == "blocks" else None,
        seed=experiment.train.seed,
        learn=settings.policy != "noise",
        image_width=model.head.in_features if settings.policy == "image" else None,
    )
