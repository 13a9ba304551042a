"""One training step: Algorithm 1 of the paper, in its sequence. What guards it stands in `guards`."""

import torch
import torch.nn.functional as F
from torch import Tensor

from reorder.orders.curriculum import learning_rate
from reorder.orders.read import Reading
from reorder.training.guards import all_finite, learner_unchanged_unless, parts_of, update
from reorder.training.state import Run, derive_seed

# B images, N patches


def train_step(run: Run, images: Tensor, labels: Tensor) -> None:
    """One step on this rank's part of a batch: images (B, C, H, W) and labels (B,).

    Algorithm 1 keeps one sum of losses and one update; here the model's part of line 11 is back-propagated
    part by part with `train.accumulate`, and the policy's after it, which adds up to the same gradients.
    """
    set_learning_rate(run)
    seed_dropout(derive_seed(run.experiment.train.seed, run.step, run.world.rank), run.world.device)
    run.optimizer.zero_grad()
    updated = False
    images, labels = run.learner.repeat(run.step, images, labels)
    with learner_unchanged_unless(lambda: updated, run.learner):
        order = run.learner.sample(run.step, len(images))  # lines 1 and 2: noisy logits, sorted
        losses, right = read_batch(run, images, labels, order)  # lines 3 to 5
        if all_finite(losses):
            policy_loss = run.learner.loss(losses)  # lines 6 to 9: reward, baseline, advantage, loss
            updated = update(run, policy_loss)  # lines 10 and 11
    if updated:
        run.count(losses, right)
    else:
        run.skip()


def read_batch(run: Run, images: Tensor, labels: Tensor, order: Reading) -> tuple[Tensor, int]:
    """Losses (B,) of a batch read in an order, and how many images are right; gradients are added up."""
    losses, right = [], 0
    for images_part, labels_part, order_part in parts_of(run, images, labels, order):
        with run.autocast():
            logits = run.model(images_part, order_part)  # lines 3 and 4
            part = F.cross_entropy(logits, labels_part, reduction="none")  # line 5
        run.scaler.scale(part.sum() / len(images)).backward()
        losses.append(part.detach().float())
        right += int((logits.argmax(1) == labels_part).sum())
    return torch.cat(losses), right


def seed_dropout(seed: int, device: torch.device) -> None:
    """As torch.manual_seed, which takes a millisecond: without a GPU it notes who asked for one."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


def set_learning_rate(run: Run) -> None:
    """The model follows the cosine; the policy, the last group, keeps its own rate (section 5.3)."""
    settings, steps = run.experiment.train, run.loader.steps_per_epoch
    warmup_steps, hold_steps = round(settings.warmup_epochs * steps), round(settings.hold_epochs * steps)
    peak, floor = settings.learning_rate, settings.learning_rate_floor
    rate = learning_rate(run.step, warmup_steps, run.total_steps, peak, hold_steps, floor)
    for group in run.optimizer.param_groups[:-1]:
        group["lr"] = rate
