"""How much of a gradient is signal: whether what moves a policy points the same way from step to step."""

from torch import Tensor
from torch.utils.hooks import RemovableHandle

# N patches


class Signal:
    """A running mean of gradients (N,), and of how much they vary about it."""

    def __init__(self, momentum: float = 0.99):
        self.momentum = momentum
        self.mean: Tensor | float = 0.0  # weighted sums: divided by the weight when asked
        self.square = self.weight = self.squared_weights = 0.0
        self.count = 0
        self._hook: RemovableHandle | None = None

    def watch(self, parameter: Tensor) -> None:
        """See every gradient that a parameter gets from now on."""
        if self._hook is not None:
            self._hook.remove()
        self._hook = parameter.register_hook(self.add)

    def add(self, gradient: Tensor) -> None:
        """Take in one gradient; one that is not finite says nothing."""
        gradient = gradient.detach().double().cpu()
        if not gradient.isfinite().all():
            return
        old, new = self.momentum, 1 - self.momentum
        self.mean = old * self.mean + new * gradient
        self.square = old * self.square + new * gradient.square().sum().item()
        self.weight = old * self.weight + new
        self.squared_weights = old**2 * self.squared_weights + new**2
        self.count += 1

    def to_noise(self) -> float | None:
        """The length of the mean gradient by that of the noise in one; 0 where noise explains the mean.

        The mean of n gradients keeps 1/n of the noise's power, which is taken off. None before two gradients,
        or if all were the same.
        """
        if self.count < 2:
            return None
        share = self.squared_weights / self.weight**2  # 1/n, for weights that fall
        mean_power = (self.mean / self.weight).square().sum().item()  # type: ignore[union-attr]
        noise = (self.square / self.weight - mean_power) / (1 - share)
        if noise <= 0:
            return None
        return (max(0.0, mean_power - share * noise) / noise) ** 0.5
