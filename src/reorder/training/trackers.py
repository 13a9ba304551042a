"""Trackers: send metrics and images to TensorBoard, Weights & Biases or trackio, besides metrics.jsonl."""

import importlib
import importlib.util
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from reorder.config import Experiment
from reorder.orders.disk import replace_file

# H rows and W columns of an image

SMALLEST_SIDE = 224  # pixels; a map of 14 x 14 patches is enlarged to it


class Tracker(Protocol):
    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Send those of the metrics that are numbers."""

    def image(self, name: str, image: np.ndarray, step: int) -> None:
        """Send a map (H, W), drawn in colours."""

    def close(self) -> None:
        """Wait until all is sent."""


class Nowhere:
    """Tracks nothing."""

    def log(self, metrics: dict[str, Any], step: int) -> None: ...

    def image(self, name: str, image: np.ndarray, step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard; what an interrupted run wrote after `first_step` is hidden."""

    def __init__(self, experiment: Experiment, directory: Path, first_step: int):
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(directory / "tensorboard", purge_step=first_step or None)

    def log(self, metrics: dict[str, Any], step: int) -> None:
        for name, value in numbers(metrics).items():
            self.writer.add_scalar(name, value, step)

    def image(self, name: str, image: np.ndarray, step: int) -> None:
        self.writer.add_image(name, pixels(image), step, dataformats="HWC")

    def close(self) -> None:
        self.writer.close()


class Service:
    """Weights & Biases, or trackio, which has the same functions; a resumed run goes on under its identity.

    Where it is sent is theirs to configure: WANDB_MODE=offline, TRACKIO_DIR and so on.
    """

    def __init__(self, module: str, experiment: Experiment, directory: Path, **more: Any):
        self.module = importlib.import_module(module)
        self.module.init(
            project="reorder",
            name=f"{directory.resolve().name}-{identity(directory)}",
            config=asdict(experiment),
            resume="allow",
            **more,
        )

    def log(self, metrics: dict[str, Any], step: int) -> None:
        self.module.log(numbers(metrics), step=step)

    def image(self, name: str, image: np.ndarray, step: int) -> None:
        self.module.log({name: self.module.Image(pixels(image))}, step=step)

    def close(self) -> None:
        self.module.finish()


def _wandb(experiment: Experiment, directory: Path, first_step: int) -> Tracker:
    return Service("wandb", experiment, directory, id=identity(directory), dir=str(directory))


def _trackio(experiment: Experiment, directory: Path, first_step: int) -> Tracker:
    return Service("trackio", experiment, directory)


TRACKERS: dict[str, Callable[[Experiment, Path, int], Tracker]] = {
    "none": lambda experiment, directory, first_step: Nowhere(),
    "tensorboard": TensorBoard,
    "wandb": _wandb,
    "trackio": _trackio,
}


def check(name: str) -> None:
    """Refuse a tracker that is unknown or not installed; to be asked before anything is written."""
    if name not in TRACKERS:
        raise ValueError(f"unknown tracker {name!r}; choose from {', '.join(TRACKERS)}")
    if name != "none" and importlib.util.find_spec(name) is None:
        raise ValueError(f"train.track={name} needs {name}: pip install 'reorder[track]'")


def start(experiment: Experiment, directory: Path, first_step: int = 0) -> Tracker:
    """The tracker that `train.track` names, for the run in a directory that goes on from `first_step`."""
    check(experiment.train.track)
    return TRACKERS[experiment.train.track](experiment, directory, first_step)


def track_epoch(tracker: Tracker, line: dict[str, Any], logits: Tensor, grid: tuple[int, int]) -> None:
    """Send an epoch's line of metrics and, if there is a policy, its logits (N,) as a map of the grid."""
    step = line["step"]
    tracker.log({name: value for name, value in line.items() if name != "step"}, step)  # it is the axis
    if len(logits):
        tracker.image("logits", logits.detach().cpu().view(grid).numpy(), step)


def numbers(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics that can be plotted."""
    return {name: value for name, value in metrics.items() if type(value) in (int, float)}


def pixels(image: np.ndarray) -> np.ndarray:
    """uint8 (H, W, 3) of a map (H, W), from its least (dark) to its greatest value."""
    from matplotlib import colormaps  # imported here: slow, seldom needed

    span = np.ptp(image)
    coloured = colormaps["cividis"]((image - image.min()) / (span if span > 0 else 1), bytes=True)[..., :3]
    times = max(1, -(-SMALLEST_SIDE // min(image.shape)))
    return coloured.repeat(times, axis=0).repeat(times, axis=1)


def identity(directory: Path) -> str:
    """What a service knows a run by: drawn once and kept in its directory."""
    path = directory / "track_id"
    if not path.exists():
        replace_file(path, uuid.uuid4().hex[:12] + "\n")
    return path.read_text().strip()
