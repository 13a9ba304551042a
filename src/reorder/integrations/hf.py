"""For Hugging Face's Trainer: a callback that has a learner attached to its model learn with it.

handle = reorder.attach(model, reorder.OrderLearner((14, 14), total_steps=trainer_steps))
trainer = Trainer(model, arguments, train_dataset=images)
OrderCallback(handle).add_to(trainer)
trainer.train()
handle.order()
"""

import base64
import io
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reorder.integrations.learning import Learning, with_reward
from reorder.models.attach import Handle

try:
    from transformers import Trainer, TrainerCallback
except ImportError:
    raise ImportError(
        "reorder.integrations.hf needs transformers and accelerate: pip install 'reorder[hf]'"
    ) from None

KEY = "reorder"  # in trainer_state.json, which is part of every checkpoint


class OrderCallback(TrainerCallback):
    """Advances an attached learner by the Trainer's steps, logs it, and keeps its state in checkpoints.

    Given as one of the Trainer's `callbacks` it does all that, but for what is sent to trackers such as
    TensorBoard, which are asked before it; `add_to(trainer)` puts it first. A learner by reward also needs
    the losses of single images: `add_to` gives the Trainer `callback.loss` as its compute_loss_func.
    """

    def __init__(self, handle: Handle):
        self.learning = Learning(handle)

    def add_to(self, trainer: Trainer) -> "OrderCallback":
        """Become the first callback of a Trainer, and its loss if the learner needs rewards."""
        if self.learning.learner.reinforces:
            if trainer.compute_loss_func is not None:
                raise ValueError("add handle.loss(losses) to your compute_loss_func, and give callbacks=")
            trainer.compute_loss_func = self.loss
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Cross-entropy of logits (B, classes), with the reward of the order: a compute_loss_func."""
        losses = F.cross_entropy(outputs["logits"], labels, reduction="none")
        share = 1 if num_items_in_batch is None else len(losses) / num_items_in_batch
        return with_reward(self.learning.handle, losses) * share

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        groups = given["optimizer"].param_groups if given.get("optimizer") is not None else []
        self.learning.start([each for group in groups for each in group["params"]], state.max_steps)
        if KEY in state.stateful_callbacks:
            self.learning.load(_unpacked(state.stateful_callbacks[KEY]))
        elif state.global_step > 0:
            raise ValueError(f"the checkpoint of step {state.global_step} has no state of an order learner")

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.learning.handle.step(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.learning.step(getattr(given.get("optimizer"), "scaler", None))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        state.stateful_callbacks[KEY] = _packed(self.learning.state(state.global_step))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        if logs is not None and "loss" in logs:
            numbers = self.learning.numbers()
            logs.update(numbers)
            state.log_history[-1].update(numbers)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Where the Trainer went back to its best weights, go back to the order they were trained in."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            text = Path(state.best_model_checkpoint, "trainer_state.json").read_text()
            self.learning.load(_unpacked(json.loads(text)["stateful_callbacks"][KEY]))


def _packed(state: dict[str, Any]) -> str:
    """A state with tensors as text."""
    file = io.BytesIO()
    torch.save(state, file)
    return base64.b64encode(file.getvalue()).decode()


def _unpacked(text: str) -> dict[str, Any]:
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
