"""What a loop does wrong with a learner is said once, in one line; what it does right is not."""

import warnings
from pathlib import Path

import pytest
import torch

import reorder
from reorder.orders.signal import Signal

# N = 4 patches in a 2x2 grid

TOKENS = torch.arange(4.0).reshape(1, 4, 1)
SLOTS = torch.tensor([4.0, 1, 3, 2])[:, None]


def learner_of(**options):
    settings = {"init": "row", "total_steps": 100, "warmup_fraction": 0.1, "policy_fraction": 0.8}
    return reorder.OrderLearner((2, 2), **{**settings, **options})


def run(learner, steps, optimizer=None, reads=True):
    """A loop with or without an optimizer for the learner, whose orders are read or not."""
    for step in steps:
        order = learner.sample(step)
        if not reads:
            continue
        loss = (reorder.read(TOKENS, order) * SLOTS).sum()
        losses = loss[None]
        total = losses.mean() + learner.loss(losses)
        if total.requires_grad:
            total.backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()


def said(act):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        act()
    texts = [str(each.message) for each in found]
    assert not any("\n" in text for text in texts)
    return texts


@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_nothing_is_said_of_a_loop_that_is_right(estimator):
    learner = learner_of(estimator=estimator)
    optimizer = torch.optim.Adam(learner.parameters(), lr=learner.learning_rate)
    assert said(lambda: run(learner, range(100), optimizer)) == []


@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_a_learner_in_no_optimizer_is_noticed(estimator):
    (text,) = said(lambda: run(learner_of(estimator=estimator), range(100)))
    assert text.endswith("got gradients for 50 steps and did not move: its parameters are in no optimizer")


def test_a_short_policy_stage_is_not_waited_out():
    (text,) = said(lambda: run(learner_of(policy_fraction=0.2), range(100)))
    assert "for 19 steps and did not move" in text


def test_orders_that_are_not_read_are_noticed():
    (text,) = said(lambda: run(learner_of(), range(100), reads=False))
    assert text.startswith("no gradient has reached the order learner in 50 steps")
    assert "reorder.read" in text


def test_noise_alone_need_not_move():
    assert said(lambda: run(learner_of(learn=False), range(100))) == []


def test_a_step_that_stands_still_is_noticed_once():
    learner = learner_of()
    assert said(lambda: run(learner, [3] * 99)) == []
    (text,) = said(lambda: run(learner, [3] * 301))
    assert text.startswith("step 3 was sampled for 100 times")


def test_a_step_that_goes_back_is_noticed_once():
    learner = learner_of()
    (text,) = said(lambda: run(learner, [0, 1, 2, 0, 1, 0]))
    assert text.startswith("the step went back from 2 to 0: count the steps of all epochs")


def test_a_learner_may_go_on_from_a_saved_state():
    learner = learner_of()
    saved = learner.state_dict()
    learner.sample(5)
    learner.load_state_dict(saved)
    assert said(lambda: learner.sample(2)) == []


def test_a_start_may_be_an_order_file_and_must_be_of_the_grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reorder.save_order("order.json", torch.tensor([3, 1, 0, 2]), (2, 2))
    for path in ("order.json", Path("order.json")):
        assert learner_of(init=path).order().tolist() == [3, 1, 0, 2]
    with pytest.raises(ValueError, match=r"^order.json is for a 2x2 grid, but a 4x1 grid is read$"):
        reorder.OrderLearner((4, 1), "order.json", total_steps=9)
    with pytest.raises(ValueError, match=r"^an order of shape \(9,\) does not fit 4 patches$"):
        learner_of(init=torch.arange(9))


def test_a_grid_has_two_numbers():
    with pytest.raises(ValueError, match=r"^a grid is \(rows, columns\), two integers, got 14$"):
        reorder.OrderLearner(14, total_steps=9)


@pytest.mark.parametrize(
    ("length", "spread", "expected"), [(3.0, 1.0, 3 / 20), (0.0, 1.0, 0.0), (6.0, 0.1, 3.0)]
)
def test_signal_to_noise_is_that_of_the_gradients_drawn(length, spread, expected):
    """400 numbers with a common mean of that length and independent noise: its length is 20 spreads."""
    draw, signal = torch.Generator().manual_seed(0), Signal()
    mean = torch.full((400,), length / 20)
    found = []
    for _ in range(600):
        signal.add(mean + spread * torch.randn(400, generator=draw))
        found.append(signal.to_noise())
    assert found[0] is None
    average = sum(found[300:]) / 300
    assert average == pytest.approx(expected, rel=0.05, abs=0.02)


def test_the_gradients_of_straight_through_learning_have_a_signal():
    learner = learner_of()
    optimizer = torch.optim.Adam(learner.parameters(), lr=learner.learning_rate)
    run(learner, range(11), optimizer)
    assert learner.metrics()["gradient_signal_to_noise"] is None  # after one gradient
    run(learner, range(11, 60), optimizer)
    metrics = learner.metrics()
    assert metrics["gradient_signal_to_noise"] > 0
    assert metrics["stage"] == "policy"
    assert metrics["temperature"] == learner.temperature(59)
