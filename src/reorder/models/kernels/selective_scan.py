"""The selective scan of Mamba (Gu & Dao 2023, Algorithm 2) for any device, with gradients.

    h_t = exp(delta_t A) h_{t-1} + delta_t B_t x_t,    y_t = C_t h_t + D x_t

Four paths compute it: "numba" (fused, CPU), "triton" (fused, GPUs), "torch" (any device) and "mamba_ssm"
(its CUDA kernel).
The first forward and backward by "numba" compile for about 6 s; numba keeps the result on disk, where
NUMBA_CACHE_DIR says or beside the source, and later processes load it in 0.5 s.
"""

# B images, N slots, D channels, S states per channel, K chunks

import torch
from torch import Tensor
from torch.nn.functional import pad, silu, softplus
from torch.utils.checkpoint import checkpoint

from reorder.orders.paths import PATHS, choose_path

LANES = 16  # the numba path computes this many channels at once and pads others


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    *,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    path: str | None = None,
    reverse: bool = False,
) -> Tensor:
    """y (B, N, D) of x and delta > 0 (B, N, D), A < 0 (D, S), B and C (B, N, S), D (D,).

    As in mamba_ssm, delta_bias (D,) is added to delta, whose softplus is then taken if asked for, and y is
    multiplied by silu(z), z (B, N, D). `reverse` scans from the last slot to the first. `path` or the
    variable REORDER_KERNELS names the path; without them it is the fastest for the device. Half precision is
    computed in float32.
    """
    _check(x, delta, A, B, C, D, z, delta_bias)
    name = choose_path(path, x, PATHS)
    if name == "triton":
        from reorder.models.kernels.selective_scan_triton import SelectiveScan

        tensors = [tensor.contiguous() for tensor in (x, delta, A, B, C, D)]
        gate = None if z is None else z.contiguous()
        return SelectiveScan.apply(*tensors, gate, delta_bias, delta_softplus, reverse)
    kind = torch.promote_types(x.dtype, torch.float32)
    arguments = [tensor.to(kind) for tensor in (x, delta, A, B, C, D)]
    if delta_bias is not None:
        arguments[1] = arguments[1] + delta_bias.to(kind)
    if delta_softplus:
        arguments[1] = softplus(arguments[1])
    if name == "numba":
        y, _ = _scan(*arguments, reverse)
    elif reverse:
        x_, delta_, A_, B_, C_, D_ = arguments
        y = _SCANS[name](x_.flip(1), delta_.flip(1), A_, B_.flip(1), C_.flip(1), D_).flip(1)
    else:
        y = _SCANS[name](*arguments)
    return (y if z is None else y * silu(z.to(kind))).to(x.dtype)


def _check(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor | None,
    bias: Tensor | None,
) -> None:
    if x.ndim != 3 or A.ndim != 2:
        raise ValueError(f"x must be (B, N, D) and A (D, S), got {tuple(x.shape)} and {tuple(A.shape)}")
    batch, slots, channels = x.shape
    states = (batch, slots, A.shape[1])
    expected = {"delta": x.shape, "A": (channels, A.shape[1]), "B": states, "C": states, "D": (channels,)}
    expected |= {"z": x.shape, "delta_bias": (channels,)}
    for (name, shape), tensor in zip(expected.items(), (delta, A, B, C, D, z, bias), strict=True):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(
                f"{name} must be {tuple(shape)} for x {tuple(x.shape)}, got {tuple(tensor.shape)}"
            )
    if 0 in (*x.shape, A.shape[1]):
        raise ValueError(f"nothing to scan: x is {tuple(x.shape)} and A {tuple(A.shape)}")


def selective_scan_reference(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, *, reverse: bool = False
) -> Tensor:
    """The same, slot by slot as in the formula: slow, for tests."""
    slots = range(x.shape[1])
    h = x.new_zeros(x.shape[0], *A.shape)
    y = [torch.empty(0)] * len(slots)
    for t in reversed(slots) if reverse else slots:
        step, drive = delta[:, t, :, None], (delta[:, t] * x[:, t])[:, :, None]
        h = torch.exp(step * A) * h + drive * B[:, t, None, :]
        y[t] = (h * C[:, t, None, :]).sum(-1) + D * x[:, t]
    return torch.stack(y, 1)


def _scan_torch(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, chunk: int = 64
) -> Tensor:
    """Chunk after chunk, each by doubling; backward recomputes a chunk's states instead of keeping them."""
    h = x.new_zeros(x.shape[0], *A.shape)
    outputs = []
    for parts in zip(*(tensor.split(chunk, 1) for tensor in (x, delta, B, C)), strict=True):
        if torch.is_grad_enabled():
            y, h = checkpoint(_chunk_torch, h, A, *parts, use_reentrant=False)
        else:
            y, h = _chunk_torch(h, A, *parts)
        outputs.append(y)
    return torch.cat(outputs, 1) + D * x


def _chunk_torch(
    h: Tensor, A: Tensor, x: Tensor, delta: Tensor, B: Tensor, C: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs (B, T, D) and last state (B, D, S) of T slots after state h (B, D, S), in log2(T) rounds."""
    decay = torch.exp(delta[..., None] * A)
    state = (delta * x)[..., None] * B[:, :, None, :]
    state = torch.cat((state[:, :1] + decay[:, :1] * h[:, None], state[:, 1:]), 1)
    reach = 1  # slot t now sums up the slots t - reach + 1 ... t
    while reach < x.shape[1]:
        state = torch.cat((state[:, :reach], state[:, reach:] + decay[:, reach:] * state[:, :-reach]), 1)
        decay = torch.cat((decay[:, :reach], decay[:, reach:] * decay[:, :-reach]), 1)
        reach *= 2
    return (state @ C[..., None]).squeeze(-1), state[:, -1]


def _scan_mamba_ssm(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The authors' CUDA kernel, which wants slots last."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError as error:
        raise ValueError("kernel path 'mamba_ssm' needs the package: pip install mamba-ssm") from error
    slots_last = [tensor.transpose(1, 2).contiguous() for tensor in (x, delta, B, C)]
    return selective_scan_fn(*slots_last[:2], A, *slots_last[2:], D).transpose(1, 2)


_SCANS = {"torch": _scan_torch, "mamba_ssm": _scan_mamba_ssm}


def pad_channels(tensor: Tensor, axis: int) -> Tensor:
    """Contiguous, with zeros along `axis` up to a multiple of 16."""
    missing = -tensor.shape[axis] % LANES
    return (
        pad(tensor, [0, 0] * (tensor.ndim - 1 - axis) + [0, missing]).contiguous()
        if missing
        else tensor.contiguous()
    )


@torch.library.custom_op("reorder::selective_scan", mutates_args=(), device_types="cpu")
def _scan(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    from reorder.models.kernels import selective_scan_numba

    inputs = (
        pad_channels(x, 2),
        pad_channels(delta, 2),
        pad_channels(A.T, 1),
        B.contiguous(),
        C.contiguous(),
        pad_channels(D, 0),
    )
    y, starts = selective_scan_numba.forward(*(tensor.detach().numpy() for tensor in inputs), reverse=reverse)
    return torch.from_numpy(y)[..., : x.shape[2]].contiguous(), torch.from_numpy(starts)


@torch.library.custom_op("reorder::selective_scan_backward", mutates_args=(), device_types="cpu")
def _scan_backward(
    grad: Tensor,
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    starts: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from reorder.models.kernels import selective_scan_numba

    inputs = (
        pad_channels(grad, 2),
        pad_channels(x, 2),
        pad_channels(delta, 2),
        pad_channels(A.T, 1),
        B.contiguous(),
        C.contiguous(),
    )
    arrays = [tensor.detach().numpy() for tensor in (*inputs, pad_channels(D, 0), starts)]
    dx, ddelta, dA, dB, dC, dD = map(
        torch.from_numpy, selective_scan_numba.backward(*arrays, reverse=reverse)
    )
    width = x.shape[2]
    return (
        dx[..., :width].contiguous(),
        ddelta[..., :width].contiguous(),
        dA[:, :width].T.contiguous(),
        dB,
        dC,
        dD[:width].clone(),
    )


@_scan.register_fake
def _(x, delta, A, B, C, D, reverse):
    chunks, channels = -(-x.shape[1] // LANES), -(-x.shape[2] // LANES) * LANES
    return torch.empty_like(x), x.new_empty(x.shape[0], chunks, A.shape[1], channels)


@_scan_backward.register_fake
def _(grad, x, delta, A, B, C, D, starts, reverse):
    return tuple(map(torch.empty_like, (x, delta, A, B, C, D)))


def _keep(ctx, inputs, output):
    *tensors, ctx.reverse = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.set_materialize_grads(True)


def _gradients(ctx, grad, _):
    return *_scan_backward(grad, *ctx.saved_tensors, ctx.reverse), None


_scan.register_autograd(_gradients, setup_context=_keep)
