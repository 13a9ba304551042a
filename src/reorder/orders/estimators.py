"""What REINFORCE needs: the reward of an order, the baseline it is compared with, and the policy's loss."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from reorder.orders.policy import PlackettLuce

# K orders tried in one step, N patches


def mean_over_ranks(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes of torch.distributed, the same bits on each."""
    if not dist.is_initialized():
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


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


class Estimator(nn.Module):
    """REINFORCE: turns the rewards of sampled orders into a loss whose gradient moves the policy."""

    def __init__(self, name: str = "scaled", momentum: float = 0.99, start_at_zero: bool = False):
        super().__init__()
        if name not in SCORES:
            raise ValueError(f"unknown estimator {name!r}; choose from {', '.join(SCORES)}")
        self.score = SCORES[name]
        self.baseline = RunningBaseline(momentum, start_at_zero)

    def loss(self, policy: PlackettLuce, orders: Tensor, rewards: Tensor, temperature: float) -> Tensor:
        """Minus advantage times score, averaged over orders (K, N) of rewards (K,) (Algorithm 1, line 9)."""
        advantages = self.baseline.advantages(rewards.detach())
        return -(advantages * self.score(policy, orders, temperature)).mean()
