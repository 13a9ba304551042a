"""Correctness per image and the bootstrap's standard error."""

import math

import numpy as np
import pytest
import torch

from reorder import bootstrap_sem
from reorder.evaluate import evaluate


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


def test_evaluation_leaves_the_model_in_its_mode():
    model = Fixed().train()
    evaluate(model, [(torch.arange(3), torch.eye(3), torch.arange(3))], None)
    assert model.training


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


@pytest.mark.parametrize("bad", [torch.ones(0), torch.ones(2, 2), torch.tensor([0.5, 1])])
def test_only_outcomes_per_image_are_accepted(bad):
    with pytest.raises(ValueError, match="correct must"):
        bootstrap_sem(bad)
