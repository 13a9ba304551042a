"""Which estimator finds a hidden order, from noisy losses alone, with a given number of evaluations?

Kendall's tau with the hidden order of 25 patches, from a row-major start; the policy stage is the whole run.
"""

import torch
from rich.progress import track
from rich.table import Table

from reorder import OrderLearner
from reorder.order import invert, kendall_tau
from reorder.reward import SCORES

SEEDS = range(4)
EVALUATIONS = 8_000


def learn(estimator: str, peak: float, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randperm(25, generator=generator)
    learner = OrderLearner(
        (5, 5),
        "row",
        total_steps=EVALUATIONS,
        warmup_fraction=0,
        policy_fraction=1,
        peak_temperature=peak,
        estimator=estimator,
        seed=seed,
    )
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3, weight_decay=0)
    for step in range(EVALUATIONS):
        moved = (invert(learner.sample(step)) - invert(target)).abs().double().mean() / 8.32
        term = learner.loss(moved + 0.2 * torch.randn(8, generator=generator))
        optimizer.zero_grad()
        if term.requires_grad:
            term.backward()
        optimizer.step()
    return kendall_tau(learner.order(), target)


def table() -> Table:
    table = Table(
        "estimator", "peak temperature", "mean tau", "lowest", title=f"{EVALUATIONS} evaluations, 4 seeds"
    )
    cases = [(name, peak) for peak in (0.2, 0.5) for name in SCORES]
    for name, peak in track(cases, description="hidden orders", transient=True):
        taus = [learn(name, peak, seed) for seed in SEEDS]
        table.add_row(name, f"{peak}", f"{sum(taus) / len(taus):.2f}", f"{min(taus):.2f}")
    return table
