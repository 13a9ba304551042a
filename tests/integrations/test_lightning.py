"""Lightning trains a model, and the callback the order that it reads in."""

import pytest
import torch
from hand_loop import BATCH, IMAGES, LABELS, STEPS, logits_by_hand, made
from torch.nn.functional import cross_entropy

lightning = pytest.importorskip("lightning.pytorch")

from reorder.integrations.lightning import OrderCallback  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # it trains, and Lightning warns a lot


class Module(lightning.LightningModule):
    """A module that has an attached model, with a learning rate that falls; 0 leaves the model as it is."""

    def __init__(self, estimator="straight-through", rate=0.0, shares=False):
        super().__init__()
        self.model, _, self.handle = made(estimator)
        self.rate, self.shares = rate, shares
        self.validated = []

    def training_step(self, batch, _):
        images, labels = batch
        losses = cross_entropy(self.model(images), labels, reduction="none")
        return losses.mean() + self.handle.loss(losses)

    def validation_step(self, batch, _):
        self.validated.append(self.handle.order().tolist())
        self.log("early", abs(float(self.trainer.global_step) - 12))
        self.model(batch[0])

    def configure_optimizers(self):
        parameters = [*self.model.parameters(), *(self.handle.parameters() if self.shares else [])]
        optimizer = torch.optim.AdamW(parameters, lr=self.rate, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.01, STEPS)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def batches(parts=1):
    data = torch.utils.data.TensorDataset(IMAGES, LABELS)
    return torch.utils.data.DataLoader(data, batch_size=BATCH // parts)


def trainer_of(directory, *callbacks, **options):
    settings = {"max_steps": STEPS, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    settings |= {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 4}
    return lightning.Trainer(default_root_dir=directory, callbacks=[*callbacks], **{**settings, **options})


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_a_learner_learns_as_in_a_loop_written_by_hand_whatever_the_schedule(tmp_path, estimator, parts):
    module = Module(estimator)
    callback = OrderCallback(module.handle)
    options = {"accumulate_grad_batches": parts, "gradient_clip_val": 1e-3}
    trainer_of(tmp_path, callback, **options).fit(module, batches(parts))
    learner = module.handle.learner
    assert torch.allclose(learner.policy.logits, logits_by_hand(estimator, parts), atol=1e-4)
    assert learner.order().tolist() != list(range(16))
    assert not any("logits" in key for key in module.state_dict())


def test_the_model_learns_meanwhile_and_the_metrics_are_logged(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    module = Module(rate=0.01)
    before = cross_entropy(module.model.eval()(IMAGES), LABELS).item()
    logger = CSVLogger(tmp_path)
    trainer_of(tmp_path, OrderCallback(module.handle), logger=logger).fit(module.train(), batches())
    assert cross_entropy(module.model.eval()(IMAGES), LABELS).item() < before / 2
    lines = [line for line in logger.experiment.metrics if "order/stage" in line] or _read(logger)
    assert [float(line["order/stage"]) for line in lines] == [0, 1, 1, 1, 2, 2]
    assert float(lines[-1]["order/slots_moved"]) > 0
    assert {"order/temperature", "order/kendall_tau_from_start", "order/entropy"} <= set(lines[0])


def _read(logger):
    import csv
    from pathlib import Path

    with open(Path(logger.log_dir) / "metrics.csv") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_been_stopped(tmp_path, estimator):
    whole = Module(estimator, rate=0.01)
    saves = lightning.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=10, save_top_k=-1)
    options = {"enable_checkpointing": True}
    trainer_of(tmp_path, OrderCallback(whole.handle), saves, **options).fit(whole, batches())
    again = Module(estimator, rate=0.01)
    path = next(tmp_path.glob("*step=10.ckpt"))
    trainer_of(tmp_path, OrderCallback(again.handle)).fit(again, batches(), ckpt_path=path)
    assert torch.equal(again.handle.learner.policy.logits, whole.handle.learner.policy.logits)
    assert torch.equal(again.model.head.weight, whole.model.head.weight)


def test_an_older_checkpoint_is_validated_in_its_own_order(tmp_path):
    module = Module(rate=0.01)
    saves = lightning.callbacks.ModelCheckpoint(tmp_path, monitor="early", mode="min")
    options = {"enable_checkpointing": True, "check_val_every_n_epoch": 1}
    trainer = trainer_of(tmp_path, OrderCallback(module.handle), saves, **options)
    trainer.fit(module, batches(), batches())
    at_best, at_end = module.validated[12], module.validated[-1]  # after the check before training
    assert at_best != at_end
    trainer.validate(module, batches(), ckpt_path="best")
    assert module.validated[-1] == at_best


def test_mistakes_are_told(tmp_path):
    module = Module(shares=True)
    with pytest.raises(ValueError, match="leave its parameters out of yours"):
        trainer_of(tmp_path, OrderCallback(module.handle)).fit(module, batches())
    module = Module()
    with pytest.warns(UserWarning, match="ends after 3 steps, before the order is found"):
        trainer_of(tmp_path, OrderCallback(module.handle), max_steps=3).fit(module, batches())
    module.handle.freeze()
    module.handle.remove()
