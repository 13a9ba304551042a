"""Real sweeps of tiny runs, and what watches them."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from reorder.config import build
from reorder.experiments.arguments import full_key, plans_of
from reorder.experiments.grids import tasks_of
from reorder.experiments.presets import preset
from reorder.experiments.studies import Planned

TINY = [
    "digits",
    "policy=none",
    "model.patch_size=4",
    "train.epochs=1",
    "batch_size=512",
    "threads=1",
]
LONG = [*TINY[:3], "train.epochs=5000", *TINY[4:]]


def tasks(arguments, out):
    return tasks_of(plans_of(arguments)[0], out)


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def learned(out, policy="global"):
    """A run that reads, from the start, what another has learned."""
    teacher = build(preset("digits"), overrides=[f"order.policy={policy}", *_full(TINY[2:])])
    plain = build(teacher, overrides=["order.policy=none"])
    return tasks_of([Planned(plain, learned_from=teacher)], out)


def _full(overrides):
    keys = [override.partition("=") for override in overrides]
    return [f"{full_key(key)}={value}" for key, _, value in [*keys, ("train.compare", "", "false")]]


def pids_of(*texts):
    """Processes whose command line has all of some texts."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if all(text in command for text in texts):
                found.append(int(path.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def training_in(directory):
    """Processes that train a run in or below a directory: those that write to its log.txt."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/1"):
        with suppress(OSError):  # it ended meanwhile, or is not ours
            log = path.readlink()
            if log.name == "log.txt" and directory in log.parents:
                found.append(int(path.parts[2]))
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
