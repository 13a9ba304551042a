"""Processes that train one run after the other: many short runs share the seconds that a start takes.

A run is trained as `reorder train --resume DIRECTORY` trains it, to the bit; its words go to its log.txt. A
run that is refused leaves its process to the next one; one that is stopped or crashes ends it.
"""

import gc
import os
import select
import socket
import subprocess
import sys
import traceback
from contextlib import suppress

import torch

from reorder.config import Experiment
from reorder.data.datasets import Dataset, load_dataset
from reorder.data.progress import Display
from reorder.data.ranks import join
from reorder.experiments.grids import Task, with_threads
from reorder.experiments.here import Machine
from reorder.runs.directory import LOCKED, RunDir
from reorder.training.loop import train
from reorder.training.signals import Stopped, StopSignals


class Worker:
    """A process that trains, seen from the one that gives it runs."""

    def __init__(self, environment: dict[str, str]):
        self.connection, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reorder.experiments.workers", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=os.environ | environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the one that gives the runs
            )

    def close(self) -> None:
        """End the process, which waits for a run."""
        self.connection.close()
        self.process.wait()


class Turn:
    """A run in a worker's hands; the questions that are asked of a process of its own."""

    def __init__(self, worker: Worker, task: Task, lock: int):
        self.worker, self.pid = worker, worker.process.pid
        self.status: int | None = None
        socket.send_fds(worker.connection, [os.fsencode(task.directory.path)], [lock])

    def poll(self) -> int | None:
        """How the run ended, None if it has not."""
        if self.status is None and select.select([self.worker.connection], [], [], 0)[0]:
            answer = b""
            with suppress(ConnectionResetError):
                answer = self.worker.connection.recv(1)
            self.status = answer[0] if answer else self.worker.process.wait()  # it died
            if ends_process(self.status):
                self.worker.process.wait()  # or the next run would be given to a process that ends
        return self.status

    def terminate(self) -> None:
        self.worker.process.terminate()


class Pool:
    """A worker for each slot of a machine, started when it is first needed."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.workers: dict[int, Worker] = {}

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers.values():
            worker.close()

    def start(self, task: Task, lock: int, slot: int) -> Turn:
        """Give a locked run to the worker of a free slot."""
        task = with_threads(task, self.machine.threads)
        task.directory.create(task.experiment)
        worker = self.workers.get(slot)
        if worker is None or worker.process.poll() is not None:
            if worker is not None:
                worker.close()
            threads = {"OMP_NUM_THREADS": str(task.experiment.train.threads)}
            worker = self.workers[slot] = Worker(threads | self.machine.environment(slot))
        return Turn(worker, task, lock)


class Loaded:
    """The images of the last run, for the next one that wants the same."""

    def __init__(self) -> None:
        self.key = ""
        self.data: Dataset | None = None

    def load(self, experiment: Experiment) -> Dataset:
        key = repr((experiment.data, experiment.model.image_shape))
        if self.data is None or key != self.key:
            self.data = None  # not two in memory
            self.key, self.data = key, load_dataset(experiment.data, experiment.model.image_shape)
        return self.data


def ends_process(status: int) -> bool:
    """Whether a worker ends with a run: it was stopped, or met an error that may have damaged the process."""
    return status not in (0, 2)


def serve(connection: socket.socket) -> None:
    """Train what comes, each run with the lock that comes with it, and answer how it ended."""
    loaded = Loaded()
    while True:
        message, locks, _, _ = socket.recv_fds(connection, 65536, 1)
        if not message:
            return
        status = train_logged(RunDir(os.fsdecode(message)), loaded)
        for lock in locks:
            os.close(lock)
        with suppress(BrokenPipeError):  # whoever asked has gone
            connection.send(bytes([status]))
        if ends_process(status):
            return
        gc.collect()  # what is left of the run: an accelerator's memory, and what was compiled
        torch.cuda.empty_cache()
        torch.compiler.reset()


def train_logged(directory: RunDir, loaded: Loaded) -> int:
    """Bring a run to its end; what `reorder train` would exit with, whose words go to the run's log.txt."""
    os.environ[LOCKED] = str(directory.path)
    with open(directory.path / "log.txt", "a") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        try:
            experiment = directory.experiment()
            with join(experiment.train.timeout_minutes) as world, StopSignals().watched() as stop:
                train(experiment, directory, Display(), world, stop, loaded.load(experiment))
            return 0
        except Stopped as stopped:
            print(f"reorder: {stopped}", file=sys.stderr)
            return stopped.status
        except (ValueError, OSError) as error:
            print(f"reorder: {' '.join(str(error).split())}", file=sys.stderr)
            return 2
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own:
        serve(own)
