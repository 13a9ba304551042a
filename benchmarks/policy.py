"""The policy and the scans against the plain way of writing them, in one process, minimum of several runs."""

import timeit
from collections.abc import Callable

import torch
from rich.table import Table
from torch import Tensor

import reorder


def seconds(function: Callable[[], object], repeats: int = 5) -> float:
    """The shortest of several runs."""
    return min(timeit.repeat(function, number=1, repeat=repeats))


def sample_one_by_one(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Draw a patch for each slot in turn and add up its log-probability."""
    left = torch.ones_like(logits, dtype=torch.bool)
    order, log_prob = [], torch.zeros(())
    for _ in range(len(logits)):
        probabilities = logits.masked_fill(~left, -torch.inf).softmax(0)
        patch = torch.multinomial(probabilities, 1)
        log_prob = log_prob + probabilities[patch].log()
        left[patch] = False
        order.append(patch)
    return torch.cat(order), log_prob


def sample_and_score(policy: reorder.PlackettLuce) -> Tensor:
    return policy.log_prob(policy.sample(1))


def spiral_by_walking(rows: int, columns: int) -> Tensor:
    """Walk the grid and turn at walls and visited patches."""
    seen, order = set(), []
    r = c = 0
    dr, dc = 0, 1
    for _ in range(rows * columns):
        order.append(r * columns + c)
        seen.add((r, c))
        ahead = (r + dr, c + dc)
        if not (0 <= ahead[0] < rows and 0 <= ahead[1] < columns) or ahead in seen:
            dr, dc = dc, -dr
        r, c = r + dr, c + dc
    return torch.tensor(order)


def table(tiny: bool = False) -> Table:
    side, large = (3, 4) if tiny else (14, 368)
    table = Table("what", "ours (ms)", "peer (ms)", "ratio", title="Policy and scans")
    policy = reorder.PlackettLuce.from_order(reorder.scan("row", side, side))
    rows = [
        (
            f"sample and score an order of {side * side} patches; peer: slot by slot",
            seconds(lambda: sample_and_score(policy)),
            seconds(lambda: sample_one_by_one(policy.logits.detach())),
        ),
        (
            f"spiral of {large}x{large} patches; peer: a walk",
            seconds(lambda: reorder.scan("spiral", large, large)),
            seconds(lambda: spiral_by_walking(large, large)),
        ),
    ]
    for name, ours, peer in rows:
        table.add_row(name, f"{1000 * ours:.2f}", f"{1000 * peer:.2f}", f"{peer / ours:.1f}x")
    hilbert = seconds(lambda: reorder.scan("hilbert", large, large))
    table.add_row(f"Hilbert scan of {large}x{large} patches", f"{1000 * hilbert:.2f}", "", "")
    return table
