"""One order per image: at the start that of the global policy; gradients, probabilities, independence."""

from itertools import permutations

import pytest
import torch
from torch import nn

import reorder
from reorder.orders.image_policy import ImagePolicy, OwnOrders
from reorder.orders.policy import log_prob
from reorder.orders.straight_through import Sampled

# B images, N patches, D width


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def changed(policy: ImagePolicy, scale: float = 0.2) -> ImagePolicy:
    """The policy, whose network tells images apart."""
    generator = torch.Generator().manual_seed(0)
    for parameter in policy.network.parameters():
        nn.init.normal_(parameter, std=scale, generator=generator)
    return policy


def learner(**settings) -> reorder.OrderLearner:
    usual = {"total_steps": 100, "warmup_fraction": 0.1, "policy_fraction": 0.5, "seed": 3, "image_width": 6}
    return reorder.OrderLearner((3, 4), **(usual | settings))


def test_at_the_start_it_is_the_global_policy_to_the_bit():
    own, one = learner(), learner(image_width=None)
    tokens = torch.randn(5, 12, 6)
    assert torch.equal(own.policy.logits, one.policy.logits)
    for step in range(10):  # warm-up
        assert torch.equal(own.sample(step), one.sample(step))
    logits = own.policy.image_logits(tokens)
    assert torch.equal(logits, one.policy.logits.expand(5, -1))
    for step in (10, 30, 59, 60, 99):
        assert torch.equal(own.reading(step).of(tokens), one.order(step).expand(5, -1))
    assert torch.equal(own.order(), one.order())


def test_a_sample_sorts_the_images_logits_with_the_noise_of_its_step():
    found = learner(warmup_order="init")
    changed(found.policy)
    tokens, step = torch.randn(5, 12, 6), 20
    sampled = found.sample(step, 5).of(tokens)
    assert isinstance(sampled, Sampled)
    noise = (sampled.scores.detach() - found.policy.image_logits(tokens)) / found.temperature(step)
    assert noise.std() > 0.5
    assert (noise[0] != noise[1]).all()  # every image its own
    assert torch.equal(sampled.order, sampled.scores.argsort(dim=1, descending=True))
    again = found.sample(step).of(tokens)  # the number of images is not known
    assert torch.equal(again.order, sampled.order)
    parts = zip(found.sample(step, 5).chunk(2), tokens.chunk(2), strict=True)
    assert torch.equal(torch.cat([part.of(some).order for part, some in parts]), sampled.order)
    assert not torch.equal(found.sample(step + 1, 5).of(tokens).order, sampled.order)


def test_the_gradient_is_that_of_the_dense_formula():
    """Against autograd through SoftSort written out, and against finite differences of it, on 5 patches."""
    policy = changed(ImagePolicy(torch.randn(5), (1, 5), 4, reach=1.0)).double()
    tokens, weights = torch.randn(3, 5, 4).double(), torch.randn(3, 5, 4).double()
    width = 0.3

    def dense() -> torch.Tensor:
        scores = policy.logits + policy.network(tokens)
        slots = scores.sort(dim=1, descending=True).values
        soft = (-(slots[:, :, None] - scores[:, None]).abs() / width).softmax(-1)
        return (weights * (soft @ tokens)).sum()

    orders = OwnOrders(policy)
    orders.learning = reorder.orders.image_policy.Learning(lambda flat: flat, 1.0, width, [])
    sampled = orders.of(tokens)
    assert torch.allclose(
        reorder.read(tokens, sampled), tokens.gather(1, sampled.order[..., None].expand(-1, -1, 4))
    )
    (weights * reorder.read(tokens, sampled)).sum().backward()
    for parameter in policy.parameters():
        (expected,) = torch.autograd.grad(dense(), parameter)
        assert torch.allclose(parameter.grad, expected, atol=1e-5)
        if parameter is not policy.logits and parameter.numel() > 4:
            continue
        flat, step = parameter.data.view(-1), 1e-6
        for index in range(len(flat)):
            before = flat[index].item()
            with torch.no_grad():
                flat[index] = before + step
                above = dense().item()
                flat[index] = before - step
                below = dense().item()
                flat[index] = before
            assert expected.view(-1)[index].item() == pytest.approx((above - below) / (2 * step), abs=1e-4)


def test_probabilities_of_an_images_orders_add_up_and_follow_the_definition():
    policy = changed(ImagePolicy(torch.randn(4), (2, 2), 3, reach=2.0))
    logits = policy.image_logits(torch.randn(2, 4, 3)).detach()
    orders = torch.tensor(list(permutations(range(4))))
    for image in logits:
        found = log_prob(image.expand(24, -1), orders, temperature=0.7).exp()
        assert found.sum().item() == pytest.approx(1, abs=1e-5)
        for order, chance in zip(orders, found, strict=True):
            left, product = (image / 0.7).exp().double(), 1.0
            for patch in order:
                product *= (left[patch] / left.sum()).item()
                left[patch] = 0
            assert chance.item() == pytest.approx(product, rel=1e-4)
    with pytest.raises(ValueError, match="shape"):
        log_prob(logits, orders)


def test_an_images_order_does_not_depend_on_the_others():
    policy = changed(ImagePolicy(torch.zeros(12), (3, 4), 6, reach=1.0))
    tokens = torch.randn(6, 12, 6)
    together = OwnOrders(policy).of(tokens)
    assert len({tuple(order.tolist()) for order in together}) > 1
    for image in range(6):
        assert torch.equal(OwnOrders(policy).of(tokens[image : image + 1])[0], together[image])


def test_the_network_sees_near_patches_and_stays_within_its_reach():
    network = changed(ImagePolicy(torch.zeros(49), (7, 7), 6, reach=0.4), scale=0.1).network
    tokens = torch.randn(1, 49, 6)
    other = tokens.clone()
    other[0, 0] = torch.randn(6)  # the top-left patch
    moved = (network(tokens) != network(other)).view(7, 7)
    expected = torch.zeros(7, 7, dtype=torch.bool)
    expected[:3, :3] = True
    assert torch.equal(moved, expected)
    large = changed(ImagePolicy(torch.zeros(49), (7, 7), 6, reach=0.4), scale=2.0).network
    assert 0.2 < large(tokens).abs().max() <= 0.4


def test_paired_learns_the_order_that_lowers_an_images_loss():
    """Images of two kinds: one wants its first patch read last, the other its last patch."""
    found = reorder.OrderLearner(
        (1, 4),
        total_steps=300,
        estimator="paired",
        orders_per_image=4,
        warmup_fraction=0,
        policy_fraction=1,
        image_width=2,
    )
    optimizer = torch.optim.AdamW(found.parameters(), lr=found.learning_rate, weight_decay=0)
    kinds = torch.tensor([0, 1] * 8)
    tokens = torch.stack([torch.eye(2)[kinds]] * 4, dim=1)  # every patch tells the kind
    wanted = torch.where(kinds == 0, 0, 3)
    for step in range(300):
        images, target = found.repeat(step, tokens, wanted)
        orders = found.sample(step, len(images)).of(images)
        losses = (orders[:, -1] != target).float()
        optimizer.zero_grad()
        loss = found.loss(losses)
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
    assert torch.equal(found.reading().of(tokens)[:, -1], wanted)


def test_reinforce_cannot_teach_it():
    with pytest.raises(ValueError, match=r"straight-through and paired.*; got 'paper' and block=None"):
        learner(estimator="paper")
    with pytest.raises(ValueError, match="without blocks; got 'straight-through' and block=2"):
        learner(block=2)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        learner(image_width=0)
