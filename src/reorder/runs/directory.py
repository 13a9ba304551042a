"""A run directory: the configuration, metrics, policy, checkpoint and results of one run.

config.yaml     the experiment, complete
data.json       the names of the classes, and how an image becomes what the model reads
metrics.jsonl   one line per epoch
policy.npz      the policy's logits through the run, the first before training, and the initial order
checkpoints/    the state after a step: the newest, and those before it that are kept
correct.npy     one bool per validation image
prior.json      with order.scan=prior, the measurements that chose the scan
summary.json    results; written last, so that its presence says the run is finished
sample.png      one validation image, for drawings
own_orders.npz  with order.policy=image, some validation images and the order that each is read in
order.json      the order to use at test time
figures/        drawings of the above
report/         the run and those it is compared with
fixed-*/, ...   the run directories of these (`train.compare`)
evaluations/    what `reorder evaluate` found
log.txt         in a sweep, what the run printed

Besides these: .lock, held while the run is trained; track_id, what a tracker knows it by; and, of a run that
was made longer, summary-N-epochs.json, its results before.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from reorder.config import Experiment, difference, to_yaml
from reorder.data.inputs import Inputs
from reorder.data.transform import Transform
from reorder.orders.disk import (
    checksum,
    discard,
    naming,
    remove,
    replace_file,
    replacing,
    sync,
    temporary_name,
)
from reorder.orders.schema import Unreadable
from reorder.runs.paths import check_run
from reorder.runs.read_images import ReadImages, picture_of
from reorder.runs.schemas import read

LOCK = ".lock"
LOCKED = "REORDER_LOCKED"  # in the environment: the directory whose lock was handed to this process
CHECKPOINT_FILES = ("weights.safetensors", "state.pt")
OLD = ".old"  # behind the name of a checkpoint that is just being replaced by another of the same step
Moment = tuple[float, str, float, Tensor]  # as the fields of History; plain, as checkpoints hold it


class DataFile(NamedTuple):
    """What a model needs to know of the data it was trained on."""

    classes: list[str]
    inputs: Inputs

    @classmethod
    def of(cls, content: dict[str, Any], shape: tuple[int, int]) -> "DataFile":
        """From the content of data.json, for images of (height, width)."""
        transform = Transform(shape, **{key: content[key] for key in ("max_pixels", "max_whole", "crop")})
        return cls(content["classes"], Inputs(transform, tuple(content["mean"]), tuple(content["deviation"])))

    def content(self) -> dict[str, Any]:
        """As data.json; the size of the images is in config.yaml."""
        transform, mean, deviation = self.inputs
        return {
            "classes": self.classes,
            "mean": list(mean),
            "deviation": list(deviation),
            "crop": transform.crop,
            "max_pixels": transform.max_pixels,
            "max_whole": transform.max_whole,
        }


class History(NamedTuple):
    """A policy at M moments of a run, the first before training; N patches, or 0 without a policy."""

    epochs: np.ndarray  # (M,): trained so far, in parts of an epoch while the policy learns
    stages: list[str]  # of the step before; "before training" for the first
    temperatures: np.ndarray  # (M,): of the step before
    logits: np.ndarray  # (M, N)
    initial: np.ndarray  # the order (patches,) that the run started from


class Checkpoint(NamedTuple):
    """The state of a run: tensors of the model and the learner by name, and the rest."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


class RunDir:
    def __init__(self, path: str | Path):
        self.path = Path(path)

    def check(self, experiment: Experiment) -> None:
        """Refuse a directory that holds anything but a run of this experiment; write nothing."""
        if (self.path / "config.yaml").exists():
            if differs := difference(self.experiment(), experiment):
                raise ValueError(
                    f"{self.path} holds a run of another configuration ({differs}); "
                    "choose another --out, or remove it"
                )
        elif self.path.exists() and (not self.path.is_dir() or self._holds_anything()):
            raise ValueError(f"{self.path} exists and is not a run directory; choose another --out")

    def create(self, experiment: Experiment) -> None:
        """Claim the directory for an experiment, or for the longer one that it has become."""
        replace_file(self.path / "config.yaml", to_yaml(experiment))

    def data(self) -> DataFile | None:
        """What the model was trained on, or None of an older run, which did not write it down."""
        path = self.path / "data.json"
        return DataFile.of(read(path), self.experiment().model.image_shape) if path.exists() else None

    def write_data(self, data: DataFile) -> None:
        replace_file(self.path / "data.json", json.dumps(data.content(), indent=1) + "\n")

    def _holds_anything(self) -> bool:
        """Whether there is more than what an interrupted start leaves behind."""
        return any(entry.suffix != ".tmp" and entry.name != LOCK for entry in self.path.iterdir())

    def lock(self) -> int | None:
        """An open file that locks the directory for this process and its children; None if others have it.

        The directory is made. A process that is given the file keeps the lock for as long as it lives. Where
        there can be no lock it is refused: two processes would mix up one run.
        """
        path = self.path / LOCK
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ValueError(
                f"cannot lock {self.path}: {path}: {error.strerror}; choose a directory that you may write to"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError as error:
            os.close(lock)
            raise ValueError(
                f"cannot lock {self.path}: {error.strerror}; choose a disk with file locks"
            ) from None
        return lock

    @property
    def handed_over(self) -> bool:
        """Whether this process was started for this run alone, and was given its lock."""
        return os.environ.get(LOCKED) == str(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse to go on if another process trains here, and keep others out while the block runs.

        A process that was started for this run was given the lock.
        """
        if self.handed_over:
            yield
            return
        if (lock := self.lock()) is None:
            raise ValueError(f"{self.path} is being trained by another process; wait until it ends")
        try:
            yield
        finally:
            os.close(lock)

    def inside(self) -> list["RunDir"]:
        """The runs that this one is compared with, which are in directories of its own."""
        return [RunDir(file.parent) for file in sorted(self.path.glob("*/config.yaml"))]

    def experiment(self) -> Experiment:
        """The experiment this directory is of."""
        check_run(self.path)
        experiment: Experiment = read(self.path / "config.yaml")
        return experiment

    def summary(self) -> dict[str, Any] | None:
        """The results, or None if the run is not finished."""
        path = self.path / "summary.json"
        return read(path) if path.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        replace_file(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def prior(self) -> dict[str, Any] | None:
        """What chose the scan, or None if nothing is recorded."""
        path = self.path / "prior.json"
        return read(path) if path.exists() else None

    def write_prior(self, prior: dict[str, Any]) -> None:
        replace_file(self.path / "prior.json", json.dumps(prior, indent=1) + "\n")

    def reopen(self, experiment: Experiment) -> None:
        """Write down what is changed for a continuation; results of a shorter run are put aside."""
        finished = self.summary()
        if finished is not None and finished["epochs"] != experiment.train.epochs:
            os.replace(self.path / "summary.json", self.path / f"summary-{finished['epochs']}-epochs.json")
        self.create(experiment)

    def metrics(self) -> list[dict[str, Any]]:
        """A line per epoch that is over."""
        lines: list[dict[str, Any]] = read(self.path / "metrics.jsonl")
        return lines

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        replace_file(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def policy(self) -> History:
        arrays = read(self.path / "policy.npz")
        fields = {key: arrays[key] for key in History._fields}
        return History(**fields)._replace(stages=arrays["stages"].tolist())

    def write_policy(self, moments: list[Moment], initial: Tensor) -> None:
        epochs, stages, temperatures, logits = zip(*moments, strict=True)
        with replacing(self.path / "policy.npz") as file:
            np.savez(
                file,
                epochs=np.array(epochs),
                stages=np.array(stages),
                temperatures=np.array(temperatures),
                logits=torch.stack(logits).cpu().numpy(),
                initial=initial.cpu().numpy(),
            )

    def correct(self) -> np.ndarray:
        """Whether each validation image (n,) is classified right."""
        correct: np.ndarray = read(self.path / "correct.npy")
        return correct

    def write_correct(self, correct: Tensor) -> None:
        with replacing(self.path / "correct.npy") as file:
            np.save(file, correct.cpu().numpy())

    def write_sample(self, image: Tensor) -> None:
        """Keep an image, uint8 (C, H, W), to draw orders on."""
        with replacing(self.path / "sample.png") as file:
            picture_of(image).save(file, format="PNG")

    def own_orders(self) -> ReadImages | None:
        """Some images and the orders they have of their own; None of a run without, or of an older one."""
        path = self.path / "own_orders.npz"
        if not path.exists():
            return None
        arrays = read(path)
        return ReadImages(**{key: arrays[key] for key in ReadImages._fields})

    def write_own_orders(self, kept: ReadImages) -> None:
        with replacing(self.path / "own_orders.npz") as file:
            np.savez_compressed(file, images=kept.images, orders=kept.orders)

    def save_checkpoint(self, step: int, checkpoint: Checkpoint, keep: int) -> None:
        """Write a checkpoint as a whole directory, point `latest` at it, and drop all but the newest.

        Nothing is removed before that, and what is removed loses its name first: a kill at any moment leaves
        the newest checkpoint that was whole.
        """
        folder = self.path / "checkpoints"
        for left in folder.glob("*.tmp"):  # by a process that was killed; nobody else writes here
            remove(left)
        final, old = folder / f"step-{step:09d}", folder / f"step-{step:09d}{OLD}"
        temporary = temporary_name(folder / "unfinished")
        temporary.mkdir(parents=True)
        try:
            with naming(final):
                write_checkpoint(temporary, checkpoint)
            if final.exists():
                if old.exists():
                    discard(old)
                os.replace(final, old)
            os.replace(temporary, final)
            sync(folder)
        except (SafetensorError, RuntimeError) as error:  # how these libraries report a full disk
            reason = str(error).splitlines()[0]
            raise ValueError(f"cannot write a checkpoint to {folder}: {reason}; the last is kept") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        replace_file(folder / "latest", final.name)
        found = self._checkpoints()
        # Those that are later are damaged, or the run would not be here.
        kept = [path for path in found if path.name <= final.name][:keep]
        for path in found:
            if path not in kept:
                discard(path)

    def _checkpoints(self) -> list[Path]:
        """All checkpoints, the newest first; one of the same step that was being replaced comes second."""
        found = [path for path in (self.path / "checkpoints").glob("step-*") if path.suffix in ("", OLD)]
        return sorted(found, key=lambda path: (path.stem, not path.suffix), reverse=True)

    def load_checkpoint(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest sound checkpoint, None if there is none, and the names of damaged ones passed over."""
        damaged: list[str] = []
        for candidate in self._checkpoints():
            try:
                return read_checkpoint(candidate), damaged
            except Unreadable:
                raise
            except (ValueError, FileNotFoundError):
                if not candidate.exists():  # the run goes on, and has dropped it for a newer one
                    return self.load_checkpoint()
                damaged.append(candidate.name)
        if damaged:
            folder = self.path / "checkpoints"
            raise ValueError(f"no sound checkpoint in {folder}: {', '.join(damaged)} damaged; start again")
        return None, damaged


@contextmanager
def fitting(directory: RunDir) -> Iterator[None]:
    """Turn the error of a checkpoint that does not fit what it is loaded into one line that names it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        said = f"does not fit its config.yaml: {' '.join(str(error).split())[:200]}"
        raise ValueError(f"the checkpoint of {directory.path} {said}") from error


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """The files of a checkpoint, on the disk, in a directory that is made for them."""
    weights, state = (directory / name for name in CHECKPOINT_FILES)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    torch.save(checkpoint.state, state)
    save_file(tensors, weights)
    shutil.copymode(state, weights)  # the library lets nobody else read it, whatever the umask
    sums = {name: checksum(directory / name) for name in CHECKPOINT_FILES}
    (directory / "sha256.json").write_text(json.dumps(sums))
    for file in directory.iterdir():
        sync(file)
    sync(directory)


def read_checkpoint(directory: Path) -> Checkpoint:
    """A checkpoint, checked."""
    sums = read(directory / "sha256.json")
    weights, state = (read(directory / name) for name in CHECKPOINT_FILES)
    for name in CHECKPOINT_FILES:
        if checksum(directory / name) != sums[name]:
            raise ValueError(f"{directory / name} is not what was written")
    if not directory.name.startswith(f"step-{state['step']:09d}"):
        raise ValueError(f"{directory} holds step {state['step']}")
    return Checkpoint(weights, state)
