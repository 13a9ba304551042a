"""What the callbacks of all loops do with an attached learner: its own optimizer, its state, its numbers.

The optimizer is the callback's, so that no scheduler, weight decay or clipping of the loop's touches it.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from reorder.models.attach import Handle
from reorder.orders import curriculum
from reorder.orders.learner import OrderLearner


class Learning:
    """Advances the learner of a handle next to a loop that knows nothing of it."""

    def __init__(self, handle: Handle):
        learner = handle.learner
        if not isinstance(learner, OrderLearner):
            raise ValueError("an order that is fixed needs no callback: only an OrderLearner does")
        if learner.estimator.orders_per_image > 1:
            raise ValueError(
                "estimator='paired' reads images several times over, which a callback cannot see to: "
                "choose another, or write the loop yourself"
            )
        self.handle, self.learner = handle, learner
        self.optimizer = torch.optim.Adam(learner.parameters(), lr=learner.learning_rate)

    def start(self, theirs: Iterable[nn.Parameter], total_steps: float) -> None:
        """Refuse a loop whose optimizer has the learner's parameters too, and warn of a run too short."""
        own = {id(parameter) for parameter in self.learner.parameters()}
        if any(id(parameter) in own for parameter in theirs):
            raise ValueError(
                "the callback has its own optimizer for the order: leave its parameters out of yours"
            )
        if total_steps < self.learner.stop_step:
            warnings.warn(
                f"the run ends after {total_steps} steps, before the order is found: make the learner with "
                f"total_steps={total_steps}, not {self.learner.total_steps}",
                stacklevel=3,
            )

    def step(self, scaler: Any = None) -> None:
        """Move the policy by the gradients that have come together, which a GradScaler may have scaled."""
        gradients = [parameter.grad for parameter in self.learner.parameters() if parameter.grad is not None]
        for gradient in gradients:
            if scaler is not None:
                gradient /= scaler.get_scale()
        if gradients and all(bool(gradient.isfinite().all()) for gradient in gradients):
            self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self, step: int) -> dict[str, Any]:
        """All that a run needs to go on after so many steps."""
        return {
            "step": step,
            "learner": self.learner.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.learner.load_state_dict(state["learner"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.handle.step(state["step"])

    def numbers(self) -> dict[str, float]:
        """The learner's metrics as numbers to log; the stage is 0, 1 or 2."""
        metrics = self.learner.metrics()
        metrics["stage"] = curriculum.STAGES.index(str(metrics["stage"]))
        return {f"order/{key}": float(value) for key, value in metrics.items() if value is not None}


def with_reward(handle: Handle, losses: Tensor) -> Tensor:
    """The mean of losses (B,), and in training what a learner by reward adds to it."""
    if not torch.is_grad_enabled():
        return losses.mean()
    return losses.mean() + handle.loss(losses)
