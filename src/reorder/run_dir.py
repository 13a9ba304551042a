"""A run directory: the configuration, metrics, policy, checkpoint and results of one run.

config.yaml     the experiment, complete
metrics.jsonl   one line per epoch
policy.npz      the policy's logits through the run, the first before training, and the initial order
checkpoints/    the state after a step: the newest, and those before it that are kept
correct.npy     one bool per validation image
prior.json      with order.scan=prior, the measurements that chose the scan
summary.json    results; written last, so that its presence says the run is finished
sample.png      one validation image, for drawings
order.json      the order to use at test time
figures/        drawings of the above
report/         the run beside those it is compared with, which are in fixed-*/
evaluations/    what `reorder evaluate` found
log.txt         in a sweep, what the run printed

Besides these: .lock, held while the run is trained; track_id, what a tracker knows it by; and, of a run that
was made longer, summary-N-epochs.json, its results before.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from reorder.config import Experiment, build, difference, to_yaml
from reorder.files import checksum, put, replace_file, sync

T = TypeVar("T")
LOCK = ".lock"
LOCKED = "REORDER_LOCKED"  # in the environment: the directory whose lock was handed to this process
CHECKPOINT_FILES = ("weights.safetensors", "state.pt")
Moment = tuple[float, str, float, Tensor]  # as the fields of History; plain, as checkpoints hold it


class History(NamedTuple):
    """A policy at M moments of a run, the first before training; N patches, or 0 without a policy."""

    epochs: np.ndarray  # (M,): trained so far, in parts of an epoch while the policy learns
    stages: list[str]  # of the step before; "before training" for the first
    temperatures: np.ndarray  # (M,): of the step before
    logits: np.ndarray  # (M, N)
    initial: np.ndarray  # the order (patches,) that the run started from


def _read(path: Path, load: Callable[[], T]) -> T:
    """What `load` makes of a file of ours; a missing or damaged one is named."""
    try:
        return load()
    except Exception as error:
        reason = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        raise ValueError(f"{path} is {reason}; remove the run directory to start anew") from error


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

    def _holds_anything(self) -> bool:
        """Whether there is more than what an interrupted start leaves behind."""
        return any(entry.suffix != ".tmp" and entry.name != LOCK for entry in self.path.iterdir())

    def lock(self) -> int | None:
        """An open file that locks the directory for this process and its children; None if others have it.

        The directory is made. A process that is given the file keeps the lock for as long as it lives.
        """
        path = self.path / LOCK
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError as error:
            os.close(lock)
            raise OSError(
                error.errno, f"{error.strerror}; choose a disk with file locks", str(path)
            ) from None
        return lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse to go on if another process trains here, and keep others out while the block runs.

        A process that a sweep has started for this directory was given the sweep's lock. On a disk without
        locks a run by itself does without.
        """
        lock = None
        if os.environ.get(LOCKED) != str(self.path):
            with suppress(OSError):
                if (lock := self.lock()) is None:
                    raise ValueError(f"{self.path} is being trained by another process; wait until it ends")
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def experiment(self) -> Experiment:
        """The experiment this directory is of."""
        if not (self.path / "config.yaml").exists():
            raise ValueError(f"{self.path} is not a run directory: it has no config.yaml")
        return build(Experiment(), self.path / "config.yaml")

    def summary(self) -> dict[str, Any] | None:
        """The results, or None if the run is not finished."""
        path = self.path / "summary.json"
        return _read(path, lambda: dict(json.loads(path.read_text()))) if path.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        replace_file(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def prior(self) -> dict[str, Any] | None:
        """What chose the scan, or None if nothing is recorded."""
        path = self.path / "prior.json"
        return _read(path, lambda: dict(json.loads(path.read_text()))) if path.exists() else None

    def write_prior(self, prior: dict[str, Any]) -> None:
        replace_file(self.path / "prior.json", json.dumps(prior, indent=1) + "\n")

    def reopen(self, experiment: Experiment) -> None:
        """Write down what is changed for a continuation; results of a shorter run are put aside."""
        finished = self.summary()
        if finished is not None and finished["epochs"] != experiment.train.epochs:
            os.replace(self.path / "summary.json", self.path / f"summary-{finished['epochs']}-epochs.json")
        self.create(experiment)

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        return _read(path, lambda: [dict(json.loads(line)) for line in path.read_text().splitlines()])

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        replace_file(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def policy(self) -> History:
        path = self.path / "policy.npz"

        def load() -> History:
            with np.load(path) as arrays:
                return History(**arrays)._replace(stages=arrays["stages"].tolist())

        return _read(path, load)

    def write_policy(self, moments: list[Moment], initial: Tensor) -> None:
        epochs, stages, temperatures, logits = zip(*moments, strict=True)
        temporary = self.path / "policy.tmp.npz"
        np.savez(
            temporary,
            epochs=np.array(epochs),
            stages=np.array(stages),
            temperatures=np.array(temperatures),
            logits=torch.stack(logits).cpu().numpy(),
            initial=initial.cpu().numpy(),
        )
        put(temporary, self.path / "policy.npz")

    def write_correct(self, correct: Tensor) -> None:
        temporary = self.path / "correct.tmp.npy"
        np.save(temporary, correct.cpu().numpy())
        put(temporary, self.path / "correct.npy")

    def write_sample(self, image: Tensor) -> None:
        """Keep an image, uint8 (C, H, W), to draw orders on."""
        temporary = self.path / "sample.tmp.png"
        pixels = image[0] if len(image) == 1 else image[:3].permute(1, 2, 0)
        Image.fromarray(pixels.numpy()).save(temporary)
        put(temporary, self.path / "sample.png")

    def save_checkpoint(self, step: int, checkpoint: Checkpoint, keep: int) -> None:
        """Write a checkpoint as a whole directory, point `latest` at it, and drop all but the newest."""
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        temporary, final = folder / "unfinished.tmp", folder / f"step-{step:09d}"
        for old in (temporary, final):
            if old.exists():
                shutil.rmtree(old)
        temporary.mkdir()
        try:
            tensors = {
                name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()
            }
            save_file(tensors, temporary / "weights.safetensors")
            torch.save(checkpoint.state, temporary / "state.pt")
            sums = {name: checksum(temporary / name) for name in CHECKPOINT_FILES}
            (temporary / "sha256.json").write_text(json.dumps(sums))
            for file in temporary.iterdir():
                sync(file)
            sync(temporary)
            os.replace(temporary, final)
            sync(folder)
        except (SafetensorError, RuntimeError) as error:  # how these libraries tell of a full disk
            reason = str(error).splitlines()[0]
            raise ValueError(f"cannot write a checkpoint to {folder}: {reason}; the last is kept") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        replace_file(self.path / "checkpoints/latest", final.name)
        others = sorted(path for path in folder.glob("step-*") if path != final)
        later = [path for path in others if path > final]  # damaged ones, or the run would not be here
        for old in [*later, *others[: len(others) - len(later)][: -(keep - 1) or None]]:
            shutil.rmtree(old)

    def load_checkpoint(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest sound checkpoint, None if there is none, and the names of damaged ones passed over."""
        folder = self.path / "checkpoints"
        damaged: list[str] = []
        for candidate in sorted(folder.glob("step-*"), reverse=True):
            try:
                sums = json.loads((candidate / "sha256.json").read_text())
                if any(checksum(candidate / name) != sums[name] for name in CHECKPOINT_FILES):
                    raise ValueError("checksum")
                tensors = load_file(candidate / "weights.safetensors")
                state = torch.load(candidate / "state.pt", weights_only=True)
                return Checkpoint(tensors, state), damaged
            except Exception:  # damaged files make their readers raise almost anything
                damaged.append(candidate.name)
        if damaged:
            raise ValueError(f"no sound checkpoint in {folder}: {', '.join(damaged)} damaged; start anew")
        return None, damaged
