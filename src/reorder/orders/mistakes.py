"""What a training loop may do wrong with a learner without any error, said once in a line each."""

import warnings

import torch
from torch import Tensor

# N patches

REPEATS = 100  # samples for one step, beyond what gradients are accumulated over
PATIENCE = 50  # steps of the policy stage in which logits may stay where they are


class Watch:
    """Sees the steps that a learner samples for, and its logits, and warns of what nobody means."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.samples = 0  # for that step
        self.unmoved = 0  # steps of the policy stage
        self.before: Tensor | None = None  # the logits (N,) as that stage found them; None once they moved
        self.started = False
        self.said: set[str] = set()

    def sampled(self, step: int) -> None:
        """Warn of steps that go back, as when they are counted from 0 in every epoch, or that stand still."""
        if self.step is not None and step < self.step:
            self._say(
                "back",
                f"the step went back from {self.step} to {step}: count the steps of all epochs, "
                "or make a new learner for a new run",
            )
        self.samples = self.samples + 1 if step == self.step else 1
        self.step = step
        if self.samples == REPEATS:
            self._say(
                "still",
                f"step {step} was sampled for {REPEATS} times: sample(step) needs the number of the step, "
                "by which the curriculum goes on",
            )

    def learns(self, logits: Tensor, steps: int) -> None:
        """Warn of logits (N,) that do not move, at a step of a policy stage of so many steps."""
        if not self.started:
            self.started, self.before = True, logits.detach().clone()
            return
        if self.before is None or self.samples > 1:
            return
        if not torch.equal(self.before, logits.detach()):
            self.before = None
            return
        self.unmoved += 1
        if self.unmoved != min(PATIENCE, max(10, steps - 1)):
            return
        if logits.grad is None:
            self._say(
                "gradient",
                f"no gradient has reached the order learner in {self.unmoved} steps: have the model read "
                "with reorder.read(tokens, order), and add learner.loss(losses) to the loss",
            )
        else:
            self._say(
                "optimizer",
                f"the order learner got gradients for {self.unmoved} steps and did not move: "
                "its parameters are in no optimizer",
            )

    def _say(self, mistake: str, text: str) -> None:
        if mistake not in self.said:
            self.said.add(mistake)
            warnings.warn(text, stacklevel=4)
