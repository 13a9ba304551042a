"""The learner: its curriculum, its effect on the logits, and that it finds an order known to be best."""

import io
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import reorder
from reorder import OrderLearner
from reorder.config import build
from reorder.experiments.presets import digits
from reorder.orders.distances import kendall_tau
from reorder.orders.fixed import FixedOrder, RandomOrder, step_generator
from reorder.orders.image_policy import REACH
from reorder.orders.named import random_order
from reorder.orders.order import invert
from reorder.orders.straight_through import Sampled
from reorder.training.setup import setup
from reorder.training.state import derive_seed

REWARD_EVALUATIONS = 8_000
ALL_POLICY = {"estimator": "scaled", "warmup_fraction": 0, "policy_fraction": 1}


def learn_hidden_order(seed):
    """Kendall's tau with a hidden order of 25 patches, learned from noisy losses alone, from row-major."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randperm(25, generator=generator)
    learner = OrderLearner(
        (5, 5),
        "row",
        total_steps=REWARD_EVALUATIONS,
        warmup_fraction=0,
        policy_fraction=1,
        peak_temperature=0.5,
        estimator="scaled",
        seed=seed,
    )
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3, weight_decay=0)
    for step in range(REWARD_EVALUATIONS):
        moved = (invert(learner.sample(step)) - invert(target)).abs().double().mean() / 8.32  # 1 if random
        losses = moved + 0.2 * torch.randn(8, generator=generator)
        loss = losses.mean() + learner.loss(losses)
        optimizer.zero_grad()
        if loss.requires_grad:  # not at the very ends, where the temperature is 0
            loss.backward()
        optimizer.step()
    return kendall_tau(learner.order(), target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_learned_mode_reaches_a_hidden_best_order(seed):
    assert learn_hidden_order(seed) >= 0.8


def take_steps(learner, optimizer, steps, set_to_none=True):
    """Train on losses that depend on the order; the orders read and the logits after each step."""
    orders, logits = [], []
    weight = torch.ones((), requires_grad=True)  # stands for the model
    for step in range(steps):
        order = learner.sample(step)
        losses = weight * (1 + invert(order)[:4].double() / 16)
        loss = losses.mean() + learner.loss(losses)
        optimizer.zero_grad(set_to_none=set_to_none)
        loss.backward()
        optimizer.step()
        orders.append(order)
        logits.append(learner.policy.logits.detach().clone())
    return orders, logits


@pytest.mark.parametrize("set_to_none", [True, False])
def test_three_stages_row_major_then_exploring_then_frozen(set_to_none):
    learner = OrderLearner((4, 4), "spiral", total_steps=100, estimator="scaled", seed=3)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-2, weight_decay=0.03)
    start = learner.policy.logits.detach().clone()
    orders, logits = take_steps(learner, optimizer, 100, set_to_none)
    row, spiral = reorder.scan("row", 4, 4), reorder.scan("spiral", 4, 4)
    assert all(torch.equal(order, row) for order in orders[:15])
    assert torch.equal(orders[15], spiral)  # temperature 0: the mode, not yet moved
    assert torch.equal(logits[15], start)
    assert len({tuple(order.tolist()) for order in orders[16:45]}) > 20
    assert not torch.equal(logits[44], start)
    # Frozen: neither momentum nor weight decay moves the logits again.
    assert all(torch.equal(later, logits[44]) for later in logits[45:])
    assert all(torch.equal(order, learner.order()) for order in orders[45:])


def test_the_warm_up_can_read_the_initial_order():
    learner = OrderLearner((4, 4), "spiral", total_steps=10, estimator="paper", warmup_order="init")
    assert torch.equal(learner.sample(0), reorder.scan("spiral", 4, 4))
    learner = OrderLearner((4, 4), "spiral", total_steps=10, estimator="paper")
    assert torch.equal(learner.order(step=0), reorder.scan("row", 4, 4))
    assert torch.equal(learner.order(step=9), reorder.scan("spiral", 4, 4))


def test_orders_depend_on_seed_step_and_logits_alone():
    first, second, other = (
        OrderLearner((4, 4), total_steps=100, estimator="scaled", seed=s) for s in (5, 5, 6)
    )
    for learner in (first, second, other):
        learner.to(torch.float32)
    first.sample(20)  # an extra draw elsewhere changes nothing
    assert torch.equal(first.sample(30), second.sample(30))
    assert not torch.equal(first.sample(30), other.sample(30))
    assert not torch.equal(first.sample(30), first.sample(31))


def test_a_restored_learner_continues_exactly():
    def make():
        learner = OrderLearner((4, 4), "hilbert", total_steps=60, estimator="scaled", seed=1)
        return learner, torch.optim.AdamW(learner.parameters(), lr=1e-2)

    whole, optimizer = make()
    take_steps(whole, optimizer, 60)
    half, optimizer = make()
    take_steps(half, optimizer, 20)
    resumed, fresh_optimizer = make()
    resumed.load_state_dict(half.state_dict())
    fresh_optimizer.load_state_dict(optimizer.state_dict())
    weight = torch.ones((), requires_grad=True)
    for step in range(20, 60):
        losses = weight * (1 + invert(resumed.sample(step))[:4].double() / 16)
        fresh_optimizer.zero_grad()
        (losses.mean() + resumed.loss(losses)).backward()
        fresh_optimizer.step()
    assert torch.equal(resumed.policy.logits, whole.policy.logits)
    assert torch.equal(resumed.estimator.baseline.value, whole.estimator.baseline.value)


def test_the_model_receives_no_gradient_from_the_reinforce_term():
    learner = OrderLearner((2, 2), total_steps=100, estimator="scaled")
    losses = torch.ones(3, requires_grad=True)
    learner.sample(30)
    learner.loss(losses)  # starts the baseline
    (learner.loss(losses * 2)).backward()
    assert losses.grad is None
    assert learner.policy.logits.grad.abs().sum() > 0


def test_a_fixed_order_answers_the_same_questions():
    fixed = FixedOrder((2, 3), torch.tensor([5, 4, 3, 2, 1, 0]))
    assert fixed.sample(3).tolist() == fixed.order().tolist() == [5, 4, 3, 2, 1, 0]
    assert fixed.loss(torch.ones(4)).item() == 0
    assert list(fixed.parameters()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"init": "zigzag"}, "unknown scan 'zigzag'"),
        ({"init": torch.arange(3)}, r"shape \(3,\) does not fit 16 patches"),
        ({"init": torch.arange(16).expand(2, -1)}, r"one order \(16,\) is needed, got shape \(2, 16\)"),
        ({"total_steps": 0}, "at least 1, got 0"),
        ({"warmup_fraction": 0.9}, "add up to at most 1"),
        ({"peak_temperature": -0.1}, "got -0.1"),
        ({"warmup_order": "column"}, "unknown warmup_order 'column'; choose from row, init, random"),
        ({"seed": -1}, "seed must not be negative"),
        ({"estimator": "ppo"}, "unknown estimator 'ppo'"),
    ],
)
def test_bad_settings_are_named(change, said):
    with pytest.raises(ValueError, match=said):
        OrderLearner(**({"grid": (4, 4), "total_steps": 10} | change))
    with pytest.raises(RuntimeError, match="sample"):
        OrderLearner((4, 4), total_steps=10).loss(torch.ones(2))


def test_the_readmes_drop_in_runs_in_a_plain_loop():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = re.findall(r"<!-- drop-in -->\n```python\n(.*?)```", readme, re.S)

    class Net(torch.nn.Module):
        """Someone else's causal model over 16 patches, which takes an order."""

        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
            self.mix = torch.nn.GRU(8, 8, batch_first=True)

        def forward(self, images, order):
            patches = images.unfold(2, 2, 2).unfold(3, 2, 2).reshape(len(images), 16, 4)
            return self.head(self.mix(reorder.read(self.embed(patches), order))[0][:, -1])

    torch.manual_seed(0)
    images = torch.randn(64, 1, 8, 8)
    labels = (images[:, 0, 0, 0] > 0).long()
    batches = [(images, labels)] * 400
    assert len(code.splitlines()) == 10
    code = code.replace("grid=(14, 14)", "grid=(4, 4)")
    scope = {"torch": torch, "reorder": reorder, "model": Net(), "batches": batches, "steps": len(batches)}
    exec(code, scope)
    learner = scope["learner"]
    assert kendall_tau(learner.order(), random_order((4, 4), 0)) < 1  # it has moved
    assert sorted(learner.order().tolist()) == list(range(16))
    assert scope["losses"].mean() < 0.6  # better than chance, 0.69: the model was trained as well


def test_the_readmes_lines_read_tokens_as_our_models_do():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = re.findall(r"<!-- reads -->\n```python\n(.*?)```", readme, re.S)
    ours = reorder.create_model("vit", "mini", 8, 2, 1, 10).tokens
    images, order = torch.randn(3, 1, 8, 8), reorder.scan("spiral", 4, 4)
    scope = {"torch": torch, "reorder": reorder, "images": images, "order": order, "embed": ours.patch_embed}
    scope |= {"positions": ours.pos_embed[:, 1:], "class_token": ours.cls_token + ours.pos_embed[:, :1]}
    exec(code, scope)
    assert torch.allclose(scope["tokens"], ours(images, order))


def test_one_random_order_is_a_function_of_the_seed():
    first, again, other = (random_order((5, 6), seed) for seed in (0, 0, 1))
    assert sorted(first.tolist()) == list(range(30))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_random_orders_are_a_function_of_seed_and_step_and_are_uniform():
    learner = RandomOrder((1, 3), "row", seed=2)
    orders = [tuple(learner.sample(step).tolist()) for step in range(6000)]
    assert orders[:50] == [tuple(RandomOrder((1, 3), seed=2).sample(step).tolist()) for step in range(50)]
    assert orders[:50] != [tuple(RandomOrder((1, 3), seed=3).sample(step).tolist()) for step in range(50)]
    counts = [orders.count(each) for each in itertools.permutations(range(3))]
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 20.5  # chi-square, 5 degrees, p = 0.001


def test_random_orders_are_tested_in_a_fixed_one_and_learn_nothing():
    learner = RandomOrder((3, 3), "spiral", seed=1)
    learner.sample(7)
    assert torch.equal(learner.order(), reorder.scan("spiral", 3, 3))
    assert torch.equal(learner.order(step=7), reorder.scan("spiral", 3, 3))
    assert not list(learner.parameters())
    assert learner.loss(torch.ones(4)) == 0
    assert (learner.stage(7), learner.temperature(7)) == ("random", 0.0)
    assert learner.metrics(7) == {}


def test_noise_alone_draws_the_orders_of_the_policy_until_that_has_moved():
    def drawn(learn):
        """Orders of 100 steps, the policy's from 10 up to 60, and the logits after each."""
        learner = OrderLearner(
            (3, 3),
            "spiral",
            total_steps=100,
            warmup_fraction=0.1,
            policy_fraction=0.5,
            estimator="scaled",
            learn=learn,
        )
        return learner, *take_steps(learner, torch.optim.AdamW(learner.parameters(), lr=0.1), 100)

    learner, orders, logits = drawn(learn=True)
    control, noise, still = drawn(learn=False)
    start = reorder.PlackettLuce.from_order(reorder.scan("spiral", 3, 3)).logits
    moved = [not torch.equal(each, start) for each in logits].index(True)
    assert 10 < moved < 60
    for step in range(moved + 1):
        assert torch.equal(noise[step], orders[step])
    assert any(not torch.equal(noise[step], orders[step]) for step in range(moved + 1, 60))
    assert all(torch.equal(each, start) for each in still)
    # The noise is no less for that: as many orders as steps, or nearly, and in the end the start again.
    assert len({tuple(order.tolist()) for order in noise[11:60]}) > 20
    assert torch.equal(noise[99], reorder.scan("spiral", 3, 3))
    assert not torch.equal(orders[99], noise[99])
    for step in range(100):
        assert control.temperature(step) == learner.temperature(step)
    control.sample(35)
    assert not control.loss(torch.rand(4)).requires_grad
    assert control.metrics(35)["baseline"] is None


def test_policy_metrics_against_the_entropy_over_all_orders():
    # From equal logits every order is equally likely, whatever the temperature: log 4! nats.
    learner = OrderLearner(
        (2, 2), "row", total_steps=100, warmup_fraction=0.1, policy_fraction=0.5, estimator="scaled"
    )
    learner.policy.logits.data.zero_()
    assert learner.metrics(5) == {
        "stage": "warm-up",
        "temperature": 0.0,
        "kendall_tau_from_start": 1.0,
        "slots_moved": 0.0,
        "entropy": 0.0,
        "baseline": None,
        "advantage": None,
    }
    learner.sample(35)
    assert learner.metrics(35)["entropy"] == pytest.approx(math.log(24))
    assert learner.metrics(80)["entropy"] == 0.0
    # At different logits the mean over steps of one temperature is the sum of -p log p over the 24 orders.
    learner.policy.logits.data = torch.tensor([0.3, -0.2, 0.0, 0.1])
    learner.temperature = lambda step: 0.2
    orders = torch.tensor(list(itertools.permutations(range(4))))
    log_probs = [
        sum(o - math.log(sum(math.exp(x) for x in z[i:])) for i, o in enumerate(z))
        for z in ((learner.policy.logits.detach()[order] / 0.2).tolist() for order in orders)
    ]
    truth = -sum(math.exp(each) * each for each in log_probs)
    estimates = [learner.metrics(step)["entropy"] for step in range(2000)]
    assert sum(estimates) / 2000 == pytest.approx(truth, rel=0.02)


def test_policy_metrics_hold_the_baseline_and_last_advantage_also_after_a_restart():
    learner = OrderLearner((2, 2), "row", total_steps=100, **ALL_POLICY)
    for step, loss in ((20, 2.0), (21, 3.0)):
        learner.sample(step)
        learner.loss(torch.full((4,), loss))
    # b = -2, then 0.99 * -2 + 0.01 * -3 = -2.01; A = -3 + 2.01.
    metrics = learner.metrics(21)
    assert metrics["baseline"] == pytest.approx(-2.01)
    assert metrics["advantage"] == pytest.approx(-0.99)
    copy = OrderLearner((2, 2), "row", total_steps=100, **ALL_POLICY)
    copy.load_state_dict(learner.state_dict())
    assert copy.metrics(21) == metrics


PROCESS = """
import sys, torch, reorder
import torch.distributed.nn  # before there is a group, which it would keep alive: see data/ranks.py
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
learner = reorder.OrderLearner(
    (3, 3),
    "row",
    total_steps=60,
    estimator=sys.argv[1],
    warmup_fraction=0,
    policy_fraction=1,
    image_width=2 if sys.argv[2] == "image" else None,
)
optimizer = torch.optim.AdamW(learner.parameters(), lr=0.1)
images = torch.Generator().manual_seed(rank)
weights = torch.linspace(0, 1, 9)[:, None]  # of the slots
for step in range(60):
    tokens, = learner.repeat(step, torch.rand(4, 9, 2, generator=images))
    read = reorder.read(tokens, learner.sample(step, len(tokens)))
    losses = (weights * read).mean((1, 2))
    loss = losses.mean() + learner.loss(losses)
    optimizer.zero_grad()
    if loss.requires_grad:
        loss.backward()
        optimizer.step()
every = [None, None]
policy = [parameter.tolist() for parameter in learner.parameters()]
torch.distributed.all_gather_object(every, (policy, learner.order().tolist()))
assert every[0] == every[1], "the processes differ"
assert every[0][1] != list(range(9)), "the policy has not moved"
if sys.argv[2] == "image":
    assert learner.policy.network.head.weight.abs().max() > 0, "the network has not moved"
torch.distributed.destroy_process_group()  # else its threads may outlive the interpreter, and abort it
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "policy"),
    [
        ("scaled", "global"),
        ("paired", "global"),
        ("straight-through", "global"),
        ("paired", "image"),
        ("straight-through", "image"),
    ],
)
def test_learners_of_several_processes_stay_alike_without_any_setting(tmp_path, estimator, policy):
    """Each process has other images, and so other losses; nothing but the learner brings them together."""
    (tmp_path / "loop.py").write_text(PROCESS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "loop.py", estimator, policy], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_losses_that_are_not_finite_teach_nothing(bad):
    learners = [OrderLearner((2, 2), "row", total_steps=10, **ALL_POLICY) for _ in "ab"]
    for learner in learners:
        learner.sample(4)
        learner.loss(torch.tensor([1.0, 2.0]))
    learners[0].sample(5)
    assert learners[0].loss(torch.tensor([1.0, bad])) == 0
    for learner in learners:
        learner.sample(6)
    after = [learner.loss(torch.tensor([3.0, 1.0])) for learner in learners]
    assert after[0] == after[1] != 0


def test_a_learner_can_be_saved_whole():
    learner = OrderLearner((2, 3), "spiral", total_steps=10, warmup_fraction=0.5)
    learner.sample(6)  # its logits' gradients are watched from here on
    file = io.BytesIO()
    torch.save(learner, file)
    file.seek(0)
    copy = torch.load(file, weights_only=False)
    assert torch.equal(copy.sample(3), learner.sample(3))


def test_the_noise_of_orders_is_not_that_of_dropout():
    """Else the reward would depend on an order through what was dropped, not through the reading."""
    for seed, step in ((0, 0), (0, 7), (3, 1)):
        assert step_generator(seed, step).initial_seed() != derive_seed(seed, step, 0)


@pytest.mark.parametrize(("start", "advantage"), [("first", 0.0), ("zero", -1.98)])
def test_the_configuration_says_where_the_baseline_starts(start, advantage):
    experiment = build(
        digits(),
        overrides=["order.estimator=scaled", f"order.baseline_start={start}", "order.warmup_fraction=0"],
    )
    learner = setup(experiment).learner
    learner.sample(1)
    learner.loss(torch.full((4,), 2.0))
    # Reward -2: a baseline that starts with it is -2; one that starts at zero is 0.01 * -2, so A = -1.98.
    assert learner.estimator.baseline.advantage.item() == pytest.approx(advantage)


def test_an_unknown_start_of_the_baseline_is_named():
    with pytest.raises(ValueError, match="unknown baseline_start 'one'; choose from first, zero"):
        OrderLearner((2, 2), total_steps=1, estimator="paper", baseline_start="one")


# Straight-through and paired learners


@pytest.mark.parametrize("estimator", ["straight-through", "paired"])
def test_a_learner_starts_at_its_start_with_noise_twice_as_wide_as_its_logits(estimator):
    stages = {"warmup_fraction": 0.05, "policy_fraction": 0.25}
    learner = OrderLearner((7, 7), "column", total_steps=1000, estimator=estimator, **stages)
    column = reorder.scan("column", 7, 7)
    assert torch.equal(learner.order(), column)
    # Gumbel noise at temperature 0.2 has a deviation of 0.2 * pi / sqrt(6); the logits are half as far apart.
    logits = learner.policy.logits.detach()
    assert logits.std().item() == pytest.approx(0.5 * 0.2 * math.pi / 6**0.5, rel=0.1)
    drawn = [learner.sample(step) for step in range(50, 300)]  # in the policy stage
    orders = torch.cat([getattr(each, "order", each).view(-1, 49) for each in drawn])
    taus = [kendall_tau(order, column) for order in orders]
    assert 0.2 < sum(taus[:20]) / 20 < 0.8  # mixed, but neither random nor nearly the start


def test_a_learner_starts_at_a_random_order_by_its_seed_unless_told_otherwise():
    learners = [OrderLearner((4, 4), total_steps=10, seed=seed) for seed in (3, 3, 4)]
    assert torch.equal(learners[0].order(), random_order((4, 4), 3))
    assert torch.equal(learners[0].order(), learners[1].order())
    assert not torch.equal(learners[0].order(), learners[2].order())


def test_warm_up_and_policy_read_in_random_orders_and_the_rest_in_the_one_found():
    stages = {"warmup_fraction": 0.05, "policy_fraction": 0.25, "warmup_order": "random"}
    learner = OrderLearner((3, 3), "spiral", total_steps=100, seed=1, **stages)
    assert [learner.stage(step) for step in (0, 4, 5, 29, 30)] == ["warm-up"] * 2 + ["policy"] * 2 + [
        "frozen"
    ]
    assert [learner.temperature(step) for step in (0, 5)] == [0.2, 0.2]
    assert learner.temperature(17) == pytest.approx(0.2 * 13 / 25)  # 12 of the 25 steps are over
    assert learner.temperature(30) == 0
    assert all(isinstance(learner.sample(step), torch.Tensor) for step in (0, 4, 30, 99))
    assert all(isinstance(learner.sample(step), Sampled) for step in (5, 29))
    assert len({tuple(learner.sample(step).tolist()) for step in range(5)}) > 3
    assert torch.equal(learner.sample(99), learner.order())
    fixed_warm_up = OrderLearner((3, 3), "spiral", total_steps=100, warmup_order="init")
    assert torch.equal(fixed_warm_up.sample(0), reorder.scan("spiral", 3, 3))


def test_the_width_of_straight_through_reading_falls_tenfold():
    learner = OrderLearner((3, 3), total_steps=1000, warmup_fraction=0, policy_fraction=1)
    assert learner.sample(0).width == pytest.approx(0.2 * 1.8)
    assert learner.sample(500).width == pytest.approx(0.2 * 1.8 / 10**0.5)
    assert learner.sample(999).width == pytest.approx(0.2 * 0.18, rel=0.01)


def find_the_informative_patches(estimator, seed=0, steps=600):
    """Which of 16 patches a leaky memory ends with, if four hold the class; no model is trained."""
    generator = torch.Generator().manual_seed(seed)
    informative = torch.randperm(16, generator=generator)[:4]
    learner = OrderLearner((4, 4), "row", total_steps=steps, estimator=estimator, seed=seed)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=learner.learning_rate)
    leak = 0.7 ** torch.arange(15, -1, -1.0)  # the memory's weight of each slot
    for step in range(steps):
        signs = torch.where(torch.rand(32, generator=generator) < 0.5, -1.0, 1.0)
        tokens = torch.randn(32, 16, 1, generator=generator)
        tokens[:, informative] += signs[:, None, None]
        tokens, signs = learner.repeat(step, tokens, signs)
        read = reorder.read(tokens, learner.sample(step, len(tokens)))
        losses = torch.nn.functional.softplus(-signs * (read[..., 0] * leak).sum(1))
        loss = losses.mean() + learner.loss(losses)
        optimizer.zero_grad()
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
    return set(learner.order()[-4:].tolist()), set(informative.tolist())


@pytest.mark.parametrize("estimator", ["straight-through", "paired"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_learner_puts_what_matters_where_the_memory_is(estimator, seed):
    found, truth = find_the_informative_patches(estimator, seed)
    assert len(found & truth) >= 3  # by chance one of them


def test_the_learning_rate_lets_a_logit_move_by_a_few_temperatures_however_long_the_run():
    for steps in (100, 10_000):
        learner = OrderLearner((3, 3), total_steps=steps)
        policy_steps = learner.stop_step - learner.start_step
        assert learner.learning_rate * policy_steps == pytest.approx(REACH * 0.2)
    # the paper's 1e-4, in 100 epochs of 250 steps
    paper = OrderLearner((3, 3), total_steps=25_000, estimator="paper")
    assert paper.learning_rate == pytest.approx(1e-4)


def test_pairs_read_a_part_of_the_images_in_each_order():
    stages = {"warmup_fraction": 0.3, "policy_fraction": 0.2}
    learner = OrderLearner((2, 2), total_steps=100, estimator="paired", orders_per_image=2, **stages)
    images, labels = torch.arange(8.0), torch.arange(8)
    assert learner.repeat(4, images, labels)[0] is images  # warm-up
    repeated, named = learner.repeat(40, images, labels)
    assert repeated.tolist() == [0, 1, 2, 3] * 2 == named.tolist()
    orders = learner.sample(40, len(repeated))
    assert orders.shape == (8, 4)
    assert (orders[:4] == orders[0]).all()
    assert (orders[4:] == orders[4]).all()
    assert torch.equal(learner.sample(40), orders[[0, 4]])
    with pytest.raises(ValueError, match="a batch of 7 images cannot be read in 2 orders each"):
        learner.repeat(40, images[:7])


@pytest.mark.parametrize("estimator", ["straight-through", "paired"])
def test_equal_noise_draws_as_much_and_learns_nothing(estimator):
    stages = {"warmup_fraction": 0.05, "policy_fraction": 0.25, "warmup_order": "random", "learn": False}
    learner = OrderLearner((3, 3), "spiral", total_steps=100, estimator=estimator, **stages)
    order = learner.sample(10)
    assert isinstance(order, torch.Tensor)
    assert order.shape == (9,)
    assert not learner.loss(torch.rand(4)).requires_grad
    drawn = [learner.sample(step) for step in range(25)]
    assert len({tuple(order.tolist()) for order in drawn}) > 20
    assert torch.equal(learner.sample(99), reorder.scan("spiral", 3, 3))


def test_slots_moved_is_how_far_patches_are_from_where_they_started():
    learner = OrderLearner((1, 3), "row", total_steps=10)
    learner.policy.logits.data = torch.tensor([0.0, 1.0, 2.0])  # reversed: moved by 2, 0 and 2 slots
    assert learner.metrics(9)["slots_moved"] == pytest.approx(4 / 3)
    assert learner.metrics(9)["kendall_tau_from_start"] == pytest.approx(-1)
    learner.sample(9)
    assert learner.metrics() == learner.metrics(9)


# The authors' release


def released(**changes):
    """Six patches, policy stage from step 4 up to 16, epochs of 4 steps."""
    settings = {"warmup_fraction": 0.2, "policy_fraction": 0.6, "estimator": "paper"} | changes
    return OrderLearner((2, 3), torch.tensor([2, 0, 1, 4, 5, 3]), total_steps=20, **settings)


def test_inverse_logits_start_where_each_patch_says_which_slot_it_had():
    learner = released(inverse_logits=True, warmup_order="init")
    # The release's logits are ramp[scan]: patch 1 has the value of slot 0, patch 2 of slot 1, and so on.
    ramp = [0.0, -0.2, -0.4, -0.6, -0.8, -1.0]
    assert learner.policy.logits.tolist() == pytest.approx([ramp[slot] for slot in (2, 0, 1, 4, 5, 3)])
    assert learner.order().tolist() == learner.start.tolist() == [1, 2, 0, 5, 3, 4]
    assert learner.sample(0).tolist() == [2, 0, 1, 4, 5, 3]  # the warm-up reads the scan itself
    assert released(inverse_logits=True).sample(0).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_temperature_that_moves_on_by_the_epoch_learns_in_its_first_one_too():
    learner, usual = released(temperature_every=4), released()
    assert [learner.temperature(step) for step in (3, 4, 7, 8, 12, 15, 16)] == pytest.approx(
        [0, 0, 0, 0.2 / 6, 0.4 / 6, 0.4 / 6, 0]
    )
    losses, gradients = torch.full((3,), 2.0), {}
    for name, each in (("release", learner), ("paper", usual)):
        each.estimator.baseline.started.fill_(True)  # from zero, so that there is an advantage
        each.sample(4)
        loss = each.loss(losses)
        gradients[name] = torch.autograd.grad(loss, each.policy.logits)[0] if loss.requires_grad else None
    assert gradients["paper"] is None
    # A = -2 - 0.01 * -2 = -1.98; the gradient of log P: 1 less a patch's share in every choice it is in.
    logits, order, expected = usual.policy.logits.tolist(), [2, 0, 1, 4, 5, 3], [1.0] * 6
    for slot in range(6):
        total = sum(math.exp(logits[patch]) for patch in order[slot:])
        for patch in order[slot:]:
            expected[patch] -= math.exp(logits[patch]) / total
    assert gradients["release"].tolist() == pytest.approx([1.98 * value for value in expected], rel=1e-5)


def test_after_the_policy_stage_a_temperature_by_the_epoch_teaches_nothing():
    learner = released(temperature_every=4)
    for step in (3, 16):
        learner.sample(step)
        assert not learner.loss(torch.ones(3)).requires_grad


@pytest.mark.parametrize(("every", "estimator"), [(4, "scaled"), (0, "paper"), (-1, "paper")])
def test_a_temperature_by_the_epoch_is_for_algorithm_1(every, estimator):
    with pytest.raises(ValueError, match=f"^temperature_every must be 1, .* got {every} for {estimator}$"):
        released(temperature_every=every, estimator=estimator)
