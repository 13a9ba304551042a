"""Where policy, estimator and curriculum meet: what a training loop asks for the order of each batch."""

from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from reorder.config import ESTIMATORS, curriculum_of
from reorder.orders import curriculum
from reorder.orders.blocks import Blocks, layout_of, nearest_parts
from reorder.orders.distances import kendall_tau
from reorder.orders.estimators import (
    Paired,
    Reinforce,
    StraightThrough,
    averaged_over_ranks,
    estimator_of,
)
from reorder.orders.fixed import step_generator
from reorder.orders.image_policy import REACH, ImagePolicy, Learning, OwnOrders, reach_of
from reorder.orders.mistakes import Watch
from reorder.orders.named import named_order
from reorder.orders.order import invert
from reorder.orders.policy import PlackettLuce, ramp
from reorder.orders.scans import check_grid
from reorder.orders.signal import Signal
from reorder.orders.straight_through import Sampled

# B images, N patches, K orders

WARMUP_ORDERS = ("row", "init", "random")
SPREAD = 0.5  # temperatures: how far apart the logits of a start are, for noise that mixes near patches
PAPERS_REACH = 0.75  # of the range from first to last patch: 1e-4 in 30 epochs of 250 steps of 5,120 images
WIDEST, NARROWEST = 1.8, 0.18  # temperatures: the width of straight-through reading at the start and the end


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
    estimator's unless they are given. With `block` the policy is factored (orders/blocks.py): blocks of so
    many patches a side in one order, their patches in another, for grids of thousands of patches.

    The orders of a step are a function of (seed, step, logits), so that a resumed run continues with them;
    `state_dict` holds the logits and the baseline. Where torch.distributed is set up, rewards or gradients
    are averaged over all processes, so that they stay alike without DistributedDataParallel around the
    learner: every process must call `loss` in every step. It is small and can stay on the CPU whatever the
    model is on. With `image_width`, the width of the model's patch embeddings, every image is read in an
    order of its own, by a light network (orders/image_policy.py), which is best where the model is.
    `inverse_logits` and `temperature_every`, the steps of an epoch, are the authors' release (docs/paper.md).
    With `learn=False` orders are drawn alike but the policy never moves: what remains is the effect of the
    noise, to compare with.
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
        inverse_logits: bool = False,
        temperature_every: int = 1,
        block: int | None = None,
        seed: int = 0,
        learn: bool = True,
        image_width: int | None = None,
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
        if temperature_every != 1 and (temperature_every < 1 or estimator != "paper"):
            said = f"{temperature_every} for {estimator}"
            raise ValueError(f"temperature_every must be 1, or more for the estimator paper, got {said}")
        self.temperature_every = temperature_every
        scan = named_order(init, grid, seed)
        start = invert(scan) if inverse_logits else scan
        self.peak_temperature, self.block = peak_temperature, block
        self.estimator = estimator_of(estimator, orders_per_image, baseline_start)
        if image_width is not None and (self.reinforces or block is not None):
            raise ValueError(
                "images can have their own orders with the estimators straight-through and paired, and "
                f"without blocks; got {estimator!r} and block={block}"
            )
        self.policy = self._policy_from(start, image_width, seed)
        if block is not None:
            start = self.policy.mode()  # the nearest that blocks can have
        self.register_buffer("first", named_order("row", grid) if self.warmup_order == "row" else scan)
        self.register_buffer("start", start, persistent=False)
        self.start_step, self.stop_step = curriculum.stage_steps(total_steps, warmup, policy)
        self.seed = seed
        self.learn = learn
        self._step = 0
        self._drawn: tuple[Tensor, float] | None = None
        self._seen: list[tuple[Tensor, Tensor]] = []  # orders and logits of images that have their own
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
            stage = self.start_step, self.stop_step
            return curriculum.temperature(step, *stage, self.peak_temperature, self.temperature_every)
        if self.stage(step) == curriculum.WARM_UP and self.warmup_order != "random":
            return 0.0
        return curriculum.falling(step, self.start_step, self.stop_step, self.peak_temperature)

    def width(self, step: int) -> float:
        """Of straight-through reading: how far apart scores may be for their patches to be compared."""
        done = curriculum.progress(step, self.start_step, self.stop_step)
        return self.peak_temperature * WIDEST * (NARROWEST / WIDEST) ** done

    def sample(self, step: int, images: int | None = None) -> Tensor | Sampled | OwnOrders:
        """The order (N,) in which to read this step's batch.

        A straight-through learner's is read by `reorder.read`, which passes the gradient; so are the orders
        that images have of their own. While the policy learns, `paired` draws the orders (K, N) that it
        compares, or, for so many images as `repeat` gives, one for each (B, N).
        """
        self._step, temperature, stage = step, self.temperature(step), self.stage(step)
        learns = stage == curriculum.POLICY and temperature > 0
        self._watch.sampled(step)
        if isinstance(self.policy, ImagePolicy) and stage != curriculum.WARM_UP:
            return self._own_orders(self.policy, step, images, temperature if learns else 0.0)
        scores = averaged_over_ranks(self.policy.logits)[None]
        if stage == curriculum.WARM_UP and self.warmup_order != "random":
            orders = self.first[None]
        else:
            if temperature > 0:
                count = self.estimator.orders_per_image if learns and self.learn else 1
                noise = self.policy.gumbel(count, step_generator(self.seed, step))
                scores = scores + temperature * noise
            orders = self.policy.order_of(scores)
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
            layout = self.policy.layout if isinstance(self.policy, Blocks) else None
            return Sampled(orders[0], scores[0], self.width(step), layout)
        return orders[0] if len(orders) == 1 else orders

    def _policy_from(self, order: Tensor, image_width: int | None, seed: int) -> PlackettLuce:
        """The policy that starts from an order (N,): one for all images, of blocks, or with a network."""
        logits = self._logits_from(order)
        if self.block is not None:
            return Blocks(self.grid, self.block, logits)
        if image_width is None:
            return PlackettLuce(logits)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # the same network in every process
            return ImagePolicy(logits, self.grid, image_width, reach_of(self.peak_temperature))

    def _logits_from(self, order: Tensor) -> Tensor:
        """The logits with which the policy starts from an order: the paper's, or ours; (N,), or of blocks."""
        start = ramp if self.reinforces else partial(scattered, spread=SPREAD * self.peak_temperature)
        if self.block is None:
            return start(order)
        return torch.cat([start(part) for part in nearest_parts(order, layout_of(self.grid, self.block))])

    def _own_orders(
        self, policy: ImagePolicy, step: int, images: int | None, temperature: float
    ) -> OwnOrders:
        """An order for each image; noise (B, N) is a function of (seed, step, rank)."""
        self._drawn, self._seen = (policy.mode()[None], temperature), []
        if temperature == 0:
            for parameter in policy.parameters():
                parameter.grad = None
            return OwnOrders(policy)
        rank = dist.get_rank() if dist.is_initialized() else 0

        def noise(count: int) -> Tensor:
            return policy.gumbel(count, step_generator(self.seed, step, rank))

        orders = OwnOrders(policy, noise if images is None else noise(images), temperature)
        if self.learn:
            self._watch.learns(policy.logits, self.stop_step - self.start_step)
            self._signal.watch(policy.logits)
            done = curriculum.progress(step, self.start_step, self.stop_step)
            # The gradient grows as the width falls; unchecked, the last and least explored steps decide.
            kept = (1 - done) * self.width(step) / self.width(self.start_step)
            straight = isinstance(self.estimator, StraightThrough)
            width = self.width(step) if straight else None
            orders.learning = Learning(averaged_over_ranks, kept if straight else 1.0, width, self._seen)
        return orders

    def _learns(self) -> bool:
        """Whether the orders last drawn teach the policy anything.

        At temperature 0 they do in the first epoch of a policy whose temperature moves on by the epoch, as
        in the authors' release, which does not ask for noise.
        """
        if self._drawn is None or not self.learn:
            return False
        by_epoch = self.temperature_every > 1 and self.stage(self._step) == curriculum.POLICY
        return self._drawn[1] > 0 or by_epoch

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
        if isinstance(self.policy, ImagePolicy) and isinstance(self.estimator, Paired):
            own, logits = (torch.cat(columns) for columns in zip(*self._seen, strict=True))
            return self.estimator.loss_of(logits, own, losses.detach().to(logits.device), temperature)
        return self.estimator.loss(self.policy, orders, losses.detach(), temperature)

    def order(self, step: int | None = None) -> Tensor:
        """The most likely order (N,): what to use at test time, but where images have their own.

        For a model in the middle of training, give the step: during warm-up it reads the warm-up's order.
        """
        if self._warms_up(step):
            return self.first
        return self.policy.mode()

    def reading(self, step: int | None = None) -> Tensor | OwnOrders:
        """What to read test images in: the order, or, where images have their own, those."""
        if not isinstance(self.policy, ImagePolicy):
            return self.order(step)
        return self.first if self._warms_up(step) else OwnOrders(self.policy)

    def _warms_up(self, step: int | None) -> bool:
        return step is not None and self.stage(step) == curriculum.WARM_UP

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
