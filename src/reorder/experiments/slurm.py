"""A sweep on Slurm, through submitit: a job for each run, put back in the queue when its time is over."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from reorder.experiments.arguments import slurm_parameter
from reorder.experiments.grids import Task, last_line, start, why_unusable
from reorder.experiments.here import Failed

MOST_TIMEOUTS = 100  # after which a job is no longer put back; it is the run's length in jobs
TIMEOUT_MINUTES = 240
POLL_SECONDS = 0.2


class Job:
    """Runs, one after the other, in one job: submitit calls it, and `checkpoint` before the time is over."""

    def __init__(self, tasks: list[Task]):
        self.tasks = tasks
        self.process: subprocess.Popen | None = None
        self.terminated = False

    def __call__(self) -> None:
        signal.signal(signal.SIGTERM, self._pass_on)
        for task in self.tasks:
            self.train(task)

    def train(self, task: Task) -> None:
        """Bring one run to its end; the process that trains is the one a local sweep would start."""
        while not task.finished:
            if (lock := task.directory.lock()) is None:
                raise RuntimeError(f"{task.name} is being trained by another process")
            self.terminated = False
            try:
                if why := why_unusable(task):
                    raise RuntimeError(f"{task.name}: {why}")
                self.process = start(task, lock, launcher(), {})
            finally:
                os.close(lock)
            while self.process.poll() is None:
                time.sleep(POLL_SECONDS)
            # SIGTERM announces the end: the training has saved then, and goes on until SIGUSR2 puts the job
            # back or Slurm kills it.
            if not task.finished and not self.terminated:
                raise RuntimeError(f"{task.name}: {last_line(task)}")

    def checkpoint(self) -> Any:
        """Have the run saved; what is to be submitted again."""
        from submitit.helpers import DelayedSubmission

        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            # Popen.wait would wait for itself: this runs in a signal handler, maybe during poll().
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(Job(self.tasks))

    def _pass_on(self, number: int, frame: Any) -> None:
        """Pass SIGTERM on: where cgroups hold a job together, Slurm signals this process alone."""
        self.terminated = True
        if self.process is not None:
            self.process.terminate()


def launcher() -> list[str]:
    """How a run is started in a job: by torchrun if the job has several GPUs."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)]


def grouped(tasks: list[Task]) -> list[list[Task]]:
    """Unfinished runs by job: one that reads another's order follows it in the same job."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        if not task.finished:
            groups.setdefault(task.needs if task.needs in groups else task.name, []).append(task)
    return list(groups.values())


def submit(tasks: list[Task], folder: Path, options: list[str], cluster: str = "slurm") -> list[Any]:
    """Submit all unfinished runs as an array of jobs; submitit's files go to `folder`."""
    try:
        import submitit
    except ImportError:
        raise ValueError("--slurm needs submitit; install it with: pip install 'reorder[slurm]'") from None
    parameters = {"name": "reorder", "timeout_min": TIMEOUT_MINUTES} | dict(map(slurm_parameter, options))
    timeouts = {f"{cluster}_max_num_timeout": MOST_TIMEOUTS}
    try:
        executor = submitit.AutoExecutor(folder, cluster=cluster, **timeouts)
        executor.update_parameters(**parameters)
    except RuntimeError:
        raise ValueError("--slurm needs Slurm's srun and sbatch; there are none on this machine") from None
    except (NameError, AssertionError, TypeError) as error:
        raise ValueError(f"--slurm-option: {str(error).splitlines()[0]}") from None
    groups = grouped(tasks)
    if not groups:
        return []
    with executor.batch():
        return [executor.submit(Job(group)) for group in groups]


def submit_and_wait(tasks: list[Task], folder: Path, options: list[str], cluster: str = "slurm") -> None:
    """Submit all unfinished runs, and go on when their jobs have ended; raises Failed if a run has not."""
    for job in submit(tasks, folder, options, cluster):
        job.wait()
    left = [task for task in tasks if not task.finished]
    if left:
        raise Failed(
            f"{len(left)} of {len(tasks)} runs failed, the first: {left[0].directory.path}: "
            f"{last_line(left[0])}; the same command continues"
        )
