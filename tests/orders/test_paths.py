"""One switch chooses the program that computes a kernel."""

import subprocess
import sys

import pytest
import torch

from reorder.models.kernels.causal_conv import causal_conv_silu
from reorder.orders import paths
from reorder.orders.paths import PATHS, choose_path


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    monkeypatch.delenv("REORDER_KERNELS", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(paths, "INSTALLED", list(PATHS))


class Pretended:
    """What choose_path looks at, of a tensor on a device that is not here."""

    def __init__(self, device, dtype=torch.float32):
        self.device, self.dtype = torch.device(device), dtype


@pytest.mark.parametrize(
    ("device", "installed", "has", "expected"),
    [
        ("cpu", PATHS, PATHS, "numba"),
        ("cpu", ["torch", "triton"], PATHS, "torch"),
        ("cpu", PATHS, ("torch", "triton"), "torch"),
        ("cuda", PATHS, PATHS, "mamba_ssm"),
        ("cuda", ["torch", "triton"], PATHS, "triton"),
        ("cuda", PATHS, ("torch", "triton"), "triton"),
        ("cuda", ["torch", "mamba_ssm"], PATHS, "mamba_ssm"),
        ("cuda", ["numba", "torch"], PATHS, "torch"),
        ("cuda", ["torch", "mamba_ssm"], ("torch", "triton"), "torch"),
        ("mps", PATHS, PATHS, "torch"),
        ("meta", PATHS, PATHS, "torch"),
    ],
)
def test_the_fastest_for_the_device_that_is_installed(device, installed, has, expected, monkeypatch):
    monkeypatch.setattr(paths, "INSTALLED", list(installed))
    assert choose_path(None, Pretended(device), has) == expected


def test_the_argument_counts_more_than_the_variable(monkeypatch):
    x = torch.zeros(1)
    monkeypatch.setenv("REORDER_KERNELS", "torch")
    assert choose_path(None, x, PATHS) == "torch"
    assert choose_path("numba", x, PATHS) == "numba"


def test_the_variable_is_for_kernels_that_have_the_path(monkeypatch):
    monkeypatch.setattr(paths, "INSTALLED", ["torch", "triton"])
    monkeypatch.setenv("REORDER_KERNELS", "mamba_ssm")
    assert choose_path(None, Pretended("cuda"), PATHS) == "mamba_ssm"
    assert choose_path(None, Pretended("cuda"), ("torch", "triton")) == "triton"


def test_unknown_paths_are_named(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown kernel path 'mamba_ssm'; choose from \['numba', 'torch'"):
        causal_conv_silu(torch.zeros(1, 2, 3), torch.zeros(3, 4), torch.zeros(3), path="mamba_ssm")
    monkeypatch.setenv("REORDER_KERNELS", "fast")
    with pytest.raises(ValueError, match=r"unknown kernel path 'fast'; choose from \['numba', 'torch', 'tri"):
        choose_path(None, torch.zeros(1), ("torch",))


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        ("mamba_ssm", Pretended("cpu"), "'mamba_ssm' needs tensors on cuda, got cpu"),
        ("triton", Pretended("cpu"), "'triton' needs tensors on cuda, got cpu"),
        ("numba", Pretended("cuda"), "'numba' needs tensors on cpu, got cuda"),
        ("triton", Pretended("cuda", torch.float64), "computes in float32, got float64"),
    ],
)
def test_tensors_that_a_path_cannot_compute_are_refused(name, x, message):
    with pytest.raises(ValueError, match=message):
        choose_path(name, x, PATHS)


def test_double_precision_on_a_gpu_is_computed_by_torch():
    assert choose_path(None, Pretended("cuda", torch.float64), ("torch", "triton")) == "torch"


def test_triton_interprets_on_the_cpu_if_told_so(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose_path("triton", Pretended("cpu"), PATHS) == "triton"
    monkeypatch.setattr(paths, "INSTALLED", ["torch"])
    with pytest.raises(ValueError, match=r"pip install 'reorder\[triton\]'"):
        choose_path("triton", Pretended("cpu"), PATHS)


@pytest.mark.slow
def test_importing_reorder_does_not_import_triton():
    code = "import sys, reorder, reorder.models.backbones; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
