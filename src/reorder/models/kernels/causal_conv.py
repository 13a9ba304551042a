"""Mamba's short depthwise causal convolution followed by SiLU, on any device, with gradients.

On the CPU torch's grouped convolution takes longer than the scan it precedes, so numba computes it there;
on GPUs Triton does.
"""

# B images, N slots, D channels, T taps

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad, silu

from reorder.models.kernels.selective_scan import pad_channels
from reorder.orders.paths import choose_path

HAS = ("numba", "torch", "triton")


def causal_conv_silu(
    x: Tensor, weight: Tensor, bias: Tensor, *, path: str | None = None, reverse: bool = False
) -> Tensor:
    """SiLU of the weighted T latest inputs of every slot; x (B, N, D), weight (D, T), bias (D,).

    `reverse` weights the T next inputs. `path` is as for selective_scan.
    """
    if x.ndim != 3 or weight.ndim != 2 or weight.shape[0] != x.shape[2] or bias.shape != weight.shape[:1]:
        shapes = [tuple(tensor.shape) for tensor in (x, weight, bias)]
        raise ValueError(
            "x, weight and bias must be (B, N, D), (D, T) and (D,), got {}, {}, {}".format(*shapes)
        )
    name = choose_path(path, x, HAS)
    if name == "triton":
        from reorder.models.kernels.causal_conv_triton import CausalConvSilu

        return CausalConvSilu.apply(x.contiguous(), weight.contiguous(), bias, reverse)
    if name == "torch":
        return conv_silu_torch(x, weight, bias, reverse)
    kind = torch.promote_types(x.dtype, torch.float32)
    return _conv(x.to(kind), weight.to(kind), bias.to(kind), reverse).to(x.dtype)


def conv_silu_torch(x: Tensor, weight: Tensor, bias: Tensor, reverse: bool) -> Tensor:
    """The same by torch's grouped convolution."""
    before = weight.shape[1] - 1
    channels_first = pad(x.transpose(1, 2), (0, before) if reverse else (before, 0))
    taps = (weight.flip(1) if reverse else weight)[:, None]
    return silu(conv1d(channels_first, taps.to(x.dtype), bias.to(x.dtype), groups=x.shape[2])).transpose(1, 2)


@torch.library.custom_op("reorder::causal_conv_silu", mutates_args=(), device_types="cpu")
def _conv(x: Tensor, weight: Tensor, bias: Tensor, reverse: bool) -> Tensor:
    from reorder.models.kernels import causal_conv_numba

    inputs = pad_channels(x, 2), pad_channels(weight.T, 1), pad_channels(bias, 0)
    y = causal_conv_numba.forward(*(tensor.detach().numpy() for tensor in inputs), reverse=reverse)
    return torch.from_numpy(y)[..., : x.shape[2]].contiguous()


@torch.library.custom_op("reorder::causal_conv_silu_backward", mutates_args=(), device_types="cpu")
def _conv_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from reorder.models.kernels import causal_conv_numba

    inputs = pad_channels(grad, 2), pad_channels(x, 2), pad_channels(weight.T, 1), pad_channels(bias, 0)
    gradients = causal_conv_numba.backward(*(tensor.detach().numpy() for tensor in inputs), reverse=reverse)
    dx, dweight, dbias = map(torch.from_numpy, gradients)
    width = x.shape[2]
    return dx[..., :width].contiguous(), dweight[:, :width].T.contiguous(), dbias[:width].clone()


@_conv.register_fake
def _(x, weight, bias, reverse):
    return torch.empty_like(x)


@_conv_backward.register_fake
def _(grad, x, weight, bias, reverse):
    return torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)


def _keep(ctx, inputs, output):
    *tensors, ctx.reverse = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx, grad):
    return *_conv_backward(grad, *ctx.saved_tensors, ctx.reverse), None


_conv.register_autograd(_gradients, setup_context=_keep)
