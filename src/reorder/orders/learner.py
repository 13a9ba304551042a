"""Where policy, estimator and curriculum meet: what a training loop asks for the order of each batch."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from reorder.config import ESTIMATORS, curriculum_of
from reorder.orders import curriculum
from reorder.orders.distances import kendall_tau
from reorder.orders.estimators import (
    SCORES,
    Paired,
    Reinforce,
    StraightThrough,
    averaged_over_ranks,
)
from reorder.orders.mistakes import Watch
from reorder.orders.named import named_order
from reorder.orders.order import invert
from reorder.orders.policy import PlackettLuce
from reorder.orders.scans import check_grid
from reorder.orders.signal import Signal
from reorder.orders.straight_through import Sampled

# B images, N patches, K orders

WARMUP_ORDERS = ("row", "init", "random")
SPREAD = 1.0  # temperatures: how far apart the logits of a start are, for noise that mixes near patches
REACH = 5.0  # temperatures that a logit may move by while the policy learns
PAPERS_REACH = 0.75  # of the range from first to last patch: 1e-4 in 30 epochs of 250 steps of 5,120 images
WIDEST, NARROWEST = 1.8, 0.18  # temperatures: the width of straight-through reading at the start and the end


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
        self.register_buffer("fixed", named_order(init, grid))

    def stage(self, step: int) -> str:
        return "fixed"

    def temperature(self, step: int) -> float:
        return 0.0

    def sample(self, step: int, images: int | None = None) -> Tensor | Sampled:
        """The order (N,) in which to read every batch."""
        return self.fixed

    def repeat(self, step: int, *columns: Tensor) -> tuple[Tensor, ...]:
        return columns

    def loss(self, losses: Tensor) -> Tensor:
        return losses.new_zeros(())

    def order(self, step: int | None = None) -> Tensor:
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


class OrderLearner(nn.Module):
    """Learns the order in which to read a grid of patches, next to the model that reads it, in any loop.

    A run of `total_steps` has three stages (the paper, section 5.3): warm-up; policy, in which orders are
    drawn from a Plackett-Luce policy that learns which are good; frozen, in the order found.

        learner = OrderLearner(grid=(14, 14), total_steps=10_000)
        groups = [
            {"params": model.parameters()},
            {"params": learner.parameters(), "lr": learner.learning_rate, "weight_decay": 0.0},
        ]
        optimizer = AdamW(groups, lr=1e-3)
        for step, (images, labels) in enumerate(batches):
            order = learner.sample(step)  # the model reads its tokens by reorder.read(tokens, order)
            losses = cross_entropy(model(images, order), labels, reduction="none")
            loss = losses.mean() + learner.loss(losses)
            ...
        learner.order()  # what to use at test time

    It starts at `init`, by default a random order, which a model with a short memory reads better than any
    scan. The estimator decides what moves the policy (orders/estimators.py): by default the gradient through
    what is read; with `estimator="paper"` it is the paper's REINFORCE. Fractions and warm-up are the
    estimator's unless they are given.

    The orders of a step are a function of (seed, step, logits), so that a resumed run continues with them;
    `state_dict` holds the logits and the baseline. Where torch.distributed is set up, rewards or gradients
    are averaged over all processes, so that they stay alike without DistributedDataParallel around the
    learner: every process must call `loss` in every step. It is small and can stay on the CPU whatever the
    model is on. With `learn=False` orders are drawn alike but the policy never moves: what remains is the
    effect of the noise, to compare with.
    """

    first: Tensor
    start: Tensor
    estimator: Reinforce | Paired | StraightThrough

    def __init__(
        self,
        grid: tuple[int, int],
        init: str | Path | Tensor = "random",
        *,
        total_steps: int,
        warmup_fraction: float | None = None,
        policy_fraction: float | None = None,
        peak_temperature: float = 0.2,
        estimator: str = "straight-through",
        orders_per_image: int = 4,
        warmup_order: str | None = None,
        baseline_start: str = "first",
        seed: int = 0,
        learn: bool = True,
    ):
        super().__init__()
        if estimator not in ESTIMATORS:
            raise ValueError(f"unknown estimator {estimator!r}; choose from {', '.join(ESTIMATORS)}")
        usual = curriculum_of(estimator)
        warmup = usual.warmup_fraction if warmup_fraction is None else warmup_fraction
        policy = usual.policy_fraction if policy_fraction is None else policy_fraction
        self.warmup_order = usual.warmup_order if warmup_order is None else warmup_order
        _check(total_steps, warmup, policy, peak_temperature, seed)
        if self.warmup_order not in WARMUP_ORDERS:
            choices = ", ".join(WARMUP_ORDERS)
            raise ValueError(f"unknown warmup_order {self.warmup_order!r}; choose from {choices}")
        self.grid = check_grid(grid)
        self.total_steps = total_steps
        start = named_order(init, grid, seed)
        self.policy = PlackettLuce.from_order(start)
        if estimator in SCORES:
            if baseline_start not in ("first", "zero"):
                raise ValueError(f"unknown baseline_start {baseline_start!r}; choose from first, zero")
            # The paper does not say where its baseline starts; the authors' release starts it at zero.
            self.estimator = Reinforce(estimator, start_at_zero=baseline_start == "zero")
        else:
            self.estimator = Paired(orders_per_image) if estimator == "paired" else StraightThrough()
            self.policy = PlackettLuce(scattered(start, SPREAD * peak_temperature))
        self.register_buffer("first", named_order("row", grid) if self.warmup_order == "row" else start)
        self.register_buffer("start", start, persistent=False)
        self.start_step, self.stop_step = curriculum.stage_steps(total_steps, warmup, policy)
        self.peak_temperature = peak_temperature
        self.seed = seed
        self.learn = learn
        self._step = 0
        self._drawn: tuple[Tensor, float] | None = None
        self._signal, self._watch = Signal(), Watch()
        self.register_load_state_dict_post_hook(_continues_anywhere)

    @property
    def reinforces(self) -> bool:
        """Whether it learns as in the paper, from rewards, at a temperature that rises and falls."""
        return isinstance(self.estimator, Reinforce)

    @property
    def learning_rate(self) -> float:
        """What to give Adam for the logits, which moves one by about its rate in a step.

        It bounds how far a logit can move in the policy stage, whatever the scale of the losses and the
        length of the run: by REACH temperatures, or, for REINFORCE, as far as by the paper's 1e-4 in its
        7,500 steps.
        """
        reach = PAPERS_REACH if self.reinforces else REACH * self.peak_temperature
        return reach / max(1, self.stop_step - self.start_step)

    def stage(self, step: int) -> str:
        """warm-up, policy or frozen."""
        return curriculum.stage(step, self.start_step, self.stop_step)

    def temperature(self, step: int) -> float:
        """How much noise is added to the logits in a step; 0 outside the policy stage, or after it."""
        if self.reinforces:
            return curriculum.temperature(step, self.start_step, self.stop_step, self.peak_temperature)
        if self.stage(step) == curriculum.WARM_UP and self.warmup_order != "random":
            return 0.0
        return curriculum.falling(step, self.start_step, self.stop_step, self.peak_temperature)

    def width(self, step: int) -> float:
        """Of straight-through reading: how far apart scores may be for their patches to be compared."""
        done = curriculum.progress(step, self.start_step, self.stop_step)
        return self.peak_temperature * WIDEST * (NARROWEST / WIDEST) ** done

    def sample(self, step: int, images: int | None = None) -> Tensor | Sampled:
        """The order (N,) in which to read this step's batch.

        A straight-through learner's is read by `reorder.read`, which passes the gradient. While the policy
        learns, `paired` draws the orders (K, N) that it compares, or, for so many images as `repeat` gives,
        one for each (B, N).
        """
        self._step, temperature, stage = step, self.temperature(step), self.stage(step)
        learns = stage == curriculum.POLICY and temperature > 0
        self._watch.sampled(step)
        scores = averaged_over_ranks(self.policy.logits)[None]
        if stage == curriculum.WARM_UP and self.warmup_order != "random":
            orders = self.first[None]
        else:
            if temperature > 0:
                count = self.estimator.orders_per_image if learns and self.learn else 1
                noise = self.policy.gumbel(count, step_generator(self.seed, step))
                scores = scores + temperature * noise
            orders = scores.detach().argsort(dim=-1, descending=True, stable=True)
        if images is not None and len(orders) > 1:
            orders = orders.repeat_interleave(images // len(orders), 0)
        self._drawn = (orders, temperature if learns else 0.0)
        if stage != curriculum.POLICY:
            # Without a gradient an optimizer leaves the logits alone: no weight decay, no leftover momentum.
            self.policy.logits.grad = None
        elif self._learns():
            self._watch.learns(self.policy.logits, self.stop_step - self.start_step)
            self._signal.watch(self.policy.logits)
        if isinstance(self.estimator, StraightThrough) and self._learns():
            return Sampled(orders[0], scores[0], self.width(step))
        return orders[0] if len(orders) == 1 else orders

    def _learns(self) -> bool:
        """Whether the orders last drawn teach the policy anything."""
        return self._drawn is not None and self._drawn[1] > 0 and self.learn

    def repeat(self, step: int, *columns: Tensor) -> tuple[Tensor, ...]:
        """Columns of a batch, such as images and labels, as they are to be read in this step.

        `paired` reads a part of the images several times over while the policy learns, as many rows in all;
        every other estimator reads each image once.
        """
        count = self.estimator.orders_per_image
        if count == 1 or not self.learn or self.stage(step) != curriculum.POLICY:
            return columns
        if len(columns[0]) % count:
            raise ValueError(f"a batch of {len(columns[0])} images cannot be read in {count} orders each")
        return tuple(torch.cat([column[: len(column) // count]] * count) for column in columns)

    def loss(self, losses: Tensor) -> Tensor:
        """What to add to the model's loss for the batch last sampled for, from its losses (B,); maybe zero.

        For `paired`, whose images are read in several orders, the losses are in the sequence of `repeat`, or
        (K, B) for orders (K, N) that were read by all images.
        """
        if self._drawn is None:
            raise RuntimeError("call sample(step) before loss(losses)")
        if not self._learns():
            return losses.new_zeros(())
        orders, temperature = self._drawn
        return self.estimator.loss(self.policy, orders, losses.detach(), temperature)

    def order(self, step: int | None = None) -> Tensor:
        """The most likely order (N,): what to use at test time.

        For a model in the middle of training, give the step: during warm-up it reads the warm-up's order.
        """
        if step is not None and self.stage(step) == curriculum.WARM_UP:
            return self.first
        return self.policy.mode()

    def metrics(self, step: int | None = None) -> dict[str, float | str | None]:
        """How the policy stands after a step, by default the last that was sampled for.

        The entropy (in nats) is of the distribution of that step, estimated along one order drawn from it; 0
        at temperature 0. Slots moved is how far a patch is from where it started, on average. Baseline and
        advantage are REINFORCE's, None before the first reward; of other estimators it is how far the
        gradient of the logits stands out of its noise (orders/signal.py), None before two gradients.
        """
        step = self._step if step is None else step
        temperature, entropy = self.temperature(step), 0.0
        if temperature > 0:
            with torch.no_grad():
                order = self.policy.sample(1, temperature, step_generator(self.seed, step))
                entropy = self.policy.entropy(order, temperature).item()
        order = self.order()
        found: dict[str, float | str | None] = {
            "stage": self.stage(step),
            "temperature": temperature,
            "kendall_tau_from_start": kendall_tau(order, self.start),
            "slots_moved": (invert(order) - invert(self.start)).abs().float().mean().item(),
            "entropy": entropy,
        }
        if isinstance(self.estimator, Reinforce):
            baseline = self.estimator.baseline
            found["baseline"] = baseline.value.item() if baseline.started else None
            found["advantage"] = baseline.advantage.item() if baseline.started else None
        else:
            found["gradient_signal_to_noise"] = self._signal.to_noise()
        return found


def _continues_anywhere(learner: nn.Module, _: object) -> None:
    """A learner whose state was loaded may go on from an earlier step."""
    assert isinstance(learner, OrderLearner)
    learner._watch = Watch()


def scattered(order: Tensor, spread: float) -> Tensor:
    """Logits (N,) whose order this is, as far apart as sorted Gumbel noise times a spread would be."""
    rank = torch.arange(len(order), dtype=torch.float64)
    falling = -(-((rank + 0.5) / len(order)).log()).log().flip(0)
    logits = torch.empty(len(order), device=order.device)
    logits[order] = (max(spread, 1e-3) * falling).to(logits)
    return logits


def _check(total_steps: int, warmup: float, policy: float, peak_temperature: float, seed: int) -> None:
    """Refuse settings that no run can have."""
    if total_steps < 1:
        raise ValueError(f"total_steps must be at least 1, got {total_steps}")
    if warmup < 0 or policy < 0 or warmup + policy > 1:
        raise ValueError(
            f"warm-up ({warmup}) and policy ({policy}) must be fractions of the run that add up to at most 1"
        )
    if not 0 <= peak_temperature < float("inf"):
        raise ValueError(f"peak_temperature must be finite and not negative, got {peak_temperature}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
