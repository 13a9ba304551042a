"""How far orders are apart, by hand."""

import pytest
import torch

from reorder.orders.distances import agreement, share_by_class

# n images, N patches


def test_agreement_is_the_mean_tau_of_pairs():
    row, reverse = torch.arange(4), torch.arange(4).flip(0)
    assert agreement(torch.stack([row, row])) == 1
    assert agreement(torch.stack([row, row, reverse])) == pytest.approx((1 - 1 - 1) / 3)
    assert agreement(row[None]) == 1


def test_classes_that_have_one_order_each_explain_all_and_random_ones_nothing():
    labels = torch.arange(400) % 4
    torch.manual_seed(0)
    of_class = torch.stack([torch.randperm(9) for _ in range(4)])
    assert share_by_class(of_class[labels], labels) == 1
    assert share_by_class(of_class[:1].expand(400, -1), labels) == 0
    drawn = torch.stack([torch.randperm(9) for _ in range(400)])
    assert share_by_class(drawn, labels) == pytest.approx(0, abs=0.02)
    half = torch.where((torch.arange(400) // 4 % 2 == 0)[:, None], of_class[labels], drawn)
    assert 0.1 < share_by_class(half, labels) < 0.4  # of the variance, a quarter
