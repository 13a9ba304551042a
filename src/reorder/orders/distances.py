"""How far orders are apart."""

import math
from itertools import combinations

import numpy as np
from torch import Tensor

from reorder.orders.order import invert

# N patches, n images

MOST_PAIRS = 500  # of images that are compared


def kendall_tau(order: Tensor, other: Tensor) -> float:
    """Kendall's tau between two orders (N,): 1 if equal, -1 if one is the other reversed."""
    if len(order) < 2:
        return 1.0
    from scipy.stats import kendalltau  # imported here: slow, and most programs do not need it

    return float(kendalltau(invert(order).cpu().numpy(), invert(other).cpu().numpy()).statistic)


def footrule(order: np.ndarray, other: np.ndarray) -> int:
    """Spearman's footrule of two orders (N,): by how many slots their patches differ, added up."""
    return int(np.abs(np.argsort(order) - np.argsort(other)).sum())


def largest_footrule(patches: int) -> int:
    """The footrule of an order and its reverse, which no other pair exceeds."""
    return patches * patches // 2


def agreement(orders: Tensor) -> float:
    """The mean Kendall's tau between two of several orders (n, N); 1 if all are the same, or there is one."""
    if len(orders) < 2:
        return 1.0
    pairs = list(combinations(range(len(orders)), 2))
    some = pairs[:: math.ceil(len(pairs) / MOST_PAIRS)]
    return sum(kendall_tau(orders[a], orders[b]) for a, b in some) / len(some)


def share_by_class(orders: Tensor, labels: Tensor) -> float:
    """How much of the variance of patches' slots between images, orders (n, N), their labels (n,) explain.

    It is 1 - within / total, both unbiased, so that labels that tell nothing explain about 0.
    """
    slots, classes = invert(orders).double(), labels.unique()
    if len(slots) <= len(classes):
        return 0.0
    within = sum((slots[labels == c] - slots[labels == c].mean(0)).square().sum() for c in classes)
    total = (slots - slots.mean(0)).square().sum()
    if total == 0:
        return 0.0
    return float(1 - (within / (len(slots) - len(classes))) / (total / (len(slots) - 1)))
