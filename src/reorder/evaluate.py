"""How well a model does: correctness of each image, top-1 and top-5, and their standard errors."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
def evaluate(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], order: Tensor | None) -> Evaluation:
    """Evaluate a classifier on batches of images and labels, read in one order (N,)."""
    was_training = model.training
    model.eval()
    correct, correct5, loss = [], [], 0.0
    for images, labels in batches:
        logits = model(images, order)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        best = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
        correct.append(best[:, 0])
        correct5.append(best.any(1))
    model.train(was_training)
    return Evaluation(torch.cat(correct), torch.cat(correct5), loss / sum(map(len, correct)))


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
