"""Batches whose content depends only on (seed, epoch, index): not on workers, ranks or resuming."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from reorder import config
from reorder.data.datasets import Dataset, Kept, Memory, Split
from reorder.data.inputs import normalised
from reorder.data.ranks import cores

# n images in a split, B in a global batch, W ranks, C channels, H x W pixels

logger = logging.getLogger(__name__)


FEW = 100  # images: as many are decoded here before other processes have started


class Request(NamedTuple):
    """The images one rank wants in one batch."""

    indices: Tensor  # (B / W,)
    flipped: Tensor  # (B / W,), bool


class Reply(NamedTuple):
    images: Tensor  # (B / W, C, H, W), uint8, not yet flipped
    indices: Tensor  # (B / W,), of the images: of a broken one's replacement, its own
    broken: dict[str, str]  # where the image is -> what is wrong with it


class Reader(torch.utils.data.Dataset):
    """Answers requests from a split, in this process or in another."""

    def __init__(self, split: Split, max_broken: int, replace: bool):
        self.split, self.max_broken, self.replace = split, max_broken, replace

    def __getitem__(self, request: Request) -> Reply:
        if isinstance(self.split, Memory):
            return Reply(self.split.batch(request.indices), request.indices, {})
        broken: dict[str, str] = {}
        images, indices = zip(*(self._read(int(index), broken) for index in request.indices), strict=True)
        return Reply(torch.stack(images), torch.tensor(indices), broken)

    def _read(self, index: int, broken: dict[str, str]) -> tuple[Tensor, int]:
        """An image and its index; instead of a broken one the next that is whole, or a black one.

        In validation it is black, so that no other image counts twice.
        """
        for offset in range(min(len(self.split), self.max_broken + 1)):
            candidate = (index + offset) % len(self.split)
            try:
                return self.split.read(candidate), candidate
            except Exception as error:  # damaged files make decoders raise almost anything
                broken[self.split.name(candidate)] = " ".join(str(error).split()) or type(error).__name__
            if not self.replace:
                break
        return torch.zeros(3, *self.split.shape, dtype=torch.uint8), index


class Loader:
    """Normalised images in shuffled batches for training or in sequence for validation, for one rank of W.

    Rank r has the samples r, r + W, r + 2W, ... of every global batch: those of all ranks, interleaved,
    are the batches of one process.
    """

    def __init__(
        self,
        dataset: Dataset,
        settings: config.Data,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        if 0 < len(dataset.train) < batch_size:  # without any it is for validation alone
            raise ValueError(
                f"train.batch_size={batch_size} is more than the {len(dataset.train)} training images"
            )
        if batch_size % world_size:
            raise ValueError(
                f"train.batch_size={batch_size} is the batch of all processes; {world_size} cannot share it"
            )
        self.dataset, self.settings, self.batch_size, self.seed = dataset, settings, batch_size, seed
        self.rank, self.world_size = rank, world_size
        self.broken: dict[str, str] = {}  # where each broken image is -> what is wrong with it
        self.shared = 0  # how many of them all ranks know

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in an epoch; the images of an incomplete last one wait for another epoch."""
        return len(self.dataset.train) // self.batch_size

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's images (B / W, C, H, W) and labels (B / W,), shuffled and flipped by the epoch."""
        assert 0 <= first_step <= self.steps_per_epoch
        random = np.random.default_rng([self.seed, epoch])
        count = len(self.dataset.train)
        shuffled = torch.from_numpy(random.permutation(count))
        flipped = torch.from_numpy(random.random(count) < 0.5)  # by index, not by place in the epoch
        if self.settings.augment == "none":
            flipped.zero_()
        batches = shuffled.split(self.batch_size)[first_step : self.steps_per_epoch]
        own = [batch[self.rank :: self.world_size] for batch in batches]
        requests = [Request(indices, flipped[indices]) for indices in own]
        for images, indices in self._batches(self.dataset.train, requests, replace=True):
            yield images, self.dataset.train.labels[indices]

    def validate(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Indices (b,), images (b, C, H, W) and labels (b,) of this rank's share, b at most B / W.

        Rank r has the images r, r + W, r + 2W, ...: each image once over all ranks.
        """
        own = torch.arange(len(self.dataset.validation))[self.rank :: self.world_size]
        parts = own.split(self.batch_size // self.world_size) if len(own) else ()
        requests = [Request(indices, torch.zeros(len(indices), dtype=torch.bool)) for indices in parts]
        for images, indices in self._batches(self.dataset.validation, requests, replace=False):
            yield indices, images, self.dataset.validation.labels[indices]

    def sample(self) -> Tensor:
        """The first validation image, uint8 (C, H, W), black if it is broken."""
        reader = Reader(self.dataset.validation, self.settings.max_broken, replace=False)
        return reader[Request(torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.bool))].images[0]

    def _batches(
        self, split: Split, requests: list[Request], replace: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Normalised images and their indices, in the order of the requests."""
        replies = _read_all(split, requests, self.settings, replace)
        for request, (images, indices, broken) in zip(requests, replies, strict=True):
            new = {where: reason for where, reason in broken.items() if where not in self.broken}
            self.broken |= new
            if self.world_size == 1 and new:
                self.share(self.broken)
            if self._wrong is None:  # or one line says it all, as soon as all ranks know
                _log(new)
            if request.flipped.any():
                images = torch.where(request.flipped[:, None, None, None], images.flip(-1), images)
            yield normalised(images, self.dataset.mean, self.dataset.deviation), indices

    @property
    def has_news(self) -> bool:
        """Whether this rank found broken images that the others do not know."""
        return len(self.broken) > self.shared

    def share(self, broken: dict[str, str]) -> None:
        """Take over what all ranks together found broken; too many stop the run, on all ranks at once."""
        self.broken.update(broken)
        self.shared = len(self.broken)
        if self._wrong is not None:
            raise ValueError(self._wrong)

    @property
    def _wrong(self) -> str | None:
        """Why the run cannot go on with so many broken images, if so."""
        return _too_many(self.broken, [self.dataset.train, self.dataset.validation], self.settings)


class Images:
    """Images of a split as they are, without labels; broken ones are left out and counted."""

    def __init__(self, split: Split, indices: Tensor, settings: config.Data):
        self.split, self.indices, self.settings = split, indices, settings
        self.broken: dict[str, str] = {}  # where each broken image is -> what is wrong with it

    def __len__(self) -> int:
        return len(self.indices)

    def subset(self, count: int, random: np.random.Generator) -> "Images":
        """So many of them, chosen at random and in their old sequence, with the same count of broken ones."""
        chosen = np.sort(random.choice(len(self), min(count, len(self)), replace=False))
        part = Images(self.split, self.indices[torch.from_numpy(chosen)], self.settings)
        part.broken = self.broken
        return part

    def batches(self, size: int) -> Iterator[Tensor]:
        """The images in sequence, uint8 (b, C, H, W) with b at most `size`."""
        parts = self.indices.split(size)
        requests = [Request(indices, torch.zeros(len(indices), dtype=torch.bool)) for indices in parts]
        for images, indices, broken in _read_all(self.split, requests, self.settings, replace=False):
            new = {where: reason for where, reason in broken.items() if where not in self.broken}
            self.broken |= new
            if (wrong := _too_many(self.broken, [self.split], self.settings)) is not None:
                raise ValueError(wrong)
            _log(new)
            whole = _whole(self.split, indices, broken)
            if whole.any():
                yield images[whole]


def in_sequence(split: Split, size: int) -> Iterator[Reply]:
    """All images of a split as they are, at most `size` at a time; broken ones are black, however many."""
    requests = [
        Request(indices, torch.zeros(len(indices), dtype=torch.bool))
        for indices in torch.arange(len(split)).split(size)
    ]
    yield from _read_all(split, requests, config.Data(), replace=False)


def _whole(split: Split, indices: Tensor, broken: dict[str, str]) -> Tensor:
    """Which of the indices (b,) are not of broken images, bool (b,)."""
    if not broken:
        return torch.ones(len(indices), dtype=torch.bool)
    return torch.tensor([split.name(int(index)) not in broken for index in indices])


def _log(broken: dict[str, str]) -> None:
    for where, reason in broken.items():
        logger.warning("broken image %s: %s", where, reason)


def _too_many(broken: dict[str, str], splits: list[Split], settings: config.Data) -> str | None:
    """Why one cannot go on with so many broken images, if so."""
    if len(broken) > settings.max_broken:
        where, reason = list(broken.items())[-1]
        return (
            f"more than data.max_broken={settings.max_broken} images are broken; "
            f"mend them or raise it; the last is {where}: {reason}"
        )
    for split in splits:
        if 0 < len(split) <= len(broken) and all(split.name(index) in broken for index in range(len(split))):
            where = split.name(0)
            return f"none of the {len(split)} images could be read; the first is {where}: {broken[where]}"
    return None


def _read_all(split: Split, requests: list[Request], settings: config.Data, replace: bool) -> Iterator[Reply]:
    """Replies in the order of the requests; what is decoded is kept, if the split keeps it."""
    here = Reader(split, settings.max_broken, replace)
    unread = [] if isinstance(split, Memory) else [_unread(split, request) for request in requests]
    elsewhere = [request for request, count in zip(requests, unread, strict=False) if count]
    workers = min(_workers(settings, sum(unread)), len(elsewhere))
    if not workers:
        yield from map(here.__getitem__, requests)
        return
    source = split.split if isinstance(split, Kept) else split  # without the images that are kept
    decoded = _in_processes(Reader(source, settings.max_broken, replace), elsewhere, workers)
    for request, count in zip(requests, unread, strict=True):
        reply = next(decoded) if count else here[request]
        if count and isinstance(split, Kept):
            whole = _whole(split, reply.indices, reply.broken)
            split.keep(reply.indices[whole], reply.images[whole])
        yield reply


def _unread(split: Split, request: Request) -> int:
    """How many images of a request are still to be decoded."""
    return int((~split.has[request.indices]).sum()) if isinstance(split, Kept) else len(request.indices)


def _workers(settings: config.Data, images: int) -> int:
    """Processes that decode so many images: `data.workers`, or by default none for few, else one per core.

    At most 8, shared by the ranks of this machine.
    """
    if settings.workers is not None:
        return settings.workers
    if images < FEW:
        return 0
    return max(1, min(8, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def ignore_signals() -> None:
    """A terminal and Slurm signal every process, but only the training may decide when to end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _start_worker(alive: Connection, worker: int) -> None:
    """Live as long as the training holds the other end of a pipe: it may be killed without warning."""

    def wait() -> None:
        try:
            alive.recv()
        except (EOFError, OSError):
            os._exit(1)

    ignore_signals()
    threading.Thread(target=wait, daemon=True).start()


def _in_processes(reader: Reader, requests: list[Request], workers: int) -> Iterator[Reply]:
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        # It imports torch once, not once per worker, and must outlive signals for its workers to do so.
        context.set_forkserver_preload(["reorder.data.forkserver"])
    alive, held = context.Pipe(duplex=False)
    loader = DataLoader(
        reader,
        batch_size=None,
        sampler=requests,  # any iterable of what the reader takes
        num_workers=workers,
        multiprocessing_context=context,
        worker_init_fn=partial(_start_worker, alive),
        generator=torch.Generator(),  # or it would draw from the run's own
    )
    with alive, held:
        yield from loader
