"""Orders that nothing is learned about: one for all batches, or a random one for each."""

import numpy as np
import torch
from torch import Tensor, nn

from reorder.orders.image_policy import OwnOrders
from reorder.orders.named import named_order
from reorder.orders.straight_through import Sampled

# N patches


def step_generator(seed: int, step: int, *rank: int) -> torch.Generator:
    """Noise for one step, and for a rank if it has its own; on the CPU, so that every device gets the same.

    A spawn key, for a sequence [seed, step] would be padded with zeros to what seeds rank 0's dropout.
    """
    entropy = np.random.SeedSequence(seed, spawn_key=(step, *rank)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(entropy >> np.uint64(1)))


class FixedOrder(nn.Module):
    """Reads every batch in one order; the same questions as `OrderLearner`, nothing to learn."""

    fixed: Tensor

    def __init__(self, grid: tuple[int, int], init: str | Tensor = "row"):
        super().__init__()
        self.register_buffer("fixed", named_order(init, grid))

    def stage(self, step: int) -> str:
        return "fixed"

    def temperature(self, step: int) -> float:
        return 0.0

    def sample(self, step: int, images: int | None = None) -> Tensor | Sampled | OwnOrders:
        """The order (N,) in which to read every batch."""
        return self.fixed

    def repeat(self, step: int, *columns: Tensor) -> tuple[Tensor, ...]:
        return columns

    def loss(self, losses: Tensor) -> Tensor:
        return losses.new_zeros(())

    def order(self, step: int | None = None) -> Tensor:
        return self.fixed

    def reading(self, step: int | None = None) -> Tensor | OwnOrders:
        return self.fixed

    def metrics(self, step: int | None = None) -> dict[str, float | str | None]:
        return {}


class RandomOrder(FixedOrder):
    """Reads every batch in another random order, a function of (seed, step), and is tested in a fixed one.

    The paper's baseline without a policy; it does not say in which order that was tested. Ours is `init`,
    row-major unless told otherwise: a random one would make the accuracy a matter of chance.
    """

    def __init__(self, grid: tuple[int, int], init: str | Tensor = "row", seed: int = 0):
        super().__init__(grid, init)
        self.seed = seed

    def stage(self, step: int) -> str:
        return "random"

    def sample(self, step: int, images: int | None = None) -> Tensor:
        """The order (N,) in which to read this step's batch."""
        order = torch.randperm(len(self.fixed), generator=step_generator(self.seed, step))
        return order.to(self.fixed.device)
