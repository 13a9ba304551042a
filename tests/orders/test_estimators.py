"""Algorithm 1, line by line, against numbers worked out by hand and sums over all orders."""

import itertools
import math

import pytest
import torch

from reorder import PlackettLuce
from reorder.orders.estimators import SCORES, Paired, Reinforce, RunningBaseline, StraightThrough


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
    estimator = Reinforce(name, momentum=0.9, start_at_zero=True)
    # two images, whose mean loss is 1.5: a reward of -1.5
    loss = estimator.loss(
        PlackettLuce(torch.tensor(logits)), torch.tensor([[2, 0, 1]]), torch.tensor([1.0, 2.0]), 0.5
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
        estimator = Reinforce(name, momentum=1.0, start_at_zero=True)
        loss = estimator.loss(policy, order[None], -reward[None], temperature)
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


def test_unknown_scores_are_named():
    with pytest.raises(ValueError, match="unknown score 'ppo'; choose from paper, exact, scaled"):
        Reinforce("ppo")


def test_pairs_are_the_gradient_of_the_expected_loss_over_all_pairs_of_orders():
    # Two orders read two images of their own difficulty: over all 24^2 pairs, weighted by their
    # probabilities, the mean of the estimate must be the derivative of the mean loss, times T.
    temperature = 0.5
    orders = torch.tensor(list(itertools.permutations(range(4))))
    losses = torch.linspace(-2, 1, len(orders), dtype=torch.float64).cos()
    hard = torch.tensor([0.0, 7.0], dtype=torch.float64)
    policy = PlackettLuce(torch.tensor([0.2, -0.5, 0.0, 0.7], dtype=torch.float64))
    probabilities = policy.log_prob(orders, temperature).exp()
    (truth,) = torch.autograd.grad((probabilities * losses).sum(), policy.logits)
    estimate, weights = torch.zeros(4, dtype=torch.float64), probabilities.detach()
    for a, b in itertools.product(range(len(orders)), repeat=2):
        # rows: order a on both images, then order b on both
        rows = orders[[a, a, b, b]]
        found = torch.cat([losses[a] + hard, losses[b] + hard])
        (gradient,) = torch.autograd.grad(Paired(2).loss(policy, rows, found, temperature), policy.logits)
        estimate += weights[a] * weights[b] * gradient
    torch.testing.assert_close(estimate, temperature * truth)


def test_how_hard_an_image_is_does_not_matter_to_pairs():
    policy = PlackettLuce(torch.tensor([0.2, -0.5, 0.0]))
    orders = policy.sample(6, 1.0, torch.Generator().manual_seed(0))
    losses = torch.tensor([1.0, 2.0, 3.0, 5.0, 4.0, 1.0])  # two images in three orders
    hard = torch.tensor([100.0, -50.0]).repeat(3)
    terms = [Paired(3).loss(policy, orders, each, 0.3) for each in (losses, losses + hard)]
    torch.testing.assert_close(terms[0], terms[1], rtol=1e-4, atol=1e-5)
    # by hand: of image 0 (losses 1, 3, 4) the first order is (3 + 4) / 2 - 1 = 2.5 better than the others
    alone = torch.tensor([1.0, 0.0, 3.0, 0.0, 4.0, 0.0])
    advantages = torch.tensor([2.5, 0.0, -0.5, 0.0, -2.0, 0.0])
    by_hand = -(advantages * 0.3 * policy.log_prob(orders, 0.3)).mean()
    torch.testing.assert_close(Paired(3).loss(policy, orders, alone, 0.3), by_hand)


def test_orders_that_all_images_were_read_in_are_compared_by_their_mean():
    policy = PlackettLuce(torch.tensor([0.2, -0.5, 0.0]))
    orders = policy.sample(2, 1.0, torch.Generator().manual_seed(0))
    losses = torch.tensor([[1.0, 2.0, 6.0], [2.0, 3.0, 1.0]])
    by_image = Paired(2).loss(policy, orders.repeat_interleave(3, 0), losses.flatten(), 0.3)
    torch.testing.assert_close(Paired(2).loss(policy, orders, losses, 0.3), by_image)


def test_bad_numbers_of_orders_are_named():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        Paired(1)


def test_straight_through_adds_nothing_to_the_loss():
    policy = PlackettLuce(torch.zeros(3))
    term = StraightThrough().loss(policy, torch.tensor([[0, 1, 2]]), torch.ones(4), 0.3)
    assert term == 0
    assert not term.requires_grad
