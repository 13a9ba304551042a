"""In which precision products are computed: as asked for, or where half of it is faster, in that."""

from contextlib import AbstractContextManager, nullcontext

import torch

FAST = ("amx_bf16", "avx512_bf16")  # instructions of a CPU that multiply bfloat16


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """What to compute within, for a value of `train.precision`; float16 is for GPUs alone."""
    if precision == "auto":
        precision = "bfloat16" if multiplies_bfloat16(device) else "float32"
    if precision == "float32" or (precision == "float16" and device.type == "cpu"):
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision))


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for products of bfloat16; without them they are slower than float32.

    By what the device can do, not by a clock: a run must not change with what else runs on a machine.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older versions
    return device.type == "cpu" and any(capabilities.get(name, False) for name in FAST)
