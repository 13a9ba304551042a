"""What guards a step: finite losses and gradients, clipping, scaling, averaging of weights, accumulation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from reorder.orders.estimators import mean_over_ranks
from reorder.orders.read import Reading
from reorder.training.state import Run, unwrapped


def all_finite(losses: Tensor) -> bool:
    """Whether the losses of all ranks are finite."""
    return bool(mean_over_ranks(losses.mean()).isfinite())


def update(run: Run, policy_loss: Tensor) -> bool:
    """Back-propagate the policy's loss and update model and policy, if all gradients are finite.

    The norm of the model's gradient is clipped to `train.clip`, which the paper does not mention, and that of
    the policy's to `order.clip`, if there is one; a gradient that is not finite skips the step and, in
    float16, lowers the scale of the loss.
    """
    if policy_loss.requires_grad:
        run.scaler.scale(policy_loss).backward()
    run.scaler.unscale_(run.optimizer)
    finite = bool(clip_grad_norm_(run.model.parameters(), run.experiment.train.clip).isfinite())
    finite = finite and all(
        bool(parameter.grad.isfinite().all())
        for parameter in run.learner.parameters()
        if parameter.grad is not None
    )
    if (largest := run.experiment.order.clip) is not None:
        clip_grad_norm_(run.learner.parameters(), largest)
    if finite:
        run.scaler.step(run.optimizer)
        if run.ema is not None:
            run.ema.update_parameters(unwrapped(run.model))
    run.scaler.update()
    return finite


@contextmanager
def learner_unchanged_unless(updated: Callable[[], bool], learner: nn.Module) -> Iterator[None]:
    """Put the learner's baseline back if the step was skipped: its reward is no part of it."""
    before = [buffer.clone() for buffer in learner.buffers()]
    yield
    if not updated():
        for buffer, old in zip(learner.buffers(), before, strict=True):
            buffer.copy_(old)


Part = tuple[Tensor, Tensor, Reading]


def parts_of(run: Run, images: Tensor, labels: Tensor, order: Reading) -> Iterator[Part]:
    """A batch and its orders in `train.accumulate` parts; ranks exchange gradients after the last only."""
    count = run.experiment.train.accumulate
    one = isinstance(order, Tensor) and order.dim() == 1  # for all images
    orders = [order] * count if one else order.chunk(count)
    parts = zip(images.chunk(count), labels.chunk(count), orders, strict=True)
    for number, part in enumerate(parts):
        alone = run.world.size == 1 or number == count - 1
        with nullcontext() if alone else run.model.no_sync():  # type: ignore[operator]
            yield part
