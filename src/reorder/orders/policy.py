"""The Plackett-Luce policy: a distribution over orders with one logit per patch (the paper, section 5.2)."""

import torch
from torch import Tensor, nn

from reorder.orders.order import validate

# N patches, K orders


class PlackettLuce(nn.Module):
    """Draws the patch for each slot from a softmax over the logits of the patches not yet read.

    >>> policy = reorder.PlackettLuce.from_order(torch.tensor([2, 0, 1]))
    >>> policy.mode()
    tensor([2, 0, 1])
    >>> orders = policy.sample(4, temperature=0.2, generator=torch.Generator().manual_seed(0))  # (4, 3)
    >>> policy.log_prob(orders).shape
    torch.Size([4])
    """

    def __init__(self, logits: Tensor):
        super().__init__()
        if logits.dim() != 1 or len(logits) == 0:
            raise ValueError(f"logits must be of shape (N,), got {tuple(logits.shape)}")
        self.logits = nn.Parameter(logits.clone())

    @classmethod
    def from_order(cls, order: Tensor) -> "PlackettLuce":
        """The policy whose mode is `order` (N,): a ramp from 0 to -1, scattered to the patches."""
        if order.dim() != 1 or len(order) == 0:
            raise ValueError(f"one order (N,) is needed, got shape {tuple(order.shape)}")
        validate(order, len(order))
        return cls(ramp(order))

    def order_of(self, scores: Tensor) -> Tensor:
        """The orders (..., N) that sort scores, which are logits with or without noise."""
        return scores.detach().argsort(dim=-1, descending=True, stable=True)

    def mode(self) -> Tensor:
        """The most likely order (N,)."""
        return self.order_of(self.logits)

    def by_patch(self) -> Tensor:
        """The logits (N,), the patch read first having the highest."""
        return self.logits.detach().clone()

    def sample(
        self, count: int = 1, temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> Tensor:
        """Orders (K, N) with the probabilities of logits / temperature, by sorting Gumbel-perturbed logits.

        The noise is drawn where the generator lives, so that one seed gives one order on every device.
        """
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"temperature must be finite and not negative, got {temperature}")
        if temperature == 0:
            return self.mode().expand(count, -1)
        return self.order_of(self.logits.detach() + temperature * self.gumbel(count, generator))

    def gumbel(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise (K, N) for the logits: minus the logarithm of an exponential variable."""
        device = generator.device if generator is not None else self.logits.device
        waiting = torch.empty(count, len(self.logits), device=device)
        return -waiting.exponential_(generator=generator).log().to(self.logits)

    def log_prob(self, orders: Tensor, temperature: float = 1.0, logits: Tensor | None = None) -> Tensor:
        """log P(order | logits / temperature) of orders (K, N) or (N,), as (K,) or a scalar.

        The logits are the policy's own, unless others are given.
        """
        return log_prob(self.logits if logits is None else logits, orders, temperature)

    def entropy(self, orders: Tensor, temperature: float = 1.0) -> Tensor:
        """Sum over slots of the exact entropy of the next patch given the ones before it, as (K,).

        Averaged over sampled orders it is an unbiased estimate of the policy's entropy, by the chain rule,
        with less variance than the average of -log_prob.
        """
        return entropy(self.logits, orders, temperature)


def ramp(order: Tensor) -> Tensor:
    """Logits (N,) from 0 to -1, evenly, whose order this is."""
    logits = torch.empty(order.shape, device=order.device)
    logits[order] = torch.linspace(0, -1, len(order), device=order.device)
    return logits


def entropy(logits: Tensor, orders: Tensor, temperature: float = 1.0) -> Tensor:
    """The entropies (K,) of the choices that led to orders (K, N), added up over slots."""
    chosen, remaining = _in_slots(logits, orders, temperature)
    # A softmax over z has entropy log sum(exp z) - E[z]. The gap below a bound is averaged instead of z
    # itself, so that every summand is positive and can be added up as a logarithm.
    bound = chosen.detach().max(-1, keepdim=True).values + 1
    mean_gap = (_log_sum_of_rest(chosen + (bound - chosen).log()) - remaining).exp()
    return (remaining - bound + mean_gap).sum(-1).to(logits.dtype)


def log_prob(logits: Tensor, orders: Tensor, temperature: float = 1.0) -> Tensor:
    """log P(order | logits / temperature) of orders (K, N) or (N,), as (K,) or a scalar.

    The logits are (N,), or (K, N) with their own for each order.
    """
    chosen, remaining = _in_slots(logits, orders, temperature)
    return (chosen - remaining).sum(-1).to(logits.dtype)


def _in_slots(logits: Tensor, orders: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Scaled logits in slot order and the log-sum-exp of those not yet read, both (K, N).

    In float64: over 135,424 patches single precision would add up to errors of whole units.
    """
    if not temperature > 0:
        raise ValueError(f"orders have a probability at temperatures above 0, got {temperature}")
    check_orders(orders, logits.shape[-1])
    if logits.dim() == 2 and orders.shape != logits.shape:
        raise ValueError(f"orders must be of shape {tuple(logits.shape)}, got {tuple(orders.shape)}")
    scaled = logits.double() / temperature
    chosen = scaled.gather(1, orders) if logits.dim() == 2 else scaled[orders]
    return chosen, _log_sum_of_rest(chosen)


def check_orders(orders: Tensor, patches: int) -> None:
    """Refuse orders of another number of patches."""
    if orders.shape[-1:] != (patches,):
        raise ValueError(f"orders must be of shape (K, {patches}) or ({patches},), got {tuple(orders.shape)}")


def _log_sum_of_rest(values: Tensor) -> Tensor:
    """log(sum_{k >= i} exp(values_k)) for every i of the last dimension."""
    return values.flip(-1).logcumsumexp(-1).flip(-1)
