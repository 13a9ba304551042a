"""How a run is saved and restored, so that it goes on to the bit as if it had not stopped."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from reorder.data.progress import Display
from reorder.orders.fixed import FixedOrder
from reorder.orders.learner import OrderLearner
from reorder.runs.directory import Checkpoint, RunDir, fitting
from reorder.training.state import Run, SoFar, over_all_ranks, unwrapped

MOST_SKIPPED = 10  # steps in a row that are not finite
PLAIN_STATE = ("step", "seconds", "skipped", "skipped_in_a_row", "metrics", "moments")
MOMENTS = 40  # of the policy stage that are kept, to watch the policy learn


def remember_policy(run: Run) -> None:
    """Keep the policy as it stands, if it is before training, an epoch's end, or a moment of its learning."""
    learner, steps = run.learner, run.loader.steps_per_epoch
    logits, marks = torch.empty(0), set()
    if isinstance(learner, OrderLearner):
        logits = learner.policy.by_patch()
        length = learner.stop_step - learner.start_step
        marks = {learner.start_step + round(length * moment / MOMENTS) for moment in range(MOMENTS + 1)}
    if run.step % steps == 0 or run.step in marks:
        stage = learner.stage(run.step - 1) if run.step else "before training"
        run.moments.append((run.step / steps, stage, learner.temperature(run.step - 1), logits))


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
