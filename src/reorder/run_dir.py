"""A run directory: the configuration, metrics, policy, checkpoint and results of one run.

config.yaml     the experiment, complete
metrics.jsonl   one line per epoch
policy.npz      logits (epochs + 1, N), the first row before training, and the initial order (N,)
checkpoints/    the state after the last finished epoch
correct.npy     one bool per validation image
summary.json    results; written last, so that its presence says the run is finished
order.json      the order to use at test time
figures/        drawings of the above
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from reorder.config import Experiment, build, difference, to_yaml

T = TypeVar("T")


def _read(path: Path, load: Callable[[], T]) -> T:
    """What `load` makes of a file of ours; a missing or damaged one is named."""
    try:
        return load()
    except Exception as error:
        reason = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        raise ValueError(f"{path} is {reason}; remove the run directory to start anew") from error


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
        """Claim the directory for an experiment, or find it claimed for the same one."""
        self.check(experiment)
        self.path.mkdir(parents=True, exist_ok=True)
        self._write("config.yaml", to_yaml(experiment))

    def _holds_anything(self) -> bool:
        """Whether there is more than what an interrupted start leaves behind."""
        return any(entry.suffix != ".tmp" for entry in self.path.iterdir())

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
        self._write("summary.json", json.dumps(summary, indent=1) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        return _read(path, lambda: [dict(json.loads(line)) for line in path.read_text().splitlines()])

    def write_metrics(self, lines: list[dict[str, Any]]) -> None:
        self._write("metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def policy(self) -> tuple[np.ndarray, np.ndarray]:
        """Logits by epoch (epochs + 1, N) and the initial order (N,)."""
        path = self.path / "policy.npz"

        def load() -> tuple[np.ndarray, np.ndarray]:
            with np.load(path) as arrays:
                return arrays["logits"], arrays["initial"]

        return _read(path, load)

    def write_policy(self, logits: list[Tensor], initial: Tensor) -> None:
        temporary = self.path / "policy.tmp.npz"
        np.savez(temporary, logits=torch.stack(logits).cpu().numpy(), initial=initial.cpu().numpy())
        os.replace(temporary, self.path / "policy.npz")

    def write_correct(self, correct: Tensor) -> None:
        temporary = self.path / "correct.tmp.npy"
        np.save(temporary, correct.cpu().numpy())
        os.replace(temporary, self.path / "correct.npy")

    def save_checkpoint(self, epoch: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write the state after an epoch as a new directory, then drop the one before."""
        checkpoints = self.path / "checkpoints"
        temporary, final = checkpoints / "unfinished", checkpoints / f"epoch-{epoch:05d}"
        for old in (temporary, final):
            if old.exists():
                shutil.rmtree(old)
        temporary.mkdir(parents=True)
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, temporary / "weights.safetensors"
        )
        torch.save(state, temporary / "state.pt")
        os.replace(temporary, final)
        for old in checkpoints.iterdir():
            if old != final:
                shutil.rmtree(old)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and state after the last finished epoch, or None before the first."""
        found = sorted((self.path / "checkpoints").glob("epoch-*"))
        if not found:
            return None
        weights, state = found[-1] / "weights.safetensors", found[-1] / "state.pt"
        tensors = _read(weights, lambda: load_file(weights))
        return tensors, _read(state, lambda: torch.load(state, weights_only=True))

    def _write(self, name: str, text: str) -> None:
        temporary = self.path / f"{name}.tmp"
        temporary.write_text(text)
        os.replace(temporary, self.path / name)
