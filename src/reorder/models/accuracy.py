"""How well a model does: correctness of each image, top-1 and top-5, and their standard errors."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.data.ranks import gather

# n images, B in a batch


class Evaluation(NamedTuple):
    correct: Tensor  # (n,), bool: the most likely class is right
    correct5: Tensor  # (n,), bool: the right class is among the five most likely
    losses: Tensor  # (n,), cross-entropy in nats

    @property
    def loss(self) -> float:
        return self.losses.mean().item()

    @property
    def loss_sem(self) -> float:
        """The standard error of the mean loss, which the bootstrap of a mean tends to."""
        return self.losses.std(correction=0).item() / math.sqrt(len(self.losses))

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
        losses = F.cross_entropy(logits, labels, reduction="none").cpu()
        best = (logits.topk(min(5, logits.shape[1])).indices == labels[:, None]).cpu()
        columns = (index, best[:, 0], best.any(1), losses)
        found.append(torch.stack([column.double() for column in columns], dim=1))  # not every GPU has float64
    model.train(was_training)
    rows = gather(torch.cat(found) if found else torch.empty(0, 4, dtype=torch.double))
    _, correct, correct5, losses = rows[rows[:, 0].argsort()].T
    return Evaluation(correct.bool(), correct5.bool(), losses)


class Spread(NamedTuple):
    """How far an estimate would scatter over other draws of the same number of images."""

    sem: float  # standard error: the deviation over the resamples
    low: float  # 95% interval: their 2.5th and 97.5th percentiles
    high: float


def bootstrap(correct: Tensor, resamples: int = 2000, generator: torch.Generator | None = None) -> Spread:
    """The spread of mean(correct) over resamples of the n images with replacement.

    The sum of n draws from zeros and ones is binomial, so each resample is one draw.
    """
    correct = _outcomes(correct, "correct")
    _check_resamples(resamples)
    count = torch.full((resamples,), float(len(correct)), dtype=torch.float64)
    rate = correct.mean().expand(resamples)
    return _spread(torch.binomial(count, rate, generator=generator) / len(correct))


def bootstrap_sem(correct: Tensor, resamples: int = 2000, generator: torch.Generator | None = None) -> float:
    """The standard error of mean(correct), zeros and ones (n,), by the bootstrap."""
    return bootstrap(correct, resamples, generator).sem


class PairedDifference(NamedTuple):
    """How much more often A is right than B on the same images, and whether chance explains it."""

    difference: float  # mean(A) - mean(B)
    spread: Spread
    only_a: int  # images that A alone has right
    only_b: int
    p_value: float  # McNemar's: of a split of the discordant images this uneven, if A and B were equally good
    test: str  # how it was computed


def paired_difference(
    correct_a: Tensor,
    correct_b: Tensor,
    resamples: int = 2000,
    generator: torch.Generator | None = None,
) -> PairedDifference:
    """Compare two models, zeros and ones (n,) for the same n images, by paired bootstrap and McNemar's test.

    An image adds 1, -1 or 0 to the difference, so a resample is one draw from a trinomial: a binomial number
    of discordant images, of which a binomial number are right in A alone.
    """
    a, b = _outcomes(correct_a, "correct_a"), _outcomes(correct_b, "correct_b")
    if len(a) != len(b):
        raise ValueError(f"a paired difference needs the same images, got {len(a)} and {len(b)}")
    _check_resamples(resamples)
    only_a, only_b, images = int((a > b).sum()), int((a < b).sum()), len(a)
    discordant = only_a + only_b
    count = torch.full((resamples,), float(images), dtype=torch.float64)
    differ = torch.binomial(count, torch.full_like(count, discordant / images), generator=generator)
    for_a = torch.binomial(differ, torch.full_like(count, only_a / max(discordant, 1)), generator=generator)
    spread = _spread((2 * for_a - differ) / images)
    return PairedDifference((only_a - only_b) / images, spread, only_a, only_b, *mcnemar(only_a, only_b))


EXACT_BELOW = 25  # discordant images; the chi-square approximation is the usual choice from there on


def mcnemar(only_a: int, only_b: int) -> tuple[float, str]:
    """McNemar's two-sided p-value from the images that one model alone has right, and its kind of test."""
    discordant, fewer = only_a + only_b, min(only_a, only_b)
    if discordant < EXACT_BELOW:
        tail = sum(math.comb(discordant, k) for k in range(fewer + 1)) / 2**discordant
        return min(1.0, 2 * tail), "exact binomial"
    statistic = max(abs(only_a - only_b) - 1, 0) ** 2 / discordant
    return math.erfc(math.sqrt(statistic / 2)), "chi-square with continuity correction"


def _outcomes(correct: Tensor, name: str) -> Tensor:
    """Zeros and ones (n,), checked, as float64 on the CPU."""
    correct = torch.as_tensor(correct)
    if correct.dim() != 1 or len(correct) == 0:
        raise ValueError(f"{name} must be of shape (n,) with n > 0, got {tuple(correct.shape)}")
    if not ((correct == 0) | (correct == 1)).all():
        raise ValueError(f"{name} must hold zeros and ones, one per image")
    return correct.double().cpu()


def _check_resamples(resamples: int) -> None:
    if resamples < 2:
        raise ValueError(f"resamples must be at least 2, got {resamples}")


def _spread(estimates: Tensor) -> Spread:
    """The spread of estimates (resamples,)."""
    low, high = estimates.quantile(estimates.new_tensor([0.025, 0.975])).tolist()
    return Spread(estimates.std().item(), low, high)
