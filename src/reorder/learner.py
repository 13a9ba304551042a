"""Where policy, estimator and curriculum meet: what a training loop asks for the order of each batch."""

import numpy as np
import torch
from torch import Tensor, nn

from reorder import curriculum, distributed
from reorder.order import validate
from reorder.policy import PlackettLuce
from reorder.reward import Estimator
from reorder.scans import check_grid, scan

# B images, N patches


def as_order(init: str | Tensor, grid: tuple[int, int]) -> Tensor:
    """The order (N,) that is meant by the name of a scan, or the order itself, checked against the grid."""
    rows, columns = check_grid(grid)
    if isinstance(init, str):
        return scan(init, rows, columns)
    order = torch.as_tensor(init)
    if order.dim() != 1:
        raise ValueError(f"one order ({rows * columns},) is needed, got shape {tuple(order.shape)}")
    return validate(order, rows * columns)


def random_order(grid: tuple[int, int], seed: int) -> Tensor:
    """One uniformly random order (N,), a function of the seed."""
    rows, columns = check_grid(grid)
    return torch.randperm(rows * columns, generator=torch.Generator().manual_seed(seed))


def step_generator(seed: int, step: int) -> torch.Generator:
    """Noise for one step; on the CPU, so that every device gets the same.

    A spawn key, for a sequence [seed, step] would be padded with zeros to what seeds rank 0's dropout.
    """
    entropy = np.random.SeedSequence(seed, spawn_key=(step,)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(entropy >> np.uint64(1)))


class FixedOrder(nn.Module):
    """Reads every batch in one order; the same questions as `OrderLearner`, nothing to learn."""

    fixed: Tensor

    def __init__(self, grid: tuple[int, int], init: str | Tensor = "row"):
        super().__init__()
        self.register_buffer("fixed", as_order(init, grid))

    def stage(self, step: int) -> str:
        return "fixed"

    def temperature(self, step: int) -> float:
        return 0.0

    def sample(self, step: int) -> Tensor:
        return self.fixed

    def loss(self, losses: Tensor) -> Tensor:
        return losses.new_zeros(())

    def order(self, step: int | None = None) -> Tensor:
        return self.fixed


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

    def sample(self, step: int) -> Tensor:
        """The order (N,) in which to read this step's batch."""
        order = torch.randperm(len(self.fixed), generator=step_generator(self.seed, step))
        return order.to(self.fixed.device)


class OrderLearner(nn.Module):
    """Learns the order in which to read a grid of patches, next to the model that reads it, in any loop.

    A run of `total_steps` has three stages (the paper, section 5.3): warm-up, in row-major order; policy, in
    which orders are drawn from a Plackett-Luce policy and REINFORCE moves it; frozen, in the order found.

        learner = OrderLearner(grid=(14, 14), init="hilbert", total_steps=10_000)
        optimizer = AdamW([{"params": model.parameters()}, {"params": learner.parameters(), "lr": 1e-4}])
        for step, (images, labels) in enumerate(batches):
            losses = cross_entropy(model(images, learner.sample(step)), labels, reduction="none")
            loss = losses.mean() + learner.loss(losses)
            ...
        learner.order()  # what to use at test time

    The order of a step is a function of (seed, step, logits), so that a resumed run continues with it;
    `state_dict` holds the logits and the baseline. Where torch.distributed is set up, rewards are averaged
    over all processes, so that they stay alike without DistributedDataParallel around the learner: every
    process must call `loss` in every step. It is small and can stay on the CPU whatever the model is on. With
    `learn=False` orders are drawn alike but the policy never moves: what remains is the effect of the noise,
    to compare with.
    """

    first: Tensor

    def __init__(
        self,
        grid: tuple[int, int],
        init: str | Tensor = "hilbert",
        *,
        total_steps: int,
        warmup_fraction: float = 0.15,
        policy_fraction: float = 0.30,
        peak_temperature: float = 0.2,
        estimator: str | Estimator = "scaled",
        warmup_order: str = "row",
        baseline_start: str = "first",
        seed: int = 0,
        learn: bool = True,
    ):
        super().__init__()
        if total_steps < 1:
            raise ValueError(f"total_steps must be at least 1, got {total_steps}")
        if warmup_fraction < 0 or policy_fraction < 0 or warmup_fraction + policy_fraction > 1:
            raise ValueError(
                f"warm-up ({warmup_fraction}) and policy ({policy_fraction}) must be fractions of the run "
                "that add up to at most 1"
            )
        if not 0 <= peak_temperature < float("inf"):
            raise ValueError(f"peak_temperature must be finite and not negative, got {peak_temperature}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        if warmup_order not in ("row", "init"):
            raise ValueError(f"unknown warmup_order {warmup_order!r}; choose from row, init")
        if baseline_start not in ("first", "zero"):
            raise ValueError(f"unknown baseline_start {baseline_start!r}; choose from first, zero")
        start = as_order(init, grid)
        self.policy = PlackettLuce.from_order(start)
        if isinstance(estimator, str):
            # The paper does not say where its baseline starts; the authors' release starts it at zero.
            estimator = Estimator(estimator, start_at_zero=baseline_start == "zero")
        self.estimator = estimator
        self.register_buffer("first", as_order("row", grid) if warmup_order == "row" else start)
        self.start_step = round(warmup_fraction * total_steps)
        self.stop_step = round((warmup_fraction + policy_fraction) * total_steps)
        self.peak_temperature = peak_temperature
        self.seed = seed
        self.learn = learn
        self._drawn: tuple[Tensor, float] | None = None

    def stage(self, step: int) -> str:
        """warm-up, policy or frozen."""
        return curriculum.stage(step, self.start_step, self.stop_step)

    def temperature(self, step: int) -> float:
        """How much noise is added to the logits in a step; 0 outside the policy stage."""
        return curriculum.temperature(step, self.start_step, self.stop_step, self.peak_temperature)

    def sample(self, step: int) -> Tensor:
        """The order (N,) in which to read this step's batch."""
        heat = self.temperature(step)
        if self.stage(step) == curriculum.WARM_UP:
            orders = self.first[None]
        else:
            orders = self.policy.sample(1, heat, step_generator(self.seed, step))
        self._drawn = (orders, heat)
        if self.stage(step) != curriculum.POLICY:
            # Without a gradient an optimizer leaves the logits alone: no weight decay, no leftover momentum.
            self.policy.logits.grad = None
        return orders[0]

    def loss(self, losses: Tensor) -> Tensor:
        """The REINFORCE term for the batch last sampled for, from its losses (B,), or zero.

        Losses that are not finite teach nothing: with them the baseline would never be finite again.
        """
        if self._drawn is None:
            raise RuntimeError("call sample(step) before loss(losses)")
        orders, heat = self._drawn
        if heat == 0 or not self.learn:
            return losses.new_zeros(())
        rewards = distributed.mean(-losses.detach().mean()).reshape(1).to(self.policy.logits)
        if not rewards.isfinite():
            return losses.new_zeros(())
        return self.estimator.loss(self.policy, orders, rewards, heat)

    def order(self, step: int | None = None) -> Tensor:
        """The most likely order (N,): what to use at test time.

        For a model in the middle of training, give the step: during warm-up it reads the warm-up's order.
        """
        if step is not None and self.stage(step) == curriculum.WARM_UP:
            return self.first
        return self.policy.mode()


def policy_metrics(learner: OrderLearner | FixedOrder, step: int) -> dict[str, float | None]:
    """How a policy stands after a step; nothing for orders that are not learned.

    The baseline and the last advantage are None before the first reward. The entropy (in nats) is of the
    distribution of that step, estimated along one order drawn from it; 0 at temperature 0.
    """
    if not isinstance(learner, OrderLearner):
        return {}
    baseline, heat, entropy = learner.estimator.baseline, learner.temperature(step), 0.0
    if heat > 0:
        with torch.no_grad():
            order = learner.policy.sample(1, heat, step_generator(learner.seed, step))
            entropy = learner.policy.entropy(order, heat).item()
    return {
        "baseline": baseline.value.item() if baseline.started else None,
        "advantage": baseline.advantage.item() if baseline.started else None,
        "entropy": entropy,
    }
