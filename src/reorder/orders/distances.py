"""How far two orders are apart."""

import numpy as np
from torch import Tensor

from reorder.orders.order import invert

# N patches


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
