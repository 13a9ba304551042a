"""Correctness per image, the bootstrap and the paired comparison of two models."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chi2

from reorder import bootstrap_sem
from reorder.evaluate import bootstrap, evaluate, mcnemar, paired_difference


class Fixed(torch.nn.Module):
    """A classifier whose logits are the images themselves."""

    def forward(self, images, order):
        return images


def test_top1_top5_and_loss_by_hand():
    logits = torch.tensor([[6.0, 5, 4, 3, 2, 1], [6, 5, 4, 3, 2, 1], [6, 5, 4, 3, 2, 1]])
    labels = torch.tensor([0, 4, 5])
    result = evaluate(
        Fixed(),
        [
            (torch.tensor([2, 0]), logits[[2, 0]], labels[[2, 0]]),
            (torch.tensor([1]), logits[1:2], labels[1:2]),
        ],
        None,
    )
    assert result.correct.tolist() == [True, False, False]
    assert result.correct5.tolist() == [True, True, False]
    assert result.top1 == pytest.approx(1 / 3)
    assert result.top5 == pytest.approx(2 / 3)
    log_sum = math.log(sum(math.exp(z) for z in (6, 5, 4, 3, 2, 1)))
    assert result.loss == pytest.approx(((log_sum - 6) + (log_sum - 2) + (log_sum - 1)) / 3)
    # Losses 6, 2 and 1 below the sum: a mean square of 14 / 3 about their mean, over 3 images.
    assert result.loss_sem == pytest.approx(math.sqrt(14 / 3 / 3))


def test_evaluation_leaves_the_model_in_its_mode():
    model = Fixed().train()
    evaluate(model, [(torch.arange(3), torch.eye(3), torch.arange(3))], None)
    assert model.training


def test_nothing_is_dropped_in_evaluation():
    class Dropping(Fixed):
        def forward(self, images, order):
            return torch.nn.functional.dropout(images, 0.9, self.training)

    result = evaluate(Dropping().train(), [(torch.arange(50), torch.eye(50), torch.arange(50))], None)
    assert result.top1 == 1
    assert result.losses.tolist() == pytest.approx([math.log(math.e + 49) - 1] * 50)


def test_bootstrap_agrees_with_theory_and_with_resampling_images():
    generator = torch.Generator().manual_seed(0)
    correct = torch.rand(500, generator=generator) < 0.7
    rate = correct.double().mean().item()
    ours = bootstrap_sem(correct, resamples=20_000, generator=generator)
    assert ours == pytest.approx(math.sqrt(rate * (1 - rate) / 500), rel=0.03)
    random = np.random.default_rng(0)
    literal = [correct.numpy()[random.integers(0, 500, 500)].mean() for _ in range(4000)]
    assert ours == pytest.approx(np.std(literal, ddof=1), rel=0.05)


def test_bootstrap_is_seeded_and_certain_outcomes_have_no_error():
    correct = torch.tensor([0.0, 1, 1, 0, 1])
    first, second = (bootstrap_sem(correct, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert first == second > 0
    assert bootstrap_sem(torch.ones(10)) == 0


@pytest.mark.parametrize(
    "error_of",
    [
        bootstrap_sem,
        lambda correct, generator: bootstrap(correct, generator=generator).sem,
        lambda correct, generator: paired_difference(correct, ~correct, generator=generator).spread.sem,
    ],
    ids=["bootstrap_sem", "bootstrap", "paired_difference"],
)
def test_2000_resamples_are_drawn(error_of):
    # An error estimated from R resamples scatters by 1 / sqrt(2R) of itself: 1.6% of 2,000, 5% of 200.
    correct = torch.arange(1000) < 400
    errors = [error_of(correct, generator=torch.Generator().manual_seed(seed)) for seed in range(400)]
    assert np.std(errors) / np.mean(errors) == pytest.approx(1 / math.sqrt(2 * 2000), rel=0.15)


@pytest.mark.parametrize("bad", [torch.ones(0), torch.ones(2, 2), torch.tensor([0.5, 1])])
def test_only_outcomes_per_image_are_accepted(bad):
    with pytest.raises(ValueError, match="correct must"):
        bootstrap_sem(bad)


def test_the_interval_holds_the_middle_95_percent_of_resampled_images():
    correct = torch.arange(400) < 340
    spread = bootstrap(correct, resamples=40_000, generator=torch.Generator().manual_seed(0))
    random = np.random.default_rng(1)
    literal = correct.numpy()[random.integers(0, 400, (10_000, 400))].mean(1)
    assert (spread.low, spread.high) == pytest.approx(np.quantile(literal, [0.025, 0.975]), abs=1.5 / 400)
    assert spread.low < 0.85 < spread.high


def outcomes(only_a, only_b, both, neither):
    """Correctness of two models with these numbers of images."""
    a = [1] * only_a + [0] * only_b + [1] * both + [0] * neither
    b = [0] * only_a + [1] * only_b + [1] * both + [0] * neither
    return torch.tensor(a), torch.tensor(b)


@pytest.mark.parametrize("numbers", [(40, 25, 300, 35), (6, 0, 80, 14), (150, 150, 50, 50), (90, 5, 2, 3)])
def test_paired_spread_agrees_with_theory_and_with_resampling_images(numbers):
    a, b = outcomes(*numbers)
    paired = paired_difference(a, b, resamples=40_000, generator=torch.Generator().manual_seed(0))
    n, (only_a, only_b) = len(a), numbers[:2]
    assert paired.difference == pytest.approx(a.double().mean().item() - b.double().mean().item())
    assert (paired.only_a, paired.only_b) == (only_a, only_b)
    variance = (only_a + only_b) / n - ((only_a - only_b) / n) ** 2
    assert paired.spread.sem == pytest.approx(math.sqrt(variance / n), rel=0.02)
    random = np.random.default_rng(0)
    drawn = random.integers(0, n, (10_000, n))  # the same images for both models
    literal = a.numpy()[drawn].mean(1) - b.numpy()[drawn].mean(1)
    assert paired.spread.sem == pytest.approx(literal.std(ddof=1), rel=0.04)
    interval = np.quantile(literal, [0.025, 0.975])
    assert (paired.spread.low, paired.spread.high) == pytest.approx(interval, abs=2.5 / n)


def test_pairing_sees_what_two_separate_errors_hide():
    a, b = outcomes(only_a=12, only_b=1, both=487, neither=500)
    paired = paired_difference(a, b, generator=torch.Generator().manual_seed(0))
    assert paired.spread.low > 0
    assert paired.p_value < 0.01
    assert math.hypot(bootstrap_sem(a), bootstrap_sem(b)) > 5 * paired.spread.sem


def test_paired_difference_is_seeded_and_changes_sign_with_its_arguments():
    a, b = outcomes(9, 4, 20, 7)
    first, second = (paired_difference(a, b, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert first == second
    back = paired_difference(b, a)
    assert (back.difference, back.p_value) == (-first.difference, first.p_value)


def test_certain_differences_have_no_error():
    same = paired_difference(torch.tensor([1, 0, 1]), torch.tensor([1, 0, 1]))
    assert (same.difference, same.spread, same.p_value) == (0, (0, 0, 0), 1)
    every = paired_difference(torch.ones(30), torch.zeros(30))
    assert (every.difference, every.spread) == (1, (0, 1, 1))


def test_exact_mcnemar_is_the_binomial_test():
    for discordant in range(1, 25):
        for only_a in range(discordant + 1):
            p_value, test = mcnemar(only_a, discordant - only_a)
            assert p_value == pytest.approx(binomtest(only_a, discordant).pvalue)
            assert test == "exact binomial"


@pytest.mark.parametrize(
    ("only_a", "only_b", "p_value", "kind"),
    [
        (0, 0, 1, "exact"),
        (5, 0, 2 / 32, "exact"),
        (1, 5, 2 * (1 + 6) / 64, "exact"),
        (9, 16, 0.23014, "chi-square"),  # (7 - 1)^2 / 25 = 1.2^2
        (50, 31, 0.04550, "chi-square"),  # (19 - 1)^2 / 81 = 2^2
        (20, 20, 1, "chi-square"),  # the correction does not make a difference out of none
        (30, 20, chi2.sf(1.62, 1), "chi-square"),  # (10 - 1)^2 / 50
    ],
)
def test_mcnemar_by_hand(only_a, only_b, p_value, kind):
    found, test = mcnemar(only_a, only_b)
    assert found == pytest.approx(p_value, abs=5e-6)
    assert test.startswith(kind)


def test_only_pairs_of_the_same_images_are_accepted():
    with pytest.raises(ValueError, match="the same images, got 3 and 4"):
        paired_difference(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="correct_b must hold zeros and ones"):
        paired_difference(torch.ones(2), torch.tensor([0.5, 1]))
    with pytest.raises(ValueError, match="resamples must be at least 2, got 1"):
        paired_difference(torch.ones(2), torch.ones(2), resamples=1)
