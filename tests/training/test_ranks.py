"""Several processes: how they end, together, whatever happens to one of them."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from short_runs import OVERRIDES, QUIET, experiment
from tiny_sweeps import needs_proc, wait_for

from reorder.config import Experiment, build, keys_that_matter
from reorder.runs.directory import RunDir
from reorder.training import loop as training

pytestmark = pytest.mark.slow  # it trains, or starts processes


TRAIN = ["train", "digits", *OVERRIDES, "--quiet", "--no-report"]


def start_ranks(*command):
    """Two processes of one world, without torchrun, which would end the second when the first ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=os.environ | world | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]


def ends_of(processes):
    """The status, the output and the lines of errors of each; those of torch itself begin with a bracket."""
    ends = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=600)
            lines = [line for line in errors.splitlines() if not line.startswith("[")]
            ends.append((process.returncode, output, lines))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return ends


THREADS = """
import glob
from reorder.cli import main
try:
    main()
finally:
    names = [open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")]
    print("gloo threads:", [name for name in names if "gloo" in name])
"""


@needs_proc
@pytest.mark.parametrize(
    ("change", "status"), [("train.keep=2", 0), ("train.learning_rate=1e30", 2)], ids=["finished", "failed"]
)
def test_the_threads_of_the_group_end_before_the_interpreter(tmp_path, change, status):
    # One that is left may drop a tensor while the interpreter shuts down, which aborts the process.
    (tmp_path / "watched.py").write_text(THREADS)
    ranks = start_ranks(tmp_path / "watched.py", *TRAIN, "train.epochs=4", change, "--out", tmp_path / "run")
    for found, output, errors in ends_of(ranks):
        assert (found, output) == (status, "gloo threads: []\n"), errors


TOGETHER = """
import os, time
from pathlib import Path
import torch._dynamo  # which the first step would import, sooner here than there
from reorder.cli import main
(Path(__file__).parent / os.environ["RANK"]).touch()
while not all((Path(__file__).parent / rank).exists() for rank in "01"):
    time.sleep(0.05)
main()
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            signal.SIGSTOP,
            "another process has not answered for 0.3 minutes (train.timeout_minutes)",
        ),
        (signal.SIGKILL, "another process of this run has ended; its last message says why"),
    ],
)
def test_a_rank_says_in_one_line_that_another_hangs_or_has_ended(tmp_path, number, said):
    long = [*TRAIN, "train.epochs=5000", "train.timeout_minutes=0.3"]
    (tmp_path / "together.py").write_text(TOGETHER)
    ranks = start_ranks(tmp_path / "together.py", *long, "--out", tmp_path / "run")
    try:
        wait_for(lambda: list(tmp_path.glob("run/checkpoints/step-*")), seconds=600)
        ranks[1].send_signal(number)
        ((status, _, lines),) = ends_of(ranks[:1])
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert status == 1
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"reorder: {said}")


def test_a_rank_whose_others_never_start_says_so_in_one_line(tmp_path):
    alone, other = start_ranks(
        "-m", "reorder", *TRAIN, "train.timeout_minutes=0.02", "--out", tmp_path / "run"
    )
    other.kill()
    ((status, _, lines), _) = ends_of([alone, other])
    assert status == 1
    assert len(lines) == 1, lines
    assert lines[0].startswith("reorder: another process has not answered for 0.02 minutes")


def test_the_wait_for_others_is_a_finite_time_and_no_part_of_what_a_run_is():
    for minutes in ("0", "-1", "inf", "nan", "1e300"):
        with pytest.raises(ValueError, match=r"train\.timeout_minutes must be above 0 and at most 43200"):
            build(Experiment(), overrides=[f"train.timeout_minutes={minutes}"])
    patient = build(Experiment(), overrides=["train.timeout_minutes=43200"])
    assert keys_that_matter(patient) == keys_that_matter(Experiment())


@pytest.mark.parametrize("resumed", [False, True])
def test_all_ranks_refuse_a_directory_that_another_process_trains_in(tmp_path, resumed):
    directory = RunDir(tmp_path / "run")
    training.train(experiment(epochs=1), directory, QUIET)
    where = ["train", "--resume", directory.path] if resumed else [*TRAIN, "--out", tmp_path / "new"]
    lock = RunDir(where[-1]).lock()
    try:
        ends = ends_of(start_ranks("-m", "reorder", *where))
    finally:
        os.close(lock)
    refusal = f"reorder: {where[-1]} is being trained by another process; wait until it ends"
    assert [(status, errors) for status, _, errors in ends] == [(2, [refusal])] * 2
