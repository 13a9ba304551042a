"""Every Triton kernel compiles for GPUs that are not here, within their registers and shared memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: `make test` installs it where it can")

from triton_cases import CASES

# registers of a thread, registers of a program's share of a processor, bytes of shared memory of a program
LIMITS = {
    "sm_80": (255, 65536, 163 * 1024),
    "sm_90": (255, 65536, 227 * 1024),
    "gfx942": (512, 131072, 65536),
}
THREADS = {"sm_80": 32, "sm_90": 32, "gfx942": 64}  # of a warp
SPILLED = 32  # bytes of a thread, eight registers, that may go to memory


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kernels_compile_within_the_limits_of_devices(case):
    """In a process of its own: here Triton interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).with_name("ahead_of_time.py")), case]
    shown = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in shown.splitlines()]
    assert {line[1] for line in lines} == set(LIMITS)
    for kernel, target, *numbers in lines:
        warps, registers, shared, spilled = map(int, numbers)
        of_a_thread, of_a_processor, bytes_shared = LIMITS[target]
        assert 0 < registers <= of_a_thread, f"{kernel} on {target}"
        assert registers * warps * THREADS[target] <= of_a_processor, f"{kernel} on {target}"
        assert shared <= bytes_shared, f"{kernel} on {target}"
        assert spilled <= SPILLED, f"{kernel} on {target}"
