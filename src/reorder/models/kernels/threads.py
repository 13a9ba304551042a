"""Runs a numba kernel on the threads that torch already has.

numba's own threads would share the cores with torch's, which spin for milliseconds after every operation;
they also end the process when it was forked, or (workqueue) when two threads use them at once. So the kernels
are plain nogil functions over a range of tasks, and the OpenMP library that torch is linked with calls them.
"""

import ctypes
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

SHARES = 4  # ranges per thread, so that a thread whose core is taken does not hold up the others
_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# OpenMP's threads do not survive a fork: children, such as data-loader workers, compute alone.
_forked = threading.Event()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked.set)


def run(kernel: Callable, tasks: int, *arguments: Any) -> None:
    """kernel(first, last, *arguments) over tasks 0 ... tasks - 1, on as many threads as torch may use."""
    threads = min(torch.get_num_threads(), tasks)
    if threads == 1 or _forked.is_set():
        kernel(0, tasks, *arguments)
        return
    shares = min(threads * SHARES, tasks)
    bounds = [tasks * share // shares for share in range(shares + 1)]
    ranges, errors = itertools.pairwise(bounds), []
    lock = threading.Lock()

    def work(_: Any) -> None:
        while True:
            with lock:
                first, last = next(ranges, (tasks, tasks))
            if first == tasks:
                return
            try:
                kernel(first, last, *arguments)
            except BaseException as error:  # ctypes would print it and go on
                errors.append(error)

    start = _openmp()
    if start is None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
    else:
        start(_Work(work), None, threads, 0)
    if errors:
        raise errors[0]


@cache
def _openmp() -> Callable | None:
    """GOMP_parallel(function, data, threads, flags) of torch's OpenMP library, if it has one."""
    for library in Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"):
        try:
            start = ctypes.CDLL(str(library)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        start.argtypes = [_Work, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        start.restype = None
        return start
    return None
