"""Which of several programs computes a kernel: one switch for all of them.

"numba" (CPU), "triton" (CUDA and ROCm; float32 and half precision), "mamba_ssm" (CUDA, the scan alone) and
"torch" (any device, every kernel). The variable REORDER_KERNELS forces one wherever a kernel has it.
"""

import importlib.util
import os

import torch
from torch import Tensor

PATHS = ("numba", "torch", "triton", "mamba_ssm")
INSTALLED = [path for path in PATHS if importlib.util.find_spec(path)]
# torch calls ROCm's devices cuda too; mamba_ssm, where someone has built it, has been timed for years
FASTEST = {"cpu": ("numba",), "cuda": ("mamba_ssm", "triton")}
DEVICES = {"numba": "cpu", "triton": "cuda", "mamba_ssm": "cuda"}


def choose_path(path: str | None, x: Tensor, has: tuple[str, ...]) -> str:
    """The name of the path for x, among those a kernel has: the argument, the variable, or the fastest."""
    forced = os.environ.get("REORDER_KERNELS") or None
    if forced not in (None, *PATHS):
        raise ValueError(f"unknown kernel path {forced!r}; choose from {list(PATHS)}")
    if path not in (None, *has):
        raise ValueError(f"unknown kernel path {path!r}; choose from {list(has)}")
    name = path or (forced if forced in has else None)
    if torch.compiler.is_exporting():  # what other runtimes know
        return "torch"
    double = x.dtype == torch.float64
    if name is None:
        quick = [each for each in FASTEST.get(x.device.type, ()) if each in has and each in INSTALLED]
        return next((each for each in quick if not (each == "triton" and double)), "torch")
    device = DEVICES.get(name, x.device.type)
    if name == "triton" and interprets():
        device = x.device.type
    if x.device.type not in (device, "meta"):
        raise ValueError(f"kernel path {name!r} needs tensors on {device}, got {x.device.type}")
    if name not in INSTALLED and name == "triton":
        raise ValueError("kernel path 'triton' needs the package: pip install 'reorder[triton]'")
    if name == "triton" and double:
        raise ValueError("kernel path 'triton' computes in float32, got float64; choose 'torch'")
    return name


def interprets() -> bool:
    """Whether Triton interprets its kernels, on any device, instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"
