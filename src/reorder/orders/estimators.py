"""How a policy learns which orders are good: from rewards by REINFORCE, from pairs, or straight through.

`paper`             Algorithm 1: the reward of a batch's order against a running mean, scored by P(order | z)
`exact`, `scaled`   the same with the score of the distribution that orders are drawn from, or T times that
`paired`            several orders read the same images; each is compared with the others
`straight-through`  no reward: the policy gets a gradient through what was read (orders/straight_through.py)
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from reorder.orders.policy import PlackettLuce, log_prob

# K orders tried in one step, B images, N patches


def mean_over_ranks(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes of torch.distributed, the same bits on each."""
    if not dist.is_initialized():
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


class _AveragedOverRanks(torch.autograd.Function):
    """The identity, whose gradient is averaged over all processes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return mean_over_ranks(grad)


def averaged_over_ranks(value: Tensor) -> Tensor:
    """A tensor whose gradient is the mean of those that all processes have."""
    return _AveragedOverRanks.apply(value)


class RunningBaseline(nn.Module):
    """A running mean of rewards: b <- momentum * b + (1 - momentum) * r."""

    value: Tensor
    started: Tensor
    advantage: Tensor  # the mean of the last ones

    def __init__(self, momentum: float = 0.99, start_at_zero: bool = False):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(()))
        self.register_buffer("started", torch.tensor(start_at_zero))
        self.register_buffer("advantage", torch.zeros(()))

    def advantages(self, rewards: Tensor) -> Tensor:
        """Rewards (K,) less the baseline, which takes them in first (Algorithm 1, lines 7 and 8)."""
        mean = rewards.mean().to(self.value)
        before = self.value if self.started else mean  # the first reward starts the baseline
        self.value.copy_(self.momentum * before + (1 - self.momentum) * mean)
        self.started.fill_(True)
        self.advantage.copy_(mean - self.value)
        return rewards - self.value.to(rewards)


def paper_score(policy: PlackettLuce, orders: Tensor, temperature: float) -> Tensor:
    """log P(order | z), as in Algorithm 1, although the orders were drawn with logits z / temperature."""
    return policy.log_prob(orders)


def exact_score(policy: PlackettLuce, orders: Tensor, temperature: float) -> Tensor:
    """log P(order | z / temperature): the score of the distribution the orders were drawn from."""
    return policy.log_prob(orders, temperature)


def scaled_score(policy: PlackettLuce, orders: Tensor, temperature: float) -> Tensor:
    """The exact score times the temperature, so that its gradient does not grow as 1 / temperature.

    Unscaled, the ends of the policy stage, where least is explored, move the logits most: Adam measures all
    later gradients by the first ones, which are the largest.
    """
    return temperature * exact_score(policy, orders, temperature)


SCORES: dict[str, Callable[[PlackettLuce, Tensor, float], Tensor]] = {
    "paper": paper_score,
    "exact": exact_score,
    "scaled": scaled_score,
}


class Reinforce(nn.Module):
    """REINFORCE: turns the rewards of sampled orders into a loss whose gradient moves the policy."""

    orders_per_image = 1

    def __init__(self, name: str = "scaled", momentum: float = 0.99, start_at_zero: bool = False):
        super().__init__()
        if name not in SCORES:
            raise ValueError(f"unknown score {name!r}; choose from {', '.join(SCORES)}")
        self.score = SCORES[name]
        self.baseline = RunningBaseline(momentum, start_at_zero)

    def loss(self, policy: PlackettLuce, orders: Tensor, losses: Tensor, temperature: float) -> Tensor:
        """Minus advantage times score of the order (1, N) that images with losses (B,) were read in.

        The reward is that of the images of all ranks (Algorithm 1, lines 6 to 9). Losses that are not finite
        teach nothing: with them the baseline would never be finite again.
        """
        rewards = mean_over_ranks(-losses.mean()).reshape(1).to(policy.logits)
        if not rewards.isfinite():
            return losses.new_zeros(())
        advantages = self.baseline.advantages(rewards)
        return -(advantages * self.score(policy, orders, temperature)).mean()


class Paired(nn.Module):
    """REINFORCE in which several orders read the same images, and each is compared with the others.

    How hard an image is, which makes most of a loss's variance, drops out of the difference.
    """

    def __init__(self, orders_per_image: int = 4):
        super().__init__()
        if orders_per_image < 2:
            raise ValueError(f"orders are compared with each other: at least 2, got {orders_per_image}")
        self.orders_per_image = orders_per_image

    def loss(self, policy: PlackettLuce, orders: Tensor, losses: Tensor, temperature: float) -> Tensor:
        """Minus advantages times scores of orders (K * B, N) by their losses (K * B,): B images K times over.

        Orders (K, N) may also have losses (K, B), of images that were all read in each of them. Each rank has
        its own orders and images; the gradients are averaged.
        """
        logits = averaged_over_ranks(policy.logits)
        return self._compared(policy.log_prob(orders, temperature, logits), losses, temperature)

    def loss_of(self, logits: Tensor, orders: Tensor, losses: Tensor, temperature: float) -> Tensor:
        """The same for logits (N,), or (K * B, N) with those of every image, whose gradient is shared."""
        return self._compared(log_prob(logits, orders, temperature), losses, temperature)

    def _compared(self, scores: Tensor, losses: Tensor, temperature: float) -> Tensor:
        """An order's advantage is its reward less the mean of the others' on the same image: unbiased."""
        if not mean_over_ranks(losses.mean()).isfinite():
            return losses.new_zeros(())
        count = self.orders_per_image
        by_order = losses.to(scores).view(count, -1)
        advantages = (by_order.mean(0) - by_order) * count / (count - 1)
        advantages = advantages.view(len(scores), -1).mean(1)
        return -(advantages * temperature * scores).mean()


class StraightThrough(nn.Module):
    """The policy learns from the gradient of what is read; there is no term of the loss."""

    orders_per_image = 1

    def loss(self, policy: PlackettLuce, orders: Tensor, losses: Tensor, temperature: float) -> Tensor:
        return losses.new_zeros(())


def estimator_of(
    name: str, orders_per_image: int, baseline_start: str
) -> Reinforce | Paired | StraightThrough:
    """An estimator by its name; the baseline is REINFORCE's, and the orders per image those of pairs."""
    if name == "paired":
        return Paired(orders_per_image)
    if name not in SCORES:
        return StraightThrough()
    if baseline_start not in ("first", "zero"):
        raise ValueError(f"unknown baseline_start {baseline_start!r}; choose from first, zero")
    # The paper does not say where its baseline starts; the authors' release starts it at zero.
    return Reinforce(name, start_at_zero=baseline_start == "zero")
