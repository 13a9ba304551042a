"""Which estimator finds a hidden order, from noisy losses alone, in a short run and a longer one?

Kendall's tau with the hidden order of 25 patches, from a row-major start; the policy stage is the whole run.
"""

from statistics import mean

import torch
from rich.progress import track
from rich.table import Table

from reorder import OrderLearner
from reorder.order import invert, kendall_tau
from reorder.reward import SCORES

SEEDS = range(4)
EVALUATIONS = (1_000, 8_000)


def learn(estimator: str, peak: float, evaluations: int, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randperm(25, generator=generator)
    learner = OrderLearner(
        (5, 5),
        "row",
        total_steps=evaluations,
        warmup_fraction=0,
        policy_fraction=1,
        peak_temperature=peak,
        estimator=estimator,
        seed=seed,
    )
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3, weight_decay=0)
    for step in range(evaluations):
        moved = (invert(learner.sample(step)) - invert(target)).abs().double().mean() / 8.32
        term = learner.loss(moved + 0.2 * torch.randn(8, generator=generator))
        optimizer.zero_grad()
        if term.requires_grad:
            term.backward()
        optimizer.step()
    return kendall_tau(learner.order(), target)


def table(tiny: bool = False) -> Table:
    seeds, evaluations = (SEEDS[:1], (10, 20)) if tiny else (SEEDS, EVALUATIONS)
    table = Table(
        "estimator",
        "peak temperature",
        *(f"tau after {count:,}: mean (lowest)" for count in evaluations),
        title=f"hidden orders, {len(seeds)} seeds",
    )
    cases = [(name, peak) for peak in (0.2, 0.5) for name in SCORES]
    for name, peak in track(cases, description="hidden orders", transient=True):
        found = [[learn(name, peak, count, seed) for seed in seeds] for count in evaluations]
        table.add_row(name, f"{peak}", *(f"{mean(taus):.2f} ({min(taus):.2f})" for taus in found))
    return table
