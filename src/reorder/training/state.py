"""A run while it is under way: all that it consists of, and what it counts."""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from reorder.config import Experiment
from reorder.data.loader import Loader
from reorder.data.ranks import World
from reorder.models.accuracy import Evaluation
from reorder.models.precision import autocast
from reorder.orders.estimators import mean_over_ranks
from reorder.orders.fixed import FixedOrder
from reorder.orders.learner import OrderLearner
from reorder.runs.directory import Moment


@dataclass
class SoFar:
    """Sums over the steps of an epoch, on one rank."""

    loss: float = 0.0
    right: float = 0
    seen: float = 0
    began: float = 0.0  # seconds of training before the epoch

    def add(self, losses: Tensor, right: int) -> None:
        self.loss += losses.sum().item()
        self.right += right
        self.seen += len(losses)


@dataclass
class Run:
    """Everything a run consists of while it is under way."""

    experiment: Experiment
    world: World
    loader: Loader
    model: nn.Module
    learner: OrderLearner | FixedOrder
    optimizer: torch.optim.Optimizer
    initial: Tensor  # the order (N,) the run started from
    prior: dict[str, Any] | None  # what chose it, if order.scan=prior
    scaler: torch.amp.GradScaler
    ema: AveragedModel | None = None
    step: int = 0
    seconds: float = 0.0  # spent on training steps
    earlier: float = 0.0  # seconds in all, before this process
    since: float = field(default_factory=time.perf_counter)
    skipped: int = 0
    skipped_in_a_row: int = 0
    validation: Evaluation | None = None  # at the end of the last epoch
    so_far: SoFar = field(default_factory=SoFar)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)  # the policy through the run

    @property
    def total_steps(self) -> int:
        return self.experiment.train.epochs * self.loader.steps_per_epoch

    @property
    def wall_seconds(self) -> float:
        """Since the run began, but for pauses and what was lost with them."""
        return self.earlier + time.perf_counter() - self.since

    def count(self, losses: Tensor, right: int) -> None:
        """A step was taken."""
        self.step += 1
        self.skipped_in_a_row = 0
        self.so_far.add(losses, right)

    def skip(self) -> None:
        """A step was not taken, for something in it was not finite."""
        self.step += 1
        self.skipped += 1
        self.skipped_in_a_row += 1

    def autocast(self) -> AbstractContextManager:
        return autocast(self.experiment.train.precision, self.world.device)


def unwrapped(model: Any) -> Any:
    """The classifier inside what makes it parallel or compiled."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    return getattr(model, "_orig_mod", model)


def derive_seed(*numbers: int) -> int:
    """A seed that is a function of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def over_all_ranks(run: Run) -> SoFar:
    """What all ranks together have summed up in this epoch."""
    own = run.so_far
    if run.world.size == 1:
        return own
    sums = torch.tensor([own.loss, own.right, own.seen], dtype=torch.float64, device=run.world.device)
    loss, right, seen = (mean_over_ranks(sums) * run.world.size).tolist()
    return SoFar(loss, right, seen, own.began)
