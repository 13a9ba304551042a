"""What the callbacks share: gradients that were scaled, or are not finite."""

import pytest
import torch
from external_models import WIDTH, CausalReader
from hand_loop import made

import reorder
from reorder.integrations.learning import Learning


class Scaler:
    """A GradScaler that has scaled the loss by 1024."""

    def get_scale(self):
        return 1024.0


def test_gradients_are_scaled_back():
    moved = []
    for scale in (1, 1024):
        _, learner, handle = made()
        learning = Learning(handle)
        # Adam hardly sees the scale of its first gradient, but that of the second compared with it.
        for factor, gradient in ((1, 1.0), (scale, 0.25)):
            learner.policy.logits.grad = torch.full((16,), factor * gradient)
            learning.step(Scaler() if factor > 1 else None)
        moved.append(learner.policy.logits.detach().clone())
        assert learner.policy.logits.grad is None
    assert torch.equal(*moved)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_gradients_that_are_not_finite_move_nothing(bad):
    _, learner, handle = made()
    before = learner.policy.logits.detach().clone()
    learner.policy.logits.grad = torch.tensor([bad] + [1.0] * 15)
    Learning(handle).step()
    assert torch.equal(learner.policy.logits, before)
    assert learner.policy.logits.grad is None


@pytest.mark.parametrize("bad", [1.0, float("nan")])
def test_a_network_is_scaled_back_and_guarded_too(bad):
    """The gradients of a policy with a network: one number that is not finite stops all of them."""
    learner = reorder.OrderLearner((4, 4), total_steps=10, image_width=WIDTH)
    handle = reorder.attach(CausalReader(), learner, at="recurrent", prefix=1)
    learning, head = Learning(handle), learner.policy.network.head
    head.weight.grad = torch.full_like(head.weight, 1024.0)
    head.bias.grad = torch.tensor([bad])
    gradient, before = head.weight.grad, head.weight.detach().clone()
    learning.step(Scaler())
    assert (gradient == 1).all()
    assert torch.equal(head.weight, before) == (bad != 1.0)
    assert head.weight.grad is None


def test_a_fixed_order_needs_no_callback():
    model, _, handle = made()
    handle.remove()
    fixed = type(handle)(model, torch.arange(16), handle._place, 1, False)
    with pytest.raises(ValueError, match="needs no callback"):
        Learning(fixed)
