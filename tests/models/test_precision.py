"""Half precision where a device multiplies it, and nowhere else."""

import pytest
import torch

from reorder.models.precision import autocast

CPU = torch.device("cpu")


def product_type(precision):
    with autocast(precision, CPU):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"amx_bf16": True, "avx512_bf16": False}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_bf16": False, "avx512_f": True, "amx_int8": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_is_bfloat16_where_a_cpu_multiplies_it(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert product_type("auto") == expected
    assert product_type("bfloat16") == torch.bfloat16  # asked for is asked for
    assert product_type("float32") == product_type("float16") == torch.float32


def test_a_version_of_torch_that_does_not_say_gets_float32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert product_type("auto") == torch.float32
