"""All statistics: bootstrap, paired differences, McNemar's test, means over seeds, intervals, F-test."""

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

# n images, S seeds

Named = TypeVar("Named", bound=Hashable)
Had = TypeVar("Had", bound=Hashable)
ROUNDING = 1e-9  # less than any image changes an accuracy


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
    """The standard error of mean(correct), zeros and ones (n,), by the bootstrap.

    >>> correct = torch.tensor([1.0] * 60 + [0.0] * 40)  # 60% of 100 images are right
    >>> round(reorder.bootstrap_sem(correct, generator=torch.Generator().manual_seed(0)), 2)
    0.05
    """
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


class Mean(NamedTuple):
    """A mean over seeds, with its standard errors over seeds and over images."""

    value: float
    seed_error: float | None  # None for a single seed
    image_error: float | None  # None if the images of the seeds are not known to be the same
    seeds: int


def mean_over_seeds(values: Sequence[float] | np.ndarray, per_image: Sequence[np.ndarray | None]) -> Mean:
    """The mean of one value per seed (S,); per_image (S, n) are the images' shares in them.

    The seeds share their images, so the error over images is that of each image's mean over seeds.
    """
    seeds = len(values)
    seed_error = float(np.std(values, ddof=1) / math.sqrt(seeds)) if seeds > 1 else None
    image_error = None
    known = [shares for shares in per_image if shares is not None]
    if len(known) == seeds and len({len(shares) for shares in known}) == 1:
        image_error = float(np.mean(known, axis=0).std() / math.sqrt(len(known[0])))
    return Mean(float(np.mean(values)), seed_error, image_error, seeds)


def largest_block(have: Mapping[Named, Set[Had]], least: int = 1) -> tuple[list[Named], set[Had]]:
    """The largest complete block: those that share such seeds as make the most runs, and these seeds.

    At `least` so many if possible, and then two seeds if possible: one has no error.
    """

    def holders(shared: Set[Had]) -> list[Named]:
        return [name for name, had in have.items() if shared <= had]

    candidates: dict[frozenset[Had], None] = {}  # what any of them share
    for had in have.values():
        candidates |= dict.fromkeys([frozenset(had), *(shared & had for shared in candidates)])
    candidates.pop(frozenset(), None)
    if not candidates:
        return [], set()

    def size(shared: Set[Had]) -> tuple[int, int, int, int]:
        count = len(holders(shared))
        return min(count, least), min(len(shared), 2), count * len(shared), count

    best = max(candidates, key=size)
    return holders(best), set(best)


def seeds_left_out(about: str, have: Mapping[str, Set[int]], kept: list[str], seeds: Set[int]) -> list[str]:
    """A note on what was not kept of several that have seeds, if anything."""
    if all(had == seeds for had in have.values()):
        return []
    found = f"{', '.join(kept)} with seed {', '.join(map(str, sorted(seeds)))}" if kept else "nothing"
    return [f"{about}: of {found}; what does not share those seeds is left out."]


class Interval(NamedTuple):
    low: float
    high: float


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's 95% confidence interval of the mean of independent values; None for fewer than two."""
    if len(values) < 2:
        return None
    from scipy.stats import t  # imported here: slow, and most commands do not need it

    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return Interval(float(np.mean(values) - half), float(np.mean(values) + half))


def p_value(mean: Mean) -> float | None:
    """Of a paired t-test over seeds, two-sided; None below two seeds, or if all differ by the same."""
    if mean.seed_error is None or mean.seed_error < ROUNDING:
        return None
    from scipy.stats import t  # imported here: slow, and most commands do not need it

    return float(2 * t.sf(abs(mean.value) / mean.seed_error, mean.seeds - 1))


def blocked_f_test(values: np.ndarray) -> tuple[float, float]:
    """Of values (treatments, blocks): the error of the difference of two treatments' means, and the p-value.

    A two-way analysis of variance without interaction.
    """
    from scipy.stats import f  # imported here: slow, and most commands do not need it

    treatments, blocks = values.shape
    by_treatment = values.mean(1, keepdims=True) - values.mean()
    rest = values - values.mean(0) - by_treatment
    freedom = (treatments - 1) * (blocks - 1)
    residual = float((rest**2).sum()) / freedom
    explained = blocks * float((by_treatment**2).sum()) / (treatments - 1)
    if explained < ROUNDING**2:  # a model that is indifferent to the order has no error either
        return math.sqrt(2 * residual / blocks), 1.0
    p_value = float(f.sf(explained / max(residual, ROUNDING**2), treatments - 1, freedom))
    return math.sqrt(2 * residual / blocks), p_value
