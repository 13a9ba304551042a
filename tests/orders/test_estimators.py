"""Algorithm 1, line by line, against numbers worked out by hand and sums over all orders."""

import itertools
import math

import pytest
import torch

from reorder import PlackettLuce
from reorder.orders.estimators import SCORES, Estimator, RunningBaseline


def test_the_first_reward_starts_the_baseline_which_moves_before_the_advantage():
    baseline = RunningBaseline(momentum=0.9)
    # b: -2; then 0.9 * -2 + 0.1 * -1 = -1.9; then 0.9 * -1.9 + 0.1 * -3 = -2.01.
    advantages = [baseline.advantages(torch.tensor([r])).item() for r in (-2.0, -1.0, -3.0)]
    assert advantages == pytest.approx([0.0, 0.9, -0.99])
    assert baseline.value.item() == pytest.approx(-2.01)


def test_a_baseline_can_start_at_zero_as_the_algorithm_is_written():
    baseline = RunningBaseline(momentum=0.99, start_at_zero=True)
    # b = 0.99 * 0 + 0.01 * -2 = -0.02, A = -2 + 0.02.
    assert baseline.advantages(torch.tensor([-2.0])).item() == pytest.approx(-1.98)


def test_several_orders_share_one_baseline():
    baseline = RunningBaseline(momentum=0.5, start_at_zero=True)
    # Mean reward -2, b = -1.
    assert baseline.advantages(torch.tensor([-1.0, -3.0])).tolist() == pytest.approx([0.0, -2.0])


def test_the_baseline_is_part_of_the_state():
    baseline = RunningBaseline()
    baseline.advantages(torch.tensor([-2.0]))
    copy = RunningBaseline()
    copy.load_state_dict(baseline.state_dict())
    assert copy.advantages(torch.tensor([-1.0])).item() == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("name", "temperature_of_score", "factor"),
    [("paper", 1.0, 1.0), ("exact", 0.5, 1.0), ("scaled", 0.5, 0.5)],
)
def test_the_loss_is_minus_advantage_times_score(name, temperature_of_score, factor):
    logits = [0.4, -0.3, 0.1]
    estimator = Estimator(name, momentum=0.9, start_at_zero=True)
    loss = estimator.loss(
        PlackettLuce(torch.tensor(logits)), torch.tensor([[2, 0, 1]]), torch.tensor([-1.5]), 0.5
    )
    w = [math.exp(z / temperature_of_score) for z in logits]
    log_prob = math.log(w[2] / sum(w)) + math.log(w[0] / (w[0] + w[1]))
    advantage = -1.5 - (0.1 * -1.5)
    assert loss.item() == pytest.approx(-advantage * factor * log_prob, rel=1e-5)


@pytest.mark.parametrize(("name", "factor"), [("exact", 1.0), ("scaled", 0.5)])
def test_the_estimator_is_the_gradient_of_the_expected_reward(name, factor):
    # Over all orders, the mean of score times reward must be the derivative of the mean reward.
    temperature = 0.5
    orders = torch.tensor(list(itertools.permutations(range(4))))
    rewards = torch.linspace(-2, 1, len(orders), dtype=torch.float64)
    policy = PlackettLuce(torch.tensor([0.2, -0.5, 0.0, 0.7], dtype=torch.float64))
    probabilities = policy.log_prob(orders, temperature).exp()
    (truth,) = torch.autograd.grad((probabilities * rewards).sum(), policy.logits)
    estimate = torch.zeros(4, dtype=torch.float64)
    for order, reward, probability in zip(orders, rewards, probabilities.detach(), strict=True):
        # momentum 1 keeps the baseline at zero: plain REINFORCE
        estimator = Estimator(name, momentum=1.0, start_at_zero=True)
        loss = estimator.loss(policy, order[None], reward[None], temperature)
        (gradient,) = torch.autograd.grad(loss, policy.logits)
        estimate -= probability * gradient
    torch.testing.assert_close(estimate, factor * truth)


def test_the_scaled_score_moves_logits_alike_at_every_temperature():
    # Logits z = T u draw the same orders at every T, and log P(order | u) has one gradient in u. That is T
    # times its gradient in z: scaled, the gradient in z is the same; unscaled, it would be 1 / T of it.
    u, order = torch.tensor([0.4, -0.3, 0.1, 0.9], dtype=torch.float64), torch.tensor([[2, 0, 1, 3]])
    gradients = []
    for temperature in (0.01, 1.0, 20.0):
        policy = PlackettLuce(temperature * u)
        score = SCORES["scaled"](policy, order, temperature)
        gradients += torch.autograd.grad(score.sum(), policy.logits)
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[2], gradients[1])


def test_unknown_estimators_are_named():
    with pytest.raises(ValueError, match="unknown estimator 'ppo'; choose from paper, exact, scaled"):
        Estimator("ppo")
