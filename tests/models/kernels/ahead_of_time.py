"""Compiles for GPUs, without one, what functions would launch: python ahead_of_time.py NAME prints a table.

`launches` runs a function on the CPU and notes its Triton kernels instead of starting them; `compile_for` is
what triton's own launcher would then do for the same arguments.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int64: "*i64"}


class Launch(NamedTuple):
    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]


class Cost(NamedTuple):
    """Of one kernel on one device: registers of a thread, bytes of a program, bytes of a thread."""

    registers: int
    shared: int
    spilled: int


def launches(function: Callable[[], Any]) -> list[Launch]:
    """The kernels that a function starts, with their arguments; none is run."""
    noted = []

    def note(kernel, *arguments, grid, warmup, **rest):
        assert all(1 <= size <= limit for size, limit in zip(grid, (2**31 - 1, 65535, 65535), strict=False))
        options = {name: rest.pop(name) for name in OPTIONS if name in rest}
        noted.append(Launch(kernel, dict(zip(kernel.arg_names, arguments, strict=False)) | rest, options))

    with patch.object(triton.runtime.JITFunction, "run", note):
        function()
    return noted


def compile_for(launch: Launch, target: GPUTarget) -> Any:
    """As the launcher does it: None, 1 and tl.constexpr are part of the program, sixteens are aligned."""
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        if isinstance(value, torch.Tensor):
            signature[parameter.name] = POINTERS[value.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]
        elif parameter.is_constexpr or value is None or value == 1:
            signature[parameter.name], constants[(place,)] = "constexpr", value
        else:
            signature[parameter.name] = {int: "i32", float: "fp32"}[type(value)]
            if type(value) is int and value % 16 == 0:
                attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton.compile(source, target=target, options=launch.options)


def cost(compiled: Any, target: GPUTarget) -> Cost:
    """What the assembler says of a compiled kernel."""
    if target.backend == "hip":
        text = compiled.asm["amdgcn"]
        registers, spilled = (
            int(re.search(rf"\.{name}:\s+(\d+)", text)[1]) for name in ("vgpr_count", "vgpr_spill_count")
        )
        return Cost(registers, compiled.metadata.shared, 4 * spilled)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    registers, spilled = (int(re.search(rf"{name}:(\d+)", text)[1]) for name in ("REG", "STACK"))
    return Cost(registers, compiled.metadata.shared, spilled)


def table(name: str) -> None:
    """Every kernel of a case for every target, one line each: kernel, target, warps, cost."""
    from triton_cases import CASES

    for launch in launches(CASES[name]):
        for target_name, target in TARGETS.items():
            found = cost(compile_for(launch, target), target)
            print(launch.kernel.__name__, target_name, launch.options["num_warps"], *found, flush=True)


if __name__ == "__main__":
    table(sys.argv[1])
