"""Several processes as one: who reads which share of the images, and what all of them know together.

Started by torchrun, every process is a rank; started plainly, there is one. Only rank 0 writes.
"""

import gc
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

# Imported before a group is made: its functions have the group of that moment as a default, and torch.optim
# imports it at the first step. The group would live as long as the interpreter, and its threads, which drop
# tensors, would outlive that: now and then a process that had done all its work was aborted.
import torch.distributed.nn
from torch import Tensor

T = TypeVar("T")


class World(NamedTuple):
    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0


ALONE = World(0, 1, torch.device("cpu"))


def accelerator() -> torch.device:
    """The accelerator of this machine, or the CPU."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found or torch.device("cpu")


class Lost(Exception):
    """Another process has ended, or does not answer; `status` is what to exit with."""

    status = 1


@contextmanager
def join(timeout_minutes: float = 30.0) -> Iterator[World]:
    """The world this process was started in, on the accelerator it has, while the block runs.

    Raises Lost when another process has ended, or has not answered for so many minutes. The threads of the
    group have ended when the block has.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    device = accelerator()
    if device.type == "cuda":
        device = torch.device(device.type, int(os.environ.get("LOCAL_RANK", 0)))
    if size == 1:  # a GPU is not touched before it is used: a sweep leaves its memory to the runs
        yield World(0, 1, device)
        return
    if device.type == "cuda":
        torch.accelerator.set_device_index(device.index)
    torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))
    timeout = timedelta(minutes=timeout_minutes)
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)
        yield World(rank, size, device)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # a model in one of them would keep the group alive
        if isinstance(error, dist.DistError) or "gloo/transport" in str(error):
            raise Lost(_why(str(error), timeout_minutes)) from None
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()  # or one that refers to itself


def _why(error: str, timeout_minutes: float) -> str:
    """What an error of torch.distributed means to somebody who waits for a run."""
    if "timed out" in error.lower():
        return (
            f"another process has not answered for {timeout_minutes:g} minutes (train.timeout_minutes): it "
            "hangs, or is slow; the same command, or --resume, continues from the last checkpoint"
        )
    return "another process of this run has ended; its last message says why"


def cores() -> int:
    """How many of the machine's cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wait_for_all() -> None:
    """Go on when every rank has come here."""
    if dist.is_initialized():
        dist.barrier()


def on_any(flags: list[bool], device: torch.device) -> list[bool]:
    """Which of several flags are set on any rank."""
    if not dist.is_initialized():
        return flags
    most = torch.tensor(flags, dtype=torch.float32, device=device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.bool().tolist()


def union(own: dict[str, str]) -> dict[str, str]:
    """What any rank knows, in the same order on all."""
    if not dist.is_initialized():
        return own
    parts: list[dict[str, str]] = [{}] * dist.get_world_size()
    dist.all_gather_object(parts, own)
    return {key: value for part in parts for key, value in part.items()}


def gather(tensor: Tensor) -> Tensor:
    """Tensors (n, ...) of all ranks, rank after rank; n may differ."""
    if not dist.is_initialized():
        return tensor
    parts: list[Tensor | None] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, tensor.cpu())
    return torch.cat([part for part in parts if part is not None])


def from_first(make: Callable[[], T]) -> T:
    """What rank 0 makes, on all ranks; they wait for it as long as it takes, and refuse what it refuses."""
    if not dist.is_initialized():
        return make()
    patient = dist.new_group(backend="gloo", timeout=timedelta(days=30))
    shared: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            shared[0] = make()
        except (ValueError, OSError) as error:
            shared[1] = error
    dist.broadcast_object_list(shared, group=patient)
    if shared[1] is not None:
        raise shared[1]
    return shared[0]
