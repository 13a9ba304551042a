"""The factored policy against brute force over all orders of blocks and cells of a small grid."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from short_runs import QUIET, stop_after

import reorder
from reorder.config import Data, Experiment, Model, Order, Train
from reorder.orders.blocks import Blocks, layout_of, nearest_parts
from reorder.orders.learner import OrderLearner
from reorder.orders.order import validate
from reorder.orders.straight_through import Sampled
from reorder.report.evaluation import evaluate_run
from reorder.report.write import write_report
from reorder.runs.directory import RunDir
from reorder.training import loop as training
from reorder.training.signals import Stopped

# 3 x 3 patches in blocks of 2 x 2: a whole one, one of a column, one of a row, and one of a corner.
GRID, SIDE = (3, 3), 2
BLOCKS = [{0: 0, 1: 1, 2: 3, 3: 4}, {0: 2, 2: 5}, {0: 6, 1: 7}, {0: 8}]  # patches by cell, written by hand
LOGITS = torch.tensor([0.3, -1.2, 0.9, 0.0, -0.4, 0.8, 0.1, -0.7])
PAIRS = list(itertools.product(itertools.permutations(range(4)), itertools.permutations(range(4))))


def composed(blocks, cells):
    """The order that reads blocks in one order, and the cells of each in another."""
    return [BLOCKS[block][cell] for block in blocks for cell in cells if cell in BLOCKS[block]]


def naive(logits, order, temperature):
    """The product of softmaxes over what is left."""
    weights, left, probability = [math.exp(z / temperature) for z in logits], list(order), 1.0
    for item in order:
        probability *= weights[item] / sum(weights[other] for other in left)
        left.remove(item)
    return probability


ALL = torch.tensor([composed(*pair) for pair in PAIRS])


def probabilities(temperature):
    halves = LOGITS[:4].tolist(), LOGITS[4:].tolist()
    return [naive(halves[0], b, temperature) * naive(halves[1], c, temperature) for b, c in PAIRS]


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_probabilities_of_all_orders_match_the_naive_products_and_sum_to_one(temperature):
    assert len(ALL.unique(dim=0)) == 576
    policy = Blocks(GRID, SIDE, LOGITS.double())
    found = policy.log_prob(ALL, temperature).exp()
    np.testing.assert_allclose(found.detach(), probabilities(temperature), rtol=1e-6)
    assert found.sum().item() == pytest.approx(1.0)
    assert policy.log_prob(ALL[7], temperature).exp().item() == pytest.approx(found[7].item())


def test_an_order_that_leaves_a_block_before_its_end_is_never_drawn():
    policy = Blocks(GRID, SIDE, LOGITS)
    drawn = {tuple(order) for order in ALL.tolist()}
    others = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i)) for i in range(50)])
    expected = [tuple(order) in drawn for order in others.tolist()]
    assert policy.log_prob(others).isfinite().tolist() == expected
    assert not all(expected)
    with pytest.raises(ValueError, match=r"^orders must be of shape \(K, 9\) or \(9,\), got \(8,\)$"):
        policy.log_prob(torch.arange(8))


def test_sampling_frequencies_pass_a_chi_square_test():
    draws = 60_000
    samples = Blocks(GRID, SIDE, LOGITS).sample(draws, 1.0, torch.Generator().manual_seed(0))
    place = {tuple(order): i for i, order in enumerate(ALL.tolist())}
    counts = np.bincount([place[tuple(order)] for order in samples.tolist()], minlength=576)
    assert chisquare(counts, np.array(probabilities(1.0)) * draws).pvalue > 0.001


def test_the_mode_is_the_most_likely_order_and_the_entropy_that_of_all():
    policy, chances = Blocks(GRID, SIDE, LOGITS.double()), torch.tensor(probabilities(0.5))
    assert torch.equal(policy.mode(), ALL[chances.argmax()])
    assert torch.equal(policy.by_patch().argsort(descending=True), policy.mode())
    estimate = (chances * policy.entropy(ALL, 0.5).detach()).sum()
    assert estimate.item() == pytest.approx(-(chances * chances.log()).sum().item(), abs=1e-6)


def test_straight_through_gradients_of_both_levels_are_those_of_soft_permutations():
    scores, width = LOGITS.clone().requires_grad_(), 0.6
    policy, weights = Blocks(GRID, SIDE, LOGITS), torch.randn(2, 9, 3)
    tokens = torch.randn(2, 9, 3)
    order = policy.order_of(LOGITS)
    read = reorder.read(tokens, Sampled(order, scores, width, policy.layout))
    assert torch.equal(read, tokens[:, order])
    (read * weights).sum().backward()
    # By autograd: a table of blocks times cells, zero where there is no patch, mixed by soft permutations.
    leaf = LOGITS.clone().requires_grad_()
    table = torch.zeros(2, 4, 4, 3)
    for block, cells in enumerate(BLOCKS):
        for cell, patch in cells.items():
            table[:, block, cell] = tokens[:, patch]
    soft, hard = [], []
    for part in leaf.split(4):
        slots = part.argsort(descending=True)
        soft.append((-(part[slots][:, None] - part).abs() / width).softmax(-1))
        hard.append(torch.eye(4)[slots])
    loss = 0
    for pair in ((soft[0], hard[1]), (hard[0], soft[1])):
        mixed = torch.einsum("mb,nc,ibcd->imnd", *pair, table)
        at = torch.einsum("mb,nc,bc->mn", *hard, (layout_of(GRID, SIDE) >= 0).float()) > 0
        loss = loss + (mixed[:, at] * weights).sum()
    loss.backward()
    torch.testing.assert_close(scores.grad, leaf.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("grid", "side"), [((3, 3), 2), ((5, 7), 3), ((2, 9), 4), ((4, 4), 2), ((3, 3), 9)])
def test_blocks_cover_every_grid(grid, side):
    policy = Blocks(grid, side)
    orders = policy.sample(5, 1.0, torch.Generator().manual_seed(0))
    validate(orders, grid[0] * grid[1])
    assert policy.log_prob(orders).isfinite().all()
    again = nearest_parts(orders[0], policy.layout)
    assert [part.tolist() for part in again] == [part.tolist() for part in policy.parts(orders[0])]


def test_bad_blocks_are_named():
    with pytest.raises(ValueError, match=r"^a block has at least 1 patch a side, got 0$"):
        Blocks((4, 4), 0)
    with pytest.raises(ValueError, match=r"^4 blocks of 4 cells have 8 logits, got 7$"):
        Blocks((4, 4), 2, torch.zeros(7))


@pytest.mark.parametrize("estimator", ["straight-through", "paired", "scaled"])
def test_a_learner_of_blocks_starts_near_its_start_and_a_restored_one_goes_on(estimator):
    def learner():
        return OrderLearner(
            (6, 6), "column", total_steps=40, estimator=estimator, block=3, warmup_order="init"
        )

    ours, weight = learner(), torch.linspace(0, 1, 36)
    assert len(ours.policy.logits) == 4 + 9
    # Columns of blocks, each read column by column.
    expected = [row * 6 + column for b in range(4) for column in range(b // 2 * 3, b // 2 * 3 + 3)
                for row in range(b % 2 * 3, b % 2 * 3 + 3)]  # fmt: skip
    assert ours.order().tolist() == expected
    assert torch.equal(ours.order(), ours.start)
    optimizer = torch.optim.Adam(ours.parameters(), ours.learning_rate)
    for step in range(20):
        tokens = torch.rand(4, 36, 1, requires_grad=True)
        order = ours.sample(step)
        if order[0].dim() == 1 and estimator == "paired" and len(order) == 4:
            losses = torch.stack([(tokens[:, each, 0] * weight).mean(-1) for each in order])
        else:
            losses = (reorder.read(tokens, order)[..., 0] * weight).mean(-1)
        optimizer.zero_grad()
        (losses.mean() + ours.loss(losses)).backward()
        optimizer.step()
    assert not torch.equal(ours.policy.logits, learner().policy.logits)
    theirs = learner()
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(theirs.order(), ours.order())
    assert ours.metrics(8)["entropy"] > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_few_steps_put_the_block_that_matters_last(seed):
    # A reader that sees the last eighteen slots alone, and wants block 5 of 16 in them.
    torch.manual_seed(seed)
    learner = OrderLearner(
        (12, 12), total_steps=200, block=3, seed=seed, warmup_fraction=0.1, policy_fraction=0.9
    )
    optimizer = torch.optim.Adam(learner.parameters(), learner.learning_rate)
    wanted = torch.zeros(144)
    wanted[learner.policy.layout[5]] = 1
    for step in range(200):
        noise = 0.3 * torch.randn(8, 144, requires_grad=True)
        read = reorder.read((wanted + noise)[..., None], learner.sample(step))
        optimizer.zero_grad()
        losses = -read[:, -18:].mean((1, 2))
        (losses.mean() + learner.loss(losses)).backward()
        optimizer.step()
    assert set(learner.policy.layout[5].tolist()) <= set(learner.order()[-18:].tolist())


@pytest.mark.slow
def test_a_run_learns_in_blocks_resumes_to_the_bit_and_can_be_evaluated_and_reported(tmp_path, monkeypatch):
    def experiment():
        return Experiment(
            model=Model(name="transformer_xl", size="mini", image_size=8, patch_size=2),
            data=Data(augment="none", train_images=512),
            train=Train(epochs=4, batch_size=128, learning_rate=2e-3, warmup_epochs=0.5),
            order=Order(scan="random", policy="blocks", block=2),
        )

    whole, halves = RunDir(tmp_path / "whole"), RunDir(tmp_path / "halves")
    training.train(experiment(), whole, QUIET)
    with monkeypatch.context() as patched:
        stop_after(patched, 5)
        with pytest.raises(Stopped):
            training.train(experiment(), halves, QUIET)
    training.train(experiment(), halves, QUIET)
    summaries = [json.loads((run.path / "summary.json").read_text()) for run in (whole, halves)]
    assert summaries[0]["order"] == summaries[1]["order"]
    assert summaries[0]["top1"] == summaries[1]["top1"]
    assert Blocks((4, 4), 2).log_prob(torch.tensor(summaries[0]["order"])).isfinite()
    assert evaluate_run(whole, None, [])[1]["top1"] == pytest.approx(summaries[0]["top1"])
    write_report([whole], tmp_path / "report")
