"""Processes that train one run after the other: to the bit like processes of their own, whatever happens."""

import os
import signal
import threading

import pytest
from rich.console import Console
from short_runs import assert_same
from tiny_sweeps import LONG, TINY, needs_proc, tasks, wait_for

from reorder.experiments.here import Failed, Machine, Sweep, run_here
from reorder.experiments.workers import Pool
from reorder.training.signals import Stopped

pytestmark = pytest.mark.slow  # it trains, or starts processes

CONSOLE = Console(quiet=True)


def test_runs_that_share_a_process_are_those_that_have_their_own(tmp_path):
    arguments = [*TINY, "scan=row,column"]
    machine = Machine(1, 2)
    alone, together = tasks(arguments, tmp_path / "alone"), tasks(arguments, tmp_path / "together")
    run_here(alone, machine, CONSOLE, "")
    with Pool(machine) as pool:
        run_here(together, machine, CONSOLE, "", pool)
        assert len(pool.workers) == 1
    for ours, theirs in zip(together, alone, strict=True):
        assert_same(ours.directory, theirs.directory)
    assert pool.workers[0].process.returncode == 0
    assert "epoch 1/1" in (together[1].directory.path / "log.txt").read_text()


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_run_that_fails_or_dies_leaves_the_others_alone(tmp_path):
    row, column, spiral = tasks([*TINY, "scan=row,column,spiral"], tmp_path)
    row.directory.path.mkdir()
    (row.directory.path / "checkpoints").write_text("in the way")  # no checkpoint can be written
    machine = Machine(1, 3)
    with Pool(machine) as pool:
        with pytest.raises(Failed, match=r"1 of 2 runs failed, the first: .*row.*checkpoints"):
            run_here([row, column], machine, CONSOLE, "", pool)
        assert column.finished
        first = pool.workers[0].process
        assert first.poll() is None  # it waits for more
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        run_here([spiral], machine, CONSOLE, "", pool)
        assert spiral.finished
        assert pool.workers[0].process.pid != first.pid


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_worker_that_is_killed_at_work_fails_its_run(tmp_path):
    (long,) = tasks(LONG, tmp_path)
    machine = Machine(1, 1)
    with Pool(machine) as pool:

        def kill():
            wait_for(lambda: long.epochs_done >= 1)
            os.kill(pool.workers[0].process.pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(Failed, match="killed by SIGKILL"):
            run_here([long], machine, CONSOLE, "", pool)
        thread.join()
    assert long.directory.lock() is not None  # it is nobody's now


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_worker_that_is_stopped_at_work_leaves_the_next_run_to_another(tmp_path):
    (long,), (short,) = tasks(LONG, tmp_path), tasks([*TINY, "scan=column"], tmp_path)
    machine = Machine(1, 2)
    with Pool(machine) as pool:

        def stop():
            wait_for(lambda: long.epochs_done >= 1)
            pool.workers[0].process.terminate()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Failed, match="1 of 2 runs failed"):
            run_here([long, short], machine, CONSOLE, "", pool)
        thread.join()
    assert short.finished


@needs_proc
@pytest.mark.usefixtures("nothing_trains_on")
def test_a_signal_has_the_run_saved_and_the_process_ended(tmp_path):
    (long,) = tasks([*LONG, "checkpoint_minutes=1000"], tmp_path)
    machine = Machine(1, 1)
    with Pool(machine) as pool:
        sweep = Sweep([long], machine, CONSOLE, pool)

        def stop():
            wait_for(lambda: long.epochs_done >= 1)
            os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Stopped):
            sweep.run()
        thread.join()
        assert pool.workers[0].process.wait(60) == 0
    assert "stopped by SIGTERM and saved" in (long.directory.path / "log.txt").read_text()
    assert list((long.directory.path / "checkpoints").glob("step-*"))
