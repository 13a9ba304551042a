"""What a checkpoint says of the order that was read at its step."""

import pytest
import torch

from reorder.config import build
from reorder.experiments.presets import preset
from reorder.runs.trained import order_at


@pytest.mark.parametrize(("start_step", "expected"), [(2, [2, 0, 1, 3]), (10, [0, 1, 2, 3])])
def test_the_stages_are_those_that_the_checkpoint_holds(start_step, expected):
    """Not those of the configuration, which says something else once a run is made longer."""
    tensors = {
        "learner.first": torch.arange(4),
        "learner.policy.logits": torch.tensor([2.0, 1.0, 3.0, 0.0]),
    }
    state = {"step": 6, "start_step": start_step, "stop_step": 20, "metrics": [{"step": 5, "epoch": 1}]}
    own = build(preset("digits"), overrides=["order.warmup_fraction=0.15", "train.epochs=8"])  # 6 of 40 steps
    assert order_at(tensors, state, own).tolist() == expected
