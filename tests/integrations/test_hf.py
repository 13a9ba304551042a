"""Hugging Face's Trainer trains a model, and the callback the order that it reads in."""

import subprocess
import sys
import warnings

import pytest
import torch
from hand_loop import BATCH, IMAGES, LABELS, STEPS, logits_by_hand, made
from torch import nn
from torch.nn.functional import cross_entropy

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from reorder.integrations.hf import OrderCallback  # noqa: E402

pytestmark = pytest.mark.slow  # it trains


class Labelled(nn.Module):
    """A model as the Trainer calls it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images, labels=None):
        logits = self.model(images)
        return (
            {"logits": logits}
            if labels is None
            else {"loss": cross_entropy(logits, labels), "logits": logits}
        )


def trainer_of(directory, model, rate=0.0, **options):
    settings = {
        "per_device_train_batch_size": BATCH,
        "max_steps": STEPS,
        "learning_rate": rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": 5,
        "weight_decay": 0.1,
        "logging_steps": 4,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "remove_unused_columns": False,
        "disable_tqdm": True,
    }
    arguments = transformers.TrainingArguments(str(directory), **{**settings, **options.pop("arguments", {})})
    data = [{"images": image, "labels": label} for image, label in zip(IMAGES, LABELS, strict=True)]
    return transformers.Trainer(Labelled(model), arguments, train_dataset=data, **options)


@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_a_learner_learns_as_in_a_loop_written_by_hand_whatever_the_schedule(tmp_path, estimator):
    model, learner, handle = made(estimator)
    trainer = trainer_of(tmp_path, model)
    OrderCallback(handle).add_to(trainer)
    trainer.train()
    assert torch.allclose(learner.policy.logits, logits_by_hand(estimator), atol=1e-4)
    assert learner.order().tolist() != list(range(16))
    assert learner.metrics()["stage"] == "frozen"


@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_gradients_are_accumulated_for_the_learner_too(tmp_path, estimator):
    model, learner, handle = made(estimator)
    parts = {"per_device_train_batch_size": BATCH // 2, "gradient_accumulation_steps": 2}
    trainer = trainer_of(tmp_path, model, arguments=parts)
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
    OrderCallback(handle).add_to(trainer)
    trainer.train()
    assert torch.allclose(learner.policy.logits, logits_by_hand(estimator, parts=2), atol=1e-4)


def test_the_model_learns_meanwhile_and_the_metrics_are_logged_to_all(tmp_path):
    seen = []

    class Tracker(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            seen.append(dict(logs))

    model, _, handle = made()
    trainer = trainer_of(tmp_path, model, rate=0.01, callbacks=[Tracker()])
    OrderCallback(handle).add_to(trainer)
    trainer.train()
    history = [line for line in trainer.state.log_history if "loss" in line]
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert [line["order/stage"] for line in history] == [0, 1, 1, 1, 2, 2]
    assert history[-1]["order/slots_moved"] > 0
    assert {"order/temperature", "order/kendall_tau_from_start", "order/entropy"} <= set(history[0])
    assert "order/gradient_signal_to_noise" in history[3]
    assert [line["order/stage"] for line in seen if "loss" in line] == [0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("estimator", ["straight-through", "scaled"])
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_been_stopped(tmp_path, estimator):
    saves = {"save_strategy": "steps", "save_steps": 10}
    whole, learner, handle = made(estimator)
    trainer = trainer_of(tmp_path, whole, rate=0.01, arguments=saves)
    OrderCallback(handle).add_to(trainer)
    trainer.train()
    for restores in (False, True):
        saves["restore_callback_states_from_checkpoint"] = restores
        model, again, handle = made(estimator)
        trainer = trainer_of(tmp_path / "again", model, rate=0.01, arguments=saves)
        OrderCallback(handle).add_to(trainer)
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
        assert torch.equal(again.policy.logits, learner.policy.logits)
        assert torch.equal(model.head.weight, whole.head.weight)


def test_with_the_best_weights_comes_their_order(tmp_path):
    best = {"save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 4}
    best |= {"load_best_model_at_end": True, "metric_for_best_model": "early", "greater_is_better": False}
    model, learner, handle = made()
    steps = iter(range(100))
    trainer = trainer_of(
        tmp_path, model, rate=0.01, eval_dataset=[{"images": IMAGES[0], "labels": LABELS[0]}],
        arguments=best, compute_metrics=lambda _: {"early": abs(next(steps) - 2)},
    )  # fmt: skip
    found = {}

    class Watcher(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            found[state.global_step] = learner.policy.logits.detach().clone()

    OrderCallback(handle).add_to(trainer)
    trainer.add_callback(Watcher())
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-12")
    assert torch.equal(learner.policy.logits, found[12])
    assert not torch.equal(found[12], found[STEPS])


def test_mistakes_are_told(tmp_path):
    model, _, handle = made()
    callback = OrderCallback(handle)
    optimizer = torch.optim.AdamW([*model.parameters(), *handle.parameters()])
    trainer = trainer_of(tmp_path, model, callbacks=[callback], optimizers=(optimizer, None))
    with pytest.raises(ValueError, match="leave its parameters out of yours"):
        trainer.train()
    short = trainer_of(tmp_path, model, callbacks=[callback], arguments={"max_steps": 3})
    with pytest.warns(UserWarning, match=r"ends after 3 steps, before the order is found: .*total_steps=3"):
        short.train()
    handle.remove()
    model, _, handle = made("scaled")
    own = trainer_of(tmp_path, model, compute_loss_func=lambda *_: None)
    with pytest.raises(ValueError, match=r"add handle.loss\(losses\) to your compute_loss_func"):
        OrderCallback(handle).add_to(own)
    handle.remove()
    model, _, handle = made("paired")
    with pytest.raises(ValueError, match="several times over"):
        OrderCallback(handle)


def test_evaluation_teaches_a_learner_by_reward_nothing(tmp_path):
    model, learner, handle = made("scaled")
    callback = OrderCallback(handle)
    handle.step(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(IMAGES)
    baseline = learner.estimator.baseline
    with torch.no_grad():
        loss = callback.loss({"logits": model.eval()(IMAGES)}, LABELS)
        assert loss.item() == pytest.approx(cross_entropy(model(IMAGES), LABELS).item())
    assert not baseline.started


@pytest.mark.parametrize(("package", "extra"), [("transformers", "hf"), ("lightning", "lightning")])
def test_without_the_library_the_import_says_what_to_install(package, extra):
    text = f"import sys; sys.modules['{package}'] = None; import reorder.integrations.{extra}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"pip install 'reorder[{extra}]'")
