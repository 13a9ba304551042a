"""A run while it is under way: what it consists of, how it is set up, saved and restored."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from reorder import order as orders
from reorder.classifier import create_model
from reorder.config import Experiment
from reorder.data import Loader, load_dataset
from reorder.display import Display
from reorder.distributed import ALONE, World, mean
from reorder.evaluate import Evaluation
from reorder.learner import FixedOrder, OrderLearner, RandomOrder, as_order, random_order
from reorder.run_dir import Checkpoint, Moment, RunDir, fitting
from reorder.scans import SCANS

MOST_SKIPPED = 10  # steps in a row that are not finite
PLAIN_STATE = ("step", "seconds", "skipped", "skipped_in_a_row", "metrics", "moments")
MOMENTS = 40  # of the policy stage that are kept, to watch the policy learn


@dataclass
class SoFar:
    """Sums over the steps of an epoch, on one rank."""

    loss: float = 0.0
    right: float = 0
    seen: float = 0
    began: float = 0.0  # seconds of training before the epoch

    def add(self, losses: Tensor, right: int) -> None:
        self.loss, self.right, self.seen = (
            self.loss + losses.sum().item(),
            self.right + right,
            self.seen + len(losses),
        )


@dataclass
class Run:
    """Everything a run consists of while it is under way."""

    experiment: Experiment
    world: World
    loader: Loader
    model: nn.Module
    learner: OrderLearner | FixedOrder
    optimizer: torch.optim.Optimizer
    initial: Tensor  # the order (N,) the run started from
    prior: dict[str, Any] | None  # what chose it, if order.scan=prior
    scaler: torch.amp.GradScaler
    ema: AveragedModel | None = None
    step: int = 0
    seconds: float = 0.0  # spent on training steps
    earlier: float = 0.0  # seconds in all, before this process
    since: float = field(default_factory=time.perf_counter)
    skipped: int = 0
    skipped_in_a_row: int = 0
    validation: Evaluation | None = None  # at the end of the last epoch
    so_far: SoFar = field(default_factory=SoFar)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)  # the policy through the run

    @property
    def total_steps(self) -> int:
        return self.experiment.train.epochs * self.loader.steps_per_epoch

    @property
    def wall_seconds(self) -> float:
        """Since the run began, but for pauses and what was lost with them."""
        return self.earlier + time.perf_counter() - self.since

    def autocast(self) -> AbstractContextManager:
        precision = self.experiment.train.precision
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self.world.device.type, getattr(torch, precision))


def unwrapped(model: Any) -> Any:
    """The classifier inside what makes it parallel or compiled."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    return getattr(model, "_orig_mod", model)


def derive_seed(*numbers: int) -> int:
    """A seed that is a function of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def setup(experiment: Experiment, world: World | None = None, prior: dict[str, Any] | None = None) -> Run:
    """Data, model, learner and optimizer of an experiment; a function of its seed and the prior, if any."""
    world = world or ALONE
    settings, order = experiment.train, experiment.order
    check_option_keys(experiment)
    check_machine(experiment, world)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    data = load_dataset(experiment.data, experiment.model.image_shape)
    model = create_model(
        experiment.model.name,
        experiment.model.size,
        experiment.model.image_shape,
        experiment.model.patch_size,
        data.channels,
        len(data.classes),
        **experiment.model.options,
    ).to(world.device)
    loader = Loader(data, experiment.data, settings.batch_size, settings.seed, world.rank, world.size)
    initial = initial_order(prior["chosen"]["scan"] if prior else order.scan, model.grid, settings.seed)
    # The learner is small and stays on the CPU: its float64 sums are not for every accelerator.
    learner = learner_of(experiment, model.grid, initial, settings.epochs * loader.steps_per_epoch)
    groups = [
        *weight_groups(model, settings.decay_all),
        {"params": [*learner.parameters()], "lr": order.learning_rate},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, 0.999), weight_decay=settings.weight_decay, fused=True
    )
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.ema)) if settings.ema else None
    scaler = torch.amp.GradScaler(world.device.type, enabled=settings.precision == "float16")
    parallel = parallelise(model, settings.compile, world)
    run = Run(experiment, world, loader, parallel, learner, optimizer, initial, prior, scaler, ema)
    remember_policy(run)
    return run


def check_option_keys(experiment: Experiment) -> None:
    """Refuse options of a backbone that have a key of their own, or come from the data."""
    for key in experiment.model.options:
        if key in ("name", "size", "image_size", "patch_size", "channels", "classes"):
            raise ValueError(
                f"model.options.{key} is no option of a backbone; use model.{key}, or the data's"
            )


def check_machine(experiment: Experiment, world: World) -> None:
    """Refuse what this machine, or this number of processes, cannot do."""
    settings = experiment.train
    if settings.precision == "float16" and world.device.type == "cpu":
        raise ValueError("train.precision=float16 needs a GPU; choose float32 or bfloat16")
    if settings.batch_size % (world.size * settings.accumulate):
        raise ValueError(
            f"train.batch_size={settings.batch_size} is not divisible by {world.size} processes "
            f"x train.accumulate={settings.accumulate}"
        )
    if world.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def weight_groups(model: nn.Module, decay_all: bool) -> list[dict[str, Any]]:
    """The model's weights in two groups: those that decay, and, unless all do, those that are spared."""
    spared = [
        parameter
        for name, parameter in model.named_parameters()
        if not decay_all and (parameter.dim() < 2 or name.endswith(("pos_embed", "cls_token", "distances")))
    ]
    kept = {id(parameter) for parameter in spared}
    return [
        {"params": [parameter for parameter in model.parameters() if id(parameter) not in kept]},
        {"params": spared, "weight_decay": 0.0},
    ]


def parallelise(model: nn.Module, compiled: bool, world: World) -> nn.Module:
    """The model, compiled if asked for, and with gradients averaged over ranks if there are several."""
    ready: nn.Module = torch.compile(model) if compiled else model  # type: ignore[assignment]
    if world.size == 1:
        return ready
    devices = [world.device.index] if world.device.type == "cuda" else None
    return DistributedDataParallel(ready, device_ids=devices)


def initial_order(name: str, grid: tuple[int, int], seed: int = 0) -> Tensor:
    """The order (N,) that `order.scan` names: a scan, a random one given by the seed, or an order file."""
    if name.endswith(".json"):
        return orders.load(name, grid).order
    if name == "random":
        return random_order(grid, seed)
    if name not in SCANS:
        choices = ", ".join([*SCANS, "random", "prior"])
        raise ValueError(
            f"order.scan: unknown scan {name!r}; choose from {choices}, or an order file (*.json)"
        )
    return as_order(name, grid)


def learner_of(
    experiment: Experiment, grid: tuple[int, int], initial: Tensor, total_steps: int
) -> OrderLearner | FixedOrder:
    """What asks for the order of each batch in a run of so many steps."""
    settings = experiment.order
    if settings.policy == "none":
        return FixedOrder(grid, initial)
    if settings.policy == "random":
        return RandomOrder(grid, initial, experiment.train.seed)
    return OrderLearner(
        grid,
        initial,
        total_steps=total_steps,
        warmup_fraction=settings.warmup_fraction,
        policy_fraction=settings.policy_fraction,
        peak_temperature=settings.temperature,
        estimator=settings.estimator,
        warmup_order=settings.warmup_order,
        baseline_start=settings.baseline_start,
        seed=experiment.train.seed,
        learn=settings.policy == "global",
    )


def remember_policy(run: Run) -> None:
    """Keep the policy as it stands, if it is before training, an epoch's end, or a moment of its learning."""
    learner, steps = run.learner, run.loader.steps_per_epoch
    logits, marks = torch.empty(0), set()
    if isinstance(learner, OrderLearner):
        logits = learner.policy.logits.detach().clone()
        length = learner.stop_step - learner.start_step
        marks = {learner.start_step + round(length * moment / MOMENTS) for moment in range(MOMENTS + 1)}
    if run.step % steps == 0 or run.step in marks:
        stage = learner.stage(run.step - 1) if run.step else "before training"
        run.moments.append((run.step / steps, stage, learner.temperature(run.step - 1), logits))


def over_all_ranks(run: Run) -> SoFar:
    """What all ranks together have summed up in this epoch."""
    own = run.so_far
    if run.world.size == 1:
        return own
    sums = torch.tensor([own.loss, own.right, own.seen], dtype=torch.float64, device=run.world.device)
    loss, right, seen = (mean(sums) * run.world.size).tolist()
    return SoFar(loss, right, seen, own.began)


def save(run: Run, directory: RunDir) -> None:
    """A checkpoint first, then the files people read, which a resumed run writes again."""
    so_far = over_all_ranks(run)
    if run.world.first:
        modules = {"model": unwrapped(run.model), "learner": run.learner}
        if run.ema is not None:
            modules["ema"] = run.ema
        tensors = {f"{name}.{key}": t for name, m in modules.items() for key, t in m.state_dict().items()}
        state = {key: getattr(run, key) for key in PLAIN_STATE}
        state |= {"so_far": asdict(so_far), "optimizer": run.optimizer.state_dict()}
        state |= {"scaler": run.scaler.state_dict(), "broken": run.loader.broken}
        state |= {"wall_seconds": run.wall_seconds}
        if isinstance(run.learner, OrderLearner):
            state |= {"start_step": run.learner.start_step, "stop_step": run.learner.stop_step}
        directory.save_checkpoint(run.step, Checkpoint(tensors, state), run.experiment.train.keep)
        directory.write_metrics(run.metrics)
        directory.write_policy(run.moments, run.initial)
    if run.skipped_in_a_row >= MOST_SKIPPED:
        raise ValueError(
            f"{MOST_SKIPPED} steps in a row had a loss or gradient that is not finite; the run is saved. "
            "Resume with a lower train.learning_rate, a lower train.clip, or train.precision=float32"
        )


def load_tensors(run: Run, tensors: dict[str, Tensor]) -> None:
    """Weights of the model, of its average if there is one, and the learner's state, from a checkpoint."""
    modules = {"model.": unwrapped(run.model), "learner.": run.learner}
    if run.ema is not None:
        modules["ema."] = run.ema
    for prefix, module in modules.items():
        module.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )


def restore_stages(learner: OrderLearner | FixedOrder, state: dict[str, Any]) -> None:
    """Start and stop the policy stage where the checkpoint's run does; older checkpoints do not say where."""
    if isinstance(learner, OrderLearner) and "start_step" in state:
        learner.start_step, learner.stop_step = state["start_step"], state["stop_step"]


def check_progress(run: Run, state: dict[str, Any]) -> None:
    """Refuse a checkpoint of other steps, patches or weights than the run has."""
    step, epochs, steps = state["step"], len(state["metrics"]), run.loader.steps_per_epoch
    if not 0 <= step - epochs * steps <= steps:
        raise ValueError(f"it is of step {step} after {epochs} epochs, which have {steps} steps")
    if len(state["moments"][0][3]) != len(run.moments[0][3]):
        raise ValueError(f"its policy is of {len(state['moments'][0][3])} patches")
    for parameter, kept in run.optimizer.state.items():
        for name, value in kept.items():
            if name != "step" and value.shape != parameter.shape:
                raise ValueError(f"the optimizer's {name} is of shape {tuple(value.shape)}")


def restore(run: Run, directory: RunDir, display: Display) -> None:
    """Bring a run to the state of its directory's newest sound checkpoint, if it has one."""
    checkpoint, damaged = directory.load_checkpoint()
    for name in damaged:
        display.say(f"{directory.path}/checkpoints/{name} is damaged; using the one before")
    if checkpoint is None:
        return
    with fitting(directory):
        load_tensors(run, checkpoint.tensors)
        run.optimizer.load_state_dict(checkpoint.state["optimizer"])
        run.scaler.load_state_dict(checkpoint.state["scaler"])
        check_progress(run, checkpoint.state)
    restore_stages(run.learner, checkpoint.state)
    for key in PLAIN_STATE:
        setattr(run, key, checkpoint.state[key])
    run.earlier = checkpoint.state.get("wall_seconds", run.seconds)  # older ones lack it
    total = SoFar(**checkpoint.state["so_far"])  # each rank takes its share
    size = run.world.size
    run.so_far = SoFar(total.loss / size, total.right / size, total.seen / size, total.began)
    run.loader.share(checkpoint.state["broken"])
    display.say(f"{directory.path} continues after step {run.step} of {run.total_steps}")
