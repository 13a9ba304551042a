"""What a run survives: kill -9 at any call to the file system and at any time, signals, a full disk, others.

    python tests/torture.py --calls 100 --times 100 --signals 20 --full 20 --writers 20 --seed 0

Every life of a run is a process forked from this one, which has imported everything but trained nothing, so
that a life costs no start. A run that is killed, stopped or out of space is started again in its directory
until it ends. Then all in which two runs can differ, but for times, must be equal to a run that nothing
happened to; and no life may refuse, or go back behind a checkpoint that an earlier one had finished.
"""

import argparse
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch
from short_runs import QUIET, assert_same, experiment

from reorder import train as training
from reorder.config import Data
from reorder.distributed import Stopped
from reorder.run_dir import RunDir

CALLS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.scandir", "os.listdir"}
SAVED, RESUMED, REFUSED, CRASHED = "saved", "resumed", "refused", "crashed"
REFUSED_STATUS, CRASHED_STATUS = 2, 3
LIFE_CALLS = 160  # to the file system, of a life that is killed: some six checkpoints


def settings(seed=0):
    """18 checkpoints: one after every step, and at the end of each epoch a second one of the same step."""
    few = Data(augment="flip", train_images=160, validation_images=40)
    return replace(experiment(batch_size=32, checkpoint_steps=1, seed=seed), data=few)


class Life:
    """One process that trains a run, and what it tells: the steps that it saved, and where it resumed."""

    def __init__(self, directory, seed=0, at_call=None, then=None):
        """`then()` is called right before the call to the file system with the number `at_call`."""
        self.words, tell = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            status = CRASHED_STATUS
            try:
                os.close(self.words)
                status = live(directory, seed, at_call, then, tell)
            except BaseException:
                os.write(tell, f"{CRASHED} {traceback.format_exc()!r}\n".encode())
            finally:
                os._exit(status)
        os.close(tell)

    def end(self):
        """Wait for the end: the status, negative for the signal that killed it, and what was told."""
        with open(self.words) as words:
            lines = words.read().splitlines()
        _, status = os.waitpid(self.process, 0)
        return os.waitstatus_to_exitcode(status), [line.partition(" ")[::2] for line in lines]


def live(directory, seed, at_call, then, tell):
    """Train as the command does; the status to exit with."""
    save, restore = RunDir.save_checkpoint, training.restore

    def saved(self, step, checkpoint, keep):
        save(self, step, checkpoint, keep)
        os.write(tell, f"{SAVED} {step}\n".encode())

    def restored(run, where, display):
        restore(run, where, display)
        os.write(tell, f"{RESUMED} {run.step}\n".encode())

    RunDir.save_checkpoint, training.restore = saved, restored
    if at_call is not None:
        watch_calls(str(directory.path), at_call, then)
    try:
        training.train(settings(seed), directory, QUIET)
    except Stopped as stopped:
        return stopped.status
    except (ValueError, OSError) as refused:
        os.write(tell, f"{REFUSED} {refused}\n".encode())
        return REFUSED_STATUS
    return 0


def watch_calls(path, at_call, then):
    """Call `then` right before the calls to the file system from a number on, as Python's audit sees them."""
    count, fsync = 0, os.fsync

    def called():
        nonlocal count
        count += 1
        if count >= at_call:
            then()

    def hook(event, arguments):
        if event in CALLS and (event != "open" or str(arguments[0]).startswith(path)):
            called()

    def watched(descriptor):
        called()
        fsync(descriptor)

    os.fsync = watched  # which is not audited
    sys.addaudithook(hook)


def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def disk_is_full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Campaign:
    """Runs in all sorts of trouble, counted."""

    def __init__(self, folder, seed):
        self.folder, self.draw, self.counts = folder, random.Random(seed), Counter()
        self.wholes, self.failures = {}, []
        began = time.monotonic()
        for number in (0, 1):
            self.wholes[number] = RunDir(folder / f"whole-{number}")
            status, told = Life(self.wholes[number], number).end()
            assert status == 0, told
        self.seconds = (time.monotonic() - began) / 2

    def fresh(self):
        self.counts["runs"] += 1
        return RunDir(self.folder / f"run-{self.counts['runs']}")

    def look(self, directory, status, told, newest, expected=()):
        """Count what went wrong in a life; the newest step that is saved now."""
        resumed = [int(said) for word, said in told if word == RESUMED]
        if resumed and resumed[0] < newest:
            self.wrong("restarted", f"{directory.path}: from {resumed[0]} although {newest} was saved")
        for word, said in told:
            if word == CRASHED or (word == REFUSED and not any(text in said for text in expected)):
                self.wrong("refused", f"{directory.path}: {said}")
        if status not in (0, REFUSED_STATUS) and -status not in KILLS and status - 128 not in SIGNALS:
            self.wrong("refused", f"{directory.path}: ended with status {status}")
        return max([newest, *(int(said) for word, said in told if word == SAVED)])

    def wrong(self, kind, text):
        self.counts[kind] += 1
        self.failures.append(f"{kind}: {text}")

    def compare(self, directory, seed=0):
        """Count a run that is not, bit for bit, what it is without trouble."""
        self.counts["finished"] += 1
        try:
            assert_same(directory, self.wholes[seed])
        except (AssertionError, ValueError) as error:
            self.wrong("different", f"{directory.path}: {error}")
        shutil.rmtree(directory.path)

    def kills_at_calls(self, count):
        """So many kills, each right before a call to the file system."""
        self.trouble(count, lambda: {"at_call": self.draw.randint(1, LIFE_CALLS), "then": kill_self})

    def kills_at_times(self, count):
        """So many kills at any time."""
        self.trouble(count, dict, (signal.SIGKILL,))

    def signals(self, count):
        """So many signals that ask for an end, each at any time of a life."""
        self.trouble(count, dict, SIGNALS)

    def trouble(self, count, options, numbers=()):
        """Runs one after the other, each ended and started again until it finishes; `count` ends in all."""
        done, directory, newest = 0, self.fresh(), 0
        while True:
            life = Life(directory, **options() if done < count else {})
            if numbers and done < count:
                time.sleep(self.draw.uniform(0, self.seconds))
                with suppress(ProcessLookupError):
                    os.kill(life.process, self.draw.choice(numbers))
            status, told = life.end()
            newest = self.look(directory, status, told, newest)
            done += status < 0 or status > 128
            if status == 0:
                self.compare(directory)
                if done == count:
                    return
            if status in (0, REFUSED_STATUS, CRASHED_STATUS):
                directory, newest = self.fresh(), 0

    def full_disks(self, count):
        """A disk that is full at some moment, and then has room again."""
        size = sum(path.stat().st_size for path in self.wholes[0].path.glob("checkpoints/step-000000015/*"))
        for _ in range(count):
            name = f"disk-{self.counts['runs']}"
            room = int(size * self.draw.uniform(0.3, 3.2))  # two are kept while a third is written
            with small_disk(self.folder / name, room) as more_room:
                self.counts["runs"] += 1
                directory = RunDir(self.folder / name / "run")
                if more_room is None:  # not allowed to make one: every call fails from one of them on
                    life = Life(directory, at_call=self.draw.randint(1, LIFE_CALLS), then=disk_is_full)
                else:
                    life = Life(directory)
                status, told = life.end()
                newest = self.look(directory, status, told, 0, FULL)
                if more_room is not None:
                    more_room()
                status, told = Life(directory).end()
                self.look(directory, status, told, newest)
                if status == 0:
                    self.compare(directory)

    def writers(self, count):
        """Two processes of one run, and one of another seed, that all want one directory at once."""
        for _ in range(count):
            directory, lives = self.fresh(), []
            for seed in self.draw.sample([0, 0, 1], 3):
                lives.append((seed, Life(directory, seed)))
                time.sleep(self.draw.choice([0, self.draw.uniform(0, self.seconds)]))
            ends = [(seed, *life.end()) for seed, life in lives]
            for _, status, told in ends:
                self.look(directory, status, told, 0, LOCKED_OUT)
            winners = {seed for seed, status, _ in ends if status == 0}
            trained = sum(any(word == RESUMED for word, _ in told) for _, _, told in ends)
            if len(winners) != 1 or trained != 1:
                self.wrong("different", f"{directory.path}: {trained} have trained, seeds {winners}")
            else:
                self.compare(directory, winners.pop())


KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals before training began kill
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FULL = ("No space left on device", "cannot write a checkpoint")
LOCKED_OUT = ("is being trained by another process", "holds a run of another configuration")


@contextmanager
def small_disk(path, room):
    """A disk with so many bytes in a directory, and what gives it more; None where that is not allowed."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=100m", str(path)], check=True)
    finally:
        subprocess.run(["umount", str(path)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, count in (
        ("calls", 100),
        ("times", 100),
        ("signals", 20),
        ("full", 20),
        ("writers", 20),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=count)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    training.setup(settings())  # imports and compiles; without a backward pass, after which none may fork
    began = time.monotonic()
    memory = Path("/dev/shm")  # in which to wait for the disk takes no time
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        campaign = Campaign(Path(folder), chosen.seed)
        parts = {
            "kill -9 at a call to the file system": (campaign.kills_at_calls, chosen.calls),
            "kill -9 at any time": (campaign.kills_at_times, chosen.times),
            "SIGTERM, SIGINT, SIGHUP": (campaign.signals, chosen.signals),
            "full disk": (campaign.full_disks, chosen.full),
            "three writers at once": (campaign.writers, chosen.writers),
        }
        print(f"{'':38} times  runs  different  refused  restarted")
        for name, (work, count) in parts.items():
            if not count:
                continue
            before = campaign.counts.copy()
            work(count)
            found = campaign.counts - before
            wrong = [found[kind] for kind in ("different", "refused", "restarted")]
            row = f"{name:38} {count:5}  {found['finished']:4}  {wrong[0]:9}  {wrong[1]:7}  {wrong[2]:9}"
            print(row, flush=True)
    for failure in campaign.failures:
        print(failure)
    print(f"{campaign.counts['finished']} runs in {time.monotonic() - began:.0f} s, seed {chosen.seed}")
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    main()
