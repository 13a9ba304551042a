"""Training the model anew once the order is found.

What a model learns while orders vary is of little use in one order, and can stand in its way: in the order
found, a model that starts anew overtakes one that goes on. The paper's goes on.
"""

import torch

from reorder.models.classifier import model_of
from reorder.orders.learner import OrderLearner
from reorder.training.state import Run, unwrapped


def restart_step(run: Run) -> int | None:
    """The step at which the model starts anew: the first of the frozen stage, if at all."""
    learner = run.learner
    if not isinstance(learner, OrderLearner) or not run.experiment.order.curriculum.restart:
        return None
    return learner.stop_step if 0 < learner.stop_step < run.total_steps else None


def restart(run: Run) -> None:
    """Give the model new weights, and leave optimizer and average nothing of the old ones."""
    data = run.loader.dataset
    torch.manual_seed(run.experiment.train.seed)  # the same on all ranks
    fresh = model_of(run.experiment.model, data.channels, len(data.classes)).state_dict()
    unwrapped(run.model).load_state_dict(fresh)
    for group in run.optimizer.param_groups[:-1]:  # the last is the policy's
        for parameter in group["params"]:
            run.optimizer.state.pop(parameter, None)
    if run.ema is not None:
        run.ema.module.load_state_dict(fresh)
        run.ema.n_averaged.zero_()
