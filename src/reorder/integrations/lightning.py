"""For Lightning: a callback that has a learner attached to a model inside a LightningModule learn with it.

self.handle = reorder.attach(self.model, reorder.OrderLearner((14, 14), total_steps=steps))
...
Trainer(max_steps=steps, callbacks=[OrderCallback(module.handle)]).fit(module, batches)
"""

from typing import Any

from reorder.integrations.learning import Learning
from reorder.models.attach import Handle

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise ImportError(
        "reorder.integrations.lightning needs Lightning: pip install 'reorder[lightning]'"
    ) from None


class OrderCallback(Callback):
    """Advances an attached learner by the Trainer's steps, logs it, and keeps its state in checkpoints.

    A learner by reward also needs the losses of single images: in the module's `training_step`, the loss is
    `losses.mean() + self.handle.loss(losses)`, which adds nothing for a straight-through learner.
    """

    def __init__(self, handle: Handle):
        self.learning = Learning(handle)
        self._done = 0  # steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        parameters = [parameter for group in groups for parameter in group["params"]]
        self.learning.start(parameters, trainer.estimated_stepping_batches)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.learning.handle.step(trainer.global_step)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.learning.step(getattr(trainer.precision_plugin, "scaler", None))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._done = trainer.global_step
        every = getattr(trainer, "log_every_n_steps", 0)
        if every and self._done % every == 0:
            pl_module.log_dict(self.learning.numbers())

    def state_dict(self) -> dict[str, Any]:
        return self.learning.state(self._done)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._done = state_dict["step"]
        self.learning.load(state_dict)
