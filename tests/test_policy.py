"""Plackett-Luce against brute force over all orders of five patches."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import reorder
from reorder import PlackettLuce

LOGITS = torch.tensor([0.3, -1.2, 0.9, 0.0, -0.4])
ALL = torch.tensor(list(itertools.permutations(range(5))))


def naive_probability(logits, order, temperature=1.0):
    """The product of softmaxes over what is left, as equation (3) of the paper has it."""
    weights = [math.exp(z / temperature) for z in logits]
    left, probability = list(order), 1.0
    for patch in order:
        probability *= weights[patch] / sum(weights[p] for p in left)
        left.remove(patch)
    return probability


@pytest.mark.parametrize("temperature", [1.0, 0.2, 3.0])
def test_probabilities_of_all_orders_match_the_naive_product_and_sum_to_one(temperature):
    probabilities = PlackettLuce(LOGITS.double()).log_prob(ALL, temperature).exp()
    naive = [naive_probability(LOGITS.tolist(), order, temperature) for order in ALL.tolist()]
    np.testing.assert_allclose(probabilities.detach().numpy(), naive, rtol=1e-6)
    assert probabilities.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sampling_frequencies_pass_a_chi_square_test(temperature):
    draws = 60_000
    samples = PlackettLuce(LOGITS).sample(draws, temperature, torch.Generator().manual_seed(0))
    place = {tuple(order): i for i, order in enumerate(ALL.tolist())}
    counts = np.bincount([place[tuple(order)] for order in samples.tolist()], minlength=120)
    expected = np.array([naive_probability(LOGITS.tolist(), order, temperature) for order in ALL.tolist()])
    assert chisquare(counts, expected * draws / expected.sum()).pvalue > 0.001


def test_gradients_match_finite_differences():
    policy = PlackettLuce(LOGITS.double())
    order = torch.tensor([3, 0, 4, 2, 1])
    (gradient,) = torch.autograd.grad(policy.log_prob(order, 0.7), policy.logits)
    step = 1e-6
    for patch in range(5):
        bumped = [LOGITS.double().clone() for _ in range(2)]
        bumped[0][patch] += step
        bumped[1][patch] -= step
        up, down = (math.log(naive_probability(z.tolist(), order.tolist(), 0.7)) for z in bumped)
        assert gradient[patch].item() == pytest.approx((up - down) / (2 * step), abs=1e-6)


def test_expected_score_is_zero():
    # The defining property of a score function: its mean under its own distribution vanishes.
    policy = PlackettLuce(LOGITS.double())
    log_prob = policy.log_prob(ALL, 0.5)
    (mean_score,) = torch.autograd.grad((log_prob.exp().detach() * log_prob).sum(), policy.logits)
    assert mean_score.abs().max() < 1e-12


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_entropy_terms_average_to_the_entropy_by_brute_force(temperature):
    policy = PlackettLuce(LOGITS.double())
    probabilities = torch.tensor([naive_probability(LOGITS.tolist(), o, temperature) for o in ALL.tolist()])
    entropy = -(probabilities * probabilities.log()).sum()
    estimate = (probabilities * policy.entropy(ALL, temperature).detach()).sum()
    assert estimate.item() == pytest.approx(entropy.item(), abs=1e-6)


@pytest.mark.parametrize("logits", [LOGITS, torch.zeros(5)])
def test_the_entropys_gradient_matches_brute_force(logits):
    def entropy(z):
        log_probabilities = []
        for order in ALL.tolist():
            left, total = list(order), 0.0
            for patch in order:
                total = total + z[patch] - torch.logsumexp(z[left], 0)
                left = left[1:]
            log_probabilities.append(total)
        log_probabilities = torch.stack(log_probabilities)
        return -(log_probabilities.exp() * log_probabilities).sum()

    free = logits.double().requires_grad_()
    (truth,) = torch.autograd.grad(entropy(free), free)
    policy = PlackettLuce(logits.double())
    probabilities = policy.log_prob(ALL).exp()
    (ours,) = torch.autograd.grad((probabilities * policy.entropy(ALL)).sum(), policy.logits)
    torch.testing.assert_close(ours, truth)


def test_equal_logits_have_the_entropy_of_all_orders():
    policy = PlackettLuce(torch.zeros(6))
    assert policy.entropy(torch.arange(6)).item() == pytest.approx(math.log(math.factorial(6)), abs=1e-5)
    assert policy.log_prob(torch.arange(6)).item() == pytest.approx(-math.log(math.factorial(6)), abs=1e-5)


def test_extreme_logits_over_very_many_patches_stay_exact_in_single_precision():
    patches = 135_424  # 5888 x 5888 pixels in patches of 16
    generator = np.random.default_rng(0)
    logits = generator.uniform(-50, 50, patches).astype(np.float32)
    order = generator.permutation(patches)
    policy = PlackettLuce(torch.from_numpy(logits))
    log_prob = policy.log_prob(torch.from_numpy(order)[None])
    chosen = logits[order].astype(np.longdouble)
    reference = (chosen - np.logaddexp.accumulate(chosen[::-1])[::-1]).sum()
    assert log_prob.dtype == torch.float32
    assert log_prob.item() == pytest.approx(float(reference), rel=1e-6)
    log_prob.sum().backward()
    # A patch adds 1 in its slot, and in each up to it takes its probability there.
    left = np.logaddexp.accumulate(chosen[::-1])[::-1]
    truth = np.empty(patches)
    truth[order] = 1 - np.exp(chosen + np.logaddexp.accumulate(-left))
    np.testing.assert_allclose(policy.logits.grad, truth, rtol=1e-6, atol=1e-7)
    # Every slot adds e_patch - softmax, which sums to zero over the patches.
    assert policy.logits.grad.double().sum().abs() < 1e-2
    assert policy.entropy(torch.from_numpy(order)).isfinite()


@pytest.mark.parametrize("name", reorder.SCANS)
@pytest.mark.parametrize("grid", [(14, 14), (4, 7), (1, 5)])
def test_the_mode_of_a_policy_made_from_a_scan_is_that_scan(name, grid):
    order = reorder.scan(name, *grid)
    policy = PlackettLuce.from_order(order)
    assert torch.equal(policy.mode(), order)
    # The ramp of section 5.2: the patch read first has 0, the one read last has -1, evenly spaced.
    read = policy.logits.detach()[order]
    torch.testing.assert_close(read, torch.linspace(0, -1, len(order)))


def test_a_ramp_over_very_many_patches_still_orders_them():
    order = torch.randperm(135_424, generator=torch.Generator().manual_seed(1))
    assert torch.equal(PlackettLuce.from_order(order).mode(), order)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=12))
def test_the_mode_is_at_least_as_likely_as_any_sample(logits):
    policy = PlackettLuce(torch.tensor(logits))
    samples = policy.sample(20, 2.0, torch.Generator().manual_seed(0))
    assert (policy.log_prob(samples) <= policy.log_prob(policy.mode()) + 1e-3).all()


def test_temperature_zero_gives_the_mode_and_seeds_repeat():
    policy = PlackettLuce(LOGITS)
    assert torch.equal(policy.sample(3, 0.0), policy.mode().expand(3, -1))
    first, second = (policy.sample(4, 1.0, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, policy.sample(4, 1.0, torch.Generator().manual_seed(8)))


def test_orders_of_another_grid_have_no_probability():
    policy = PlackettLuce(torch.zeros(3))
    for orders in (torch.tensor([[2, 0]]), torch.tensor([0, 1, 2, 0]), torch.tensor(1)):
        for ask in (policy.log_prob, policy.entropy):
            with pytest.raises(ValueError, match=r"orders must be of shape \(K, 3\) or \(3,\), got"):
                ask(orders)
    with pytest.raises(ValueError, match="temperature must be finite"):
        policy.sample(1, math.inf)


def test_impossible_requests_are_refused():
    with pytest.raises(ValueError, match="temperature must be finite and not negative, got -1"):
        PlackettLuce(LOGITS).sample(1, -1)
    with pytest.raises(ValueError, match="above 0, got 0"):
        PlackettLuce(LOGITS).log_prob(ALL, 0)
    with pytest.raises(ValueError, match="patch 1 is repeated"):
        PlackettLuce.from_order(torch.tensor([1, 1, 0]))
    with pytest.raises(ValueError, match=r"one order \(N,\) is needed"):
        PlackettLuce.from_order(torch.arange(4).expand(2, -1))
    with pytest.raises(ValueError, match="got nan"):
        PlackettLuce(LOGITS).sample(1, float("nan"))
    with pytest.raises(ValueError, match=r"shape \(N,\)"):
        PlackettLuce(torch.zeros(2, 3))
