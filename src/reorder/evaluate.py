"""How well a model does: correctness of each image, top-1 and top-5, and their standard errors."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.distributed import gather

# n images, B in a batch


class Evaluation(NamedTuple):
    correct: Tensor  # (n,), bool: the most likely class is right
    correct5: Tensor  # (n,), bool: the right class is among the five most likely
    loss: float

    @property
    def top1(self) -> float:
        return self.correct.double().mean().item()

    @property
    def top5(self) -> float:
        return self.correct5.double().mean().item()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    order: Tensor | None,
    device: torch.device | None = None,
) -> Evaluation:
    """Evaluate a classifier on batches of indices, images and labels, read in one order (N,).

    Of several ranks each gives its share of the images; all get the whole, sorted by index.
    """
    was_training = model.training
    model.eval()
    found = []
    for index, images, labels in batches:
        labels = labels.to(device)
        logits = model(images.to(device), order).float()
        losses = F.cross_entropy(logits, labels, reduction="none").double()
        best = (logits.topk(min(5, logits.shape[1])).indices == labels[:, None]).double()
        found.append(torch.stack([index.double(), best[:, 0].cpu(), best.amax(1).cpu(), losses.cpu()], dim=1))
    model.train(was_training)
    rows = gather(torch.cat(found) if found else torch.empty(0, 4, dtype=torch.double))
    _, correct, correct5, losses = rows[rows[:, 0].argsort()].T
    return Evaluation(correct.bool(), correct5.bool(), losses.mean().item())


def bootstrap_sem(correct: Tensor, resamples: int = 2000, generator: torch.Generator | None = None) -> float:
    """The standard error of mean(correct): its deviation over resamples of the n images with replacement.

    The sum of n draws from zeros and ones is binomial, so each resample is one draw.
    """
    correct = torch.as_tensor(correct)
    if correct.dim() != 1 or len(correct) == 0:
        raise ValueError(f"correct must be of shape (n,) with n > 0, got {tuple(correct.shape)}")
    if not ((correct == 0) | (correct == 1)).all():
        raise ValueError("correct must hold zeros and ones, one per image")
    if resamples < 2:
        raise ValueError(f"resamples must be at least 2, got {resamples}")
    count = torch.full((resamples,), float(len(correct)), dtype=torch.float64)
    rate = correct.double().mean().cpu().expand(resamples)
    means = torch.binomial(count, rate, generator=generator) / len(correct)
    return means.std().item()
