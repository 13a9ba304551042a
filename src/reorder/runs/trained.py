"""A run's model at its last checkpoint: its weights, its order, and validation images to try it on."""

import dataclasses
import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reorder.config import Experiment
from reorder.data.datasets import load_dataset, load_validation
from reorder.data.loader import Loader
from reorder.data.ranks import ALONE, World
from reorder.models.accuracy import Evaluation, evaluate_loader
from reorder.models.classifier import Classifier, model_of
from reorder.models.grid import grid_of
from reorder.models.precision import autocast
from reorder.orders.blocks import Blocks
from reorder.orders.curriculum import stage_steps
from reorder.orders.image_policy import ImagePolicy, OwnOrders, reach_of
from reorder.orders.policy import PlackettLuce
from reorder.runs.directory import Checkpoint, RunDir, fitting

# N patches

logger = logging.getLogger(__name__)


class Trained(NamedTuple):
    experiment: Experiment  # of the run, with other data if they were asked for
    world: World
    loader: Loader
    model: Classifier
    order: Tensor  # (N,): in which it was read at that step
    own: OwnOrders | None  # in which it was read, if every image had its own
    step: int

    @property
    def reading(self) -> Tensor | OwnOrders:
        """What it was read in at that step."""
        return self.order if self.own is None else self.own

    def evaluate(self, order: Tensor | OwnOrders) -> Evaluation:
        """Correctness of the validation images read in an order (N,), or in their own, on all ranks."""
        settings, device = self.experiment.train, self.world.device
        with autocast(settings.precision, device):
            return evaluate_loader(self.model, self.loader, order, device, settings.accumulate)


def load_trained(directory: RunDir, data: Any = None, world: World | None = None) -> Trained:
    """A run's model at its last checkpoint, with its own data or other ones, prepared as for training."""
    own, world = directory.experiment(), world or ALONE
    experiment = own if data is None else dataclasses.replace(own, data=data)
    tensors, state = last_checkpoint(directory)
    if own.order.scan == "prior":
        directory.prior()  # a run whose choice is damaged is refused, although its order is known
    settings, known = experiment.train, directory.data()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    dataset = load_validation(experiment.data, experiment.model.image_shape, known and known.classes)
    check_data(directory, own, tensors, experiment.data.name, dataset.channels, len(dataset.classes))
    model = model_of(experiment.model, dataset.channels, len(dataset.classes))
    loader = Loader(dataset, experiment.data, settings.batch_size, settings.seed, world.rank, world.size)
    with fitting(directory):
        model.load_state_dict(weights_of(tensors))
        order = order_at(tensors, state, own)
        policy = image_policy_at(tensors, state, own, model.grid)
    model.to(world.device)
    orders = None if policy is None else OwnOrders(policy.to(world.device))
    return Trained(experiment, world, loader, model, order, orders, state["step"])


def last_checkpoint(directory: RunDir) -> Checkpoint:
    """The newest sound checkpoint of a run; damaged ones are said to be passed over."""
    checkpoint, damaged = directory.load_checkpoint()
    for name in damaged:
        logger.warning("%s/checkpoints/%s is damaged; using the one before", directory.path, name)
    if checkpoint is None:
        raise ValueError(
            f"{directory.path} has no checkpoint yet; train it with: reorder train --resume {directory.path}"
        )
    return checkpoint


def weights_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights to use of a checkpoint's tensors: the averaged ones, if there are any."""
    prefix = "ema.module." if any(name.startswith("ema.module.") for name in tensors) else "model."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_data(
    directory: RunDir, own: Experiment, tensors: dict[str, Tensor], name: str, channels: int, classes: int
) -> None:
    """Refuse data of other classes or channels than the model was trained for."""
    with fitting(directory):
        trained_classes = len(tensors["model.head.bias"])
        pixels = tensors["model.tokens.patch_embed.proj.weight"].shape[1]
    trained_channels = pixels // own.model.patch_size**2
    if (classes, channels) != (trained_classes, trained_channels):
        raise ValueError(
            f"data.name={name} has {classes} classes and {channels} channels; the model of {directory.path} "
            f"knows {trained_classes} and {trained_channels}"
        )


def order_at(tensors: dict[str, Tensor], state: dict[str, Any], own: Experiment) -> Tensor:
    """The order (N,) that was read at a checkpoint's step: by its own stages, not by those of other data."""
    if "learner.fixed" in tensors:
        return tensors["learner.fixed"]
    if warms_up(state, own):
        return tensors["learner.first"]
    logits, order = tensors["learner.policy.logits"], own.order
    if order.policy != "blocks":
        return PlackettLuce(logits).mode()
    return Blocks(grid_of(own.model.image_shape, own.model.patch_size), order.block, logits).mode()


def image_policy_at(
    tensors: dict[str, Tensor], state: dict[str, Any], own: Experiment, grid: tuple[int, int]
) -> ImagePolicy | None:
    """The policy by which every image was read in its own order at a checkpoint's step, if it was."""
    if own.order.policy != "image" or warms_up(state, own):
        return None
    prefix = "learner.policy."
    found = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    policy = ImagePolicy(
        found["logits"], grid, len(found["network.norm.bias"]), reach_of(own.order.temperature)
    )
    policy.load_state_dict(found)
    return policy.requires_grad_(False)


def warms_up(state: dict[str, Any], own: Experiment) -> bool:
    """Whether a checkpoint's step is of the warm-up."""
    start = state.get("start_step")
    if start is None:  # an older checkpoint does not say
        warmup, policy, *_ = own.order.curriculum
        start, _ = stage_steps(own.train.epochs * epoch_steps(state, own), warmup, policy)
    return state["step"] - 1 < start


def epoch_steps(state: dict[str, Any], own: Experiment) -> int:
    """How many steps an epoch of a run has, by its lines of metrics or else by its own data."""
    if state["metrics"]:
        last = state["metrics"][-1]
        return last["step"] // last["epoch"]
    dataset = load_dataset(own.data, own.model.image_shape)
    return Loader(dataset, own.data, own.train.batch_size, own.train.seed).steps_per_epoch
