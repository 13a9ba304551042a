"""The runner: inputs in batches, each batch in a forked process, within bounds of time and memory."""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from fuzz import (
    configurations,
    folders,
    idx_files,
    images,
    lists,
    names,
    options,
    order_files,
    overrides,
    runs,
)
from fuzz import ready as materials
from fuzz.case import FAILURES, HANG, MEMORY, SECRET, SECRET_NAME, TRACEBACK, Hang, Started, judge

KINDS: dict[str, ModuleType] = {
    "overrides": overrides,
    "configurations": configurations,
    "options": options,
    "orders": order_files,
    "runs": runs,
    "images": images,
    "idx": idx_files,
    "lists": lists,
    "folders": folders,
    "names": names,
}
BATCH = 25  # inputs that share a process
CPU_SECONDS = 10  # of one input; of the processor, so that a busy machine changes nothing
WALL_SECONDS = 600  # of one input that does not even use the processor, or cannot be interrupted
MEMORY_BYTES = 2**30  # by which an input may make the process grow
ADDRESS_BYTES = 3 * 2**30  # beyond which the system refuses memory, to protect the machine


class Finding(NamedTuple):
    """What became of an input."""

    kind: str
    number: int
    what: str
    failure: str
    outcome: str
    seconds: float  # of the processor


class Batch(NamedTuple):
    kind: str
    numbers: list[int]


def inputs_of(kind: str, total: int) -> int:
    """How many of so many inputs are of a kind: by its share."""
    shares = {name: module.SHARE for name, module in KINDS.items()}
    return max(1, round(total * shares[kind] / sum(shares.values())))


def campaign(
    seed: int,
    wanted: dict[str, list[int]],
    jobs: int = 2,
    tell: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """Use the inputs with these numbers of each kind; `tell` hears of each as it is judged."""
    with _sandbox() as root:
        _make_ready(root / "ready")
        materials.warm_up(root / "ready")
        batches = [
            Batch(kind, numbers[first : first + BATCH])
            for kind, numbers in wanted.items()
            for first in range(0, len(numbers), BATCH)
        ]
        batches.sort(key=lambda batch: -KINDS[batch.kind].COST)  # the long ones first: all end together
        return work(seed, batches, root, jobs, tell)


@contextmanager
def _sandbox() -> Iterator[Path]:
    """A folder for all inputs, and a secret in the environment that none may find out."""
    root = Path(tempfile.mkdtemp(prefix="reorder-fuzz-")).resolve()
    before = os.environ.get(SECRET_NAME)
    os.environ[SECRET_NAME] = SECRET
    try:
        yield root
    finally:
        if before is None:
            del os.environ[SECRET_NAME]
        _remove(root)


def _remove(folder: Path) -> None:
    """Remove a folder, with what is unreadable in it."""
    for directory, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(directory, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _make_ready(folder: Path) -> None:
    """The small runs and datasets that inputs are made from, by a process of its own.

    A process that has trained must not be forked: torch's gradients have threads.
    """
    process = multiprocessing.get_context("fork").Process(target=materials.make, args=(folder,))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError("what the inputs are made from could not be made")


class Worker:
    """A forked process that uses a batch of inputs."""

    def __init__(self, seed: int, batch: Batch, root: Path):
        context = multiprocessing.get_context("fork")
        self.batch, self.left = batch, list(batch.numbers)
        self.now: tuple[int, str] | None = None
        self.since = time.monotonic()
        self.connection, other = context.Pipe(duplex=False)
        self.process = context.Process(target=_use_batch, args=(seed, batch, root, other))
        self.process.start()
        other.close()

    def receive(self) -> Finding | None:
        """The next finding; None if the process only says what it begins. EOFError at its end."""
        message = self.connection.recv()
        self.since = time.monotonic()
        if isinstance(message, Finding):
            self.left.remove(message.number)
            self.now = None
            return message
        self.now = message
        return None

    def end(self, failure: str, outcome: str) -> Finding | None:
        """End the process; what it was at, if anything, has failed."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        if not self.left:
            return None
        number, what = self.now or (self.left[0], "while it was made")
        self.left.remove(number)
        return Finding(self.batch.kind, number, what, failure, outcome, time.monotonic() - self.since)


def work(
    seed: int, batches: list[Batch], root: Path, jobs: int, tell: Callable[[Finding], None]
) -> list[Finding]:
    findings: list[Finding] = []
    workers: list[Worker] = []

    def found(finding: Finding | None) -> None:
        if finding is not None:
            findings.append(finding)
            tell(finding)

    def leave(worker: Worker, failure: str, outcome: str) -> None:
        workers.remove(worker)
        found(worker.end(failure, outcome))
        if worker.left:
            batches.insert(0, Batch(worker.batch.kind, worker.left))

    try:
        while batches or workers:
            while batches and len(workers) < jobs:
                workers.append(Worker(seed, batches.pop(0), root))
            ready_now = wait([worker.connection for worker in workers], timeout=1)
            for worker in list(workers):
                if worker.connection in ready_now:
                    try:
                        found(worker.receive())
                    except EOFError:
                        worker.process.join()
                        leave(worker, TRACEBACK, f"the process ended: exit code {worker.process.exitcode}")
                elif time.monotonic() - worker.since > WALL_SECONDS:
                    leave(worker, HANG, f"nothing for {WALL_SECONDS} seconds")
    finally:
        for worker in workers:
            worker.end(HANG, "the campaign was ended")
    return findings


# In the forked process


def _use_batch(seed: int, batch: Batch, root: Path, connection: Connection) -> None:
    _protect()
    for number in batch.numbers:
        folder = root / f"{batch.kind}-{number}"
        folder.mkdir()
        os.chdir(folder)
        try:
            connection.send(use(seed, batch.kind, number, folder, root / "ready", connection))
        finally:
            os.chdir(root)
            _remove(folder)
    connection.close()
    os._exit(0)  # nothing of the parent's is to be torn down here


def use(
    seed: int, kind: str, number: int, folder: Path, ready_folder: Path, connection: Connection
) -> Finding:
    """Make one input, say what it is, use it within the bounds, and judge it."""
    case = KINDS[kind].make(random.Random(f"{seed} {kind} {number}"), folder, ready_folder)
    connection.send((number, case.what))
    before, began = _reset_peak(), time.process_time()
    failure, outcome = judge(case, _limited())
    seconds, grown = time.process_time() - began, _peak() - before
    if not failure and grown > MEMORY_BYTES:
        failure, outcome = MEMORY, f"{grown / 2**20:.0f} MB more; {outcome}"
    return Finding(kind, number, case.what, failure, outcome, seconds)


@contextmanager
def _limited() -> Iterator[None]:
    """A Hang if the block takes too long."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _protect() -> None:
    """Bounds for this process: time, memory, and no other programs."""

    def hang(*_: object) -> None:
        raise Hang

    def audit(event: str, arguments: tuple) -> None:
        if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            raise Started(f"{event} {arguments[:2]}")

    signal.signal(signal.SIGPROF, hang)
    sys.addaudithook(audit)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ADDRESS_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reset_peak() -> int:
    """Forget the most memory that this process has had; what it has now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process has had")


def counts(findings: list[Finding]) -> dict[str, int]:
    """How many inputs failed, by the way they did."""
    found = Counter(finding.failure for finding in findings)
    return {failure: found[failure] for failure in FAILURES}
