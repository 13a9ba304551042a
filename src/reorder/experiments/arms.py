"""What a run can be compared with (`train.compare`): each arm is the same run with another order."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from reorder.config import Experiment, Order, keys_that_matter
from reorder.experiments.presets import with_order
from reorder.experiments.studies import Planned
from reorder.orders.scans import SCANS

BY_DEFAULT = ("start", "row")  # what `train.compare=true` means for a run with a policy


def fixed(experiment: Experiment, scan: str) -> Planned:
    """A scan, or one random order, from the first step to the last."""
    return Planned(with_order(experiment, scan))


def start(experiment: Experiment) -> Planned:
    """The order that the run starts from, fixed."""
    return fixed(experiment, experiment.order.scan)


def noise(experiment: Experiment) -> Planned:
    """Explores as much as the run does and learns nothing."""
    return Planned(with_order(experiment, experiment.order.scan, policy="noise"))


def algorithm_1(experiment: Experiment) -> Planned:
    """The paper's learner and curriculum, from the same start."""
    usual = Order()  # by the estimator
    order = replace(
        experiment.order,
        policy="global",
        estimator="paper",
        learning_rate=usual.learning_rate,
        warmup_fraction=usual.warmup_fraction,
        policy_fraction=usual.policy_fraction,
        warmup_order=usual.warmup_order,
    )
    return Planned(replace(experiment, order=order))


def learned(experiment: Experiment) -> Planned:
    """The order that the run ends with, from the first step on; it waits for the run."""
    return Planned(start(experiment).experiment, learned_from=experiment)


ARMS: dict[str, Callable[[Experiment], Planned]] = {
    "start": start,
    **{scan: partial(fixed, scan=scan) for scan in (*SCANS, "random")},
    "noise": noise,
    "paper": algorithm_1,
    "learned": learned,
}


def comparison(experiment: Experiment) -> dict[str, Planned]:
    """The arms that `train.compare` names, each once, and none that is the run itself."""
    names = experiment.train.compare
    if isinstance(names, bool):
        names = BY_DEFAULT if names and experiment.order.policy != "none" else ()
    alone = replace(experiment, train=replace(experiment.train, compare=False))
    seen, plans = [keys_that_matter(alone)], {}
    for name in names:
        if name not in ARMS:
            raise ValueError(f"train.compare: unknown arm {name!r}; choose from {', '.join(ARMS)}")
        plan = ARMS[name](alone)
        keys = keys_that_matter(plan.experiment)
        if plan.learned_from is not None or keys not in seen:
            plans[name] = plan
            seen.append(keys)
    return plans
