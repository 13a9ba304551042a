"""Training: a classifier next to the order its patches are read in, as in Algorithm 1 of the paper."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from reorder import curriculum
from reorder import order as orders
from reorder.classifier import Classifier, create_model
from reorder.config import Experiment
from reorder.data import Loader, load_dataset
from reorder.display import Display, Progress
from reorder.evaluate import Evaluation, bootstrap_sem, evaluate
from reorder.learner import FixedOrder, OrderLearner, as_order
from reorder.run_dir import RunDir
from reorder.scans import SCANS


@dataclass
class Run:
    """Everything a run consists of while it is under way."""

    experiment: Experiment
    loader: Loader
    model: Classifier
    learner: OrderLearner | FixedOrder
    optimizer: torch.optim.Optimizer
    initial: Tensor  # the order (N,) the run started from
    epoch: int = 0
    seconds: float = 0.0  # spent on training steps
    metrics: list[dict[str, Any]] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)  # of the policy, (N,) after each epoch

    @property
    def total_steps(self) -> int:
        return self.experiment.train.epochs * self.loader.steps_per_epoch


def setup(experiment: Experiment) -> Run:
    """Data, model, learner and optimizer of an experiment; a function of its seed."""
    torch.manual_seed(experiment.train.seed)
    for key in experiment.model.options:
        if key in ("name", "size", "image_size", "patch_size", "channels", "classes"):
            raise ValueError(
                f"model.options.{key} is no option of a backbone; use model.{key}, or the data's"
            )
    settings, data = experiment.train, load_dataset(experiment.data, experiment.model.image_shape)
    model = create_model(
        experiment.model.name,
        experiment.model.size,
        experiment.model.image_shape,
        experiment.model.patch_size,
        data.channels,
        len(data.classes),
        **experiment.model.options,
    )
    loader = Loader(data, experiment.data, settings.batch_size, settings.seed)
    initial = initial_order(experiment.order.scan, model.grid)
    learner = _learner(experiment, model.grid, initial, settings.epochs * loader.steps_per_epoch)
    groups: list[dict[str, Any]] = [
        {"params": list(model.parameters())},
        {"params": list(learner.parameters()), "lr": experiment.order.learning_rate},  # constant
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, 0.999), weight_decay=settings.weight_decay
    )
    run = Run(experiment, loader, model, learner, optimizer, initial)
    run.logits.append(_logits(learner))
    return run


def initial_order(name: str, grid: tuple[int, int]) -> Tensor:
    """The order (N,) that `order.scan` names: a scan, or an order file."""
    if name.endswith(".json"):
        return orders.load(name, grid).order
    if name not in SCANS:
        choices = ", ".join(SCANS)
        raise ValueError(
            f"order.scan: unknown scan {name!r}; choose from {choices}, or an order file (*.json)"
        )
    return as_order(name, grid)


def _learner(
    experiment: Experiment, grid: tuple[int, int], initial: Tensor, total_steps: int
) -> OrderLearner | FixedOrder:
    settings = experiment.order
    if settings.policy == "none":
        return FixedOrder(grid, initial)
    return OrderLearner(
        grid,
        initial,
        total_steps=total_steps,
        warmup_fraction=settings.warmup_fraction,
        policy_fraction=settings.policy_fraction,
        peak_temperature=settings.temperature,
        estimator=settings.estimator,
        warmup_order=settings.warmup_order,
        seed=experiment.train.seed,
    )


def _logits(learner: OrderLearner | FixedOrder) -> Tensor:
    """The policy's logits (N,); for a fixed order, none (0,)."""
    return learner.policy.logits.detach().clone() if isinstance(learner, OrderLearner) else torch.empty(0)


def train(experiment: Experiment, directory: RunDir, display: Display) -> dict[str, Any]:
    """Train one experiment into its run directory, from where it stopped if it was begun; its summary."""
    directory.check(experiment)
    if (finished := directory.summary()) is not None:
        display.say(f"{directory.path} is finished already")
        return finished
    run = setup(experiment)
    directory.create(experiment)
    restore(run, directory)
    if run.epoch:
        display.say(f"{directory.path} continues after epoch {run.epoch}")
    scan = Path(experiment.order.scan).stem
    title = f"{scan} fixed" if experiment.order.policy == "none" else f"learned from {scan}"
    with display.training(title, experiment.train.epochs, run.loader.steps_per_epoch, run.epoch) as progress:
        while run.epoch < experiment.train.epochs:
            line = train_epoch(run, progress)
            run.metrics.append(line)
            run.logits.append(_logits(run.learner))
            run.epoch += 1
            save(run, directory)
            progress.epoch(line)
    return finish(run, directory)


def train_epoch(run: Run, progress: Progress) -> dict[str, Any]:
    """One epoch of Algorithm 1 and a look at the validation images; its line of metrics."""
    settings, model, learner = run.experiment.train, run.model, run.learner
    warmup_steps = round(settings.warmup_epochs * run.loader.steps_per_epoch)
    step = run.epoch * run.loader.steps_per_epoch
    model.train()
    began, total_loss, right, seen = time.perf_counter(), 0.0, 0, 0
    for images, labels in run.loader.epoch(run.epoch):
        run.optimizer.param_groups[0]["lr"] = curriculum.learning_rate(
            step, warmup_steps, run.total_steps, settings.learning_rate
        )
        order = learner.sample(step)
        logits = model(images, order)
        losses = F.cross_entropy(logits, labels, reduction="none")
        loss = losses.mean() + learner.loss(losses)
        run.optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), settings.clip)
        run.optimizer.step()

        total_loss += losses.sum().item()
        right += int((logits.argmax(1) == labels).sum())
        seen += len(labels)
        step += 1
        progress.step(
            learner.stage(step - 1),
            learner.temperature(step - 1),
            total_loss / seen,
            right / seen,
            seen / (time.perf_counter() - began),
        )
    elapsed = time.perf_counter() - began
    run.seconds += elapsed
    validation = evaluate(model, _validation(run), learner.order(step - 1))
    return {
        "epoch": run.epoch + 1,
        "step": step,
        "stage": learner.stage(step - 1),
        "temperature": learner.temperature(step - 1),
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        "loss": total_loss / seen,
        "top1": right / seen,
        "validation_loss": validation.loss,
        "validation_top1": validation.top1,
        "validation_top5": validation.top5,
        "kendall_tau_from_start": orders.kendall_tau(learner.order(), run.initial),
        "images_per_second": seen / elapsed,
    }


def _validation(run: Run) -> Iterator[tuple[Tensor, Tensor]]:
    return ((images, labels) for _, images, labels in run.loader.validate())


def save(run: Run, directory: RunDir) -> None:
    """A checkpoint first, then the files people read, which a resumed run writes again."""
    tensors = {f"model.{name}": tensor for name, tensor in run.model.state_dict().items()}
    tensors |= {f"learner.{name}": tensor for name, tensor in run.learner.state_dict().items()}
    state = {
        "epoch": run.epoch,
        "seconds": run.seconds,
        "metrics": run.metrics,
        "logits": run.logits,
        "optimizer": run.optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    directory.save_checkpoint(run.epoch, tensors, state)
    directory.write_metrics(run.metrics)
    directory.write_policy(run.logits, run.initial)


def restore(run: Run, directory: RunDir) -> None:
    """Bring a run to the state of its directory's checkpoint, if it has one."""
    checkpoint = directory.load_checkpoint()
    if checkpoint is None:
        return
    tensors, state = checkpoint
    for prefix, module in (("model.", run.model), ("learner.", run.learner)):
        module.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
    run.optimizer.load_state_dict(state["optimizer"])
    run.epoch, run.seconds = state["epoch"], state["seconds"]
    run.metrics, run.logits = state["metrics"], state["logits"]
    torch.set_rng_state(state["random"])


def finish(run: Run, directory: RunDir) -> dict[str, Any]:
    """Evaluate with the order found and write the results."""
    order = run.learner.order(run.total_steps - 1)
    result = evaluate(run.model, _validation(run), order)
    summary = summarise(run, result, order)
    directory.write_correct(result.correct)
    directory.write_metrics(run.metrics)
    directory.write_policy(run.logits, run.initial)
    orders.save(
        directory.path / "order.json",
        order,
        run.model.grid,
        {key: summary[key] for key in ("model", "data", "scan", "policy", "epochs", "seed", "top1")},
    )
    directory.write_summary(summary)
    return summary


def summarise(run: Run, result: Evaluation, order: Tensor) -> dict[str, Any]:
    experiment = run.experiment
    trained = run.epoch * run.loader.steps_per_epoch * experiment.train.batch_size
    return {
        "model": experiment.model.name,
        "size": experiment.model.size,
        "data": experiment.data.name,
        "grid": list(run.model.grid),
        "scan": experiment.order.scan,
        "policy": experiment.order.policy,
        "epochs": experiment.train.epochs,
        "seed": experiment.train.seed,
        "top1": result.top1,
        "top1_sem": bootstrap_sem(
            result.correct, generator=torch.Generator().manual_seed(experiment.train.seed)
        ),
        "top5": result.top5,
        "loss": result.loss,
        "validation_images": len(result.correct),
        "kendall_tau_from_start": orders.kendall_tau(order, run.initial),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "images_per_second": trained / run.seconds,
        "seconds": run.seconds,
        "order": order.tolist(),
    }


def train_with_comparison(experiment: Experiment, directory: RunDir, display: Display) -> list[RunDir]:
    """Train the experiment and, with one seed and budget, row-major and its initial order held fixed."""
    alone = replace(experiment, train=replace(experiment.train, compare=False))
    runs = [(experiment, directory)]
    if experiment.order.policy != "none":
        for scan in dict.fromkeys([experiment.order.scan, "row"]):
            fixed = replace(alone, order=replace(experiment.order, scan=scan, policy="none"))
            name = "fixed-start" if scan.endswith(".json") else f"fixed-{scan}"
            runs.insert(0, (fixed, RunDir(directory.path / name)))
    directory.check(experiment)
    for each, where in reversed(runs):
        train(each, where, display)
    return [where for _, where in runs]
