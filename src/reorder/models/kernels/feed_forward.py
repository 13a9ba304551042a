"""Two linear maps with a GELU between them, in slices that stay in the cache."""

# R = B * L rows, D width, E inner width

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Large enough for the products to run at full speed, small enough for a slice (ROWS, E) to stay in the cache
# between a product and the GELU.
ROWS = 1024


def feed_forward(tokens: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    """`down(gelu(up(tokens)))`, (..., D) -> (..., D), which keeps the GELU's input but not its output."""
    if torch.compiler.is_exporting():  # other runtimes choose their own slices
        return down(F.gelu(up(tokens)))
    rows = _FeedForward.apply(tokens.flatten(0, -2), up.weight, up.bias, down.weight, down.bias)
    return rows.view(*tokens.shape[:-1], -1)


class _FeedForward(torch.autograd.Function):
    """Rows (R, D) slice by slice; backward computes the GELU again, which costs no more than to keep it."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
    ) -> Tensor:
        inner, outer = [], []
        for part in rows.split(ROWS):
            inner.append(F.linear(part, up, up_bias))
            outer.append(F.linear(F.gelu(inner[-1]), down, down_bias))
        ctx.save_for_backward(rows, up, down, *inner)
        return torch.cat(outer) if len(outer) > 1 else outer[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, up, down, *inner = ctx.saved_tensors
        grad_up, grad_up_bias, grad_down, grad_rows = None, None, None, []
        with torch.autocast(grad.device.type, enabled=False):
            low_up, low_down = up.to(grad.dtype), down.to(grad.dtype)
            for part, hidden, grad_part in zip(rows.split(ROWS), inner, grad.split(ROWS), strict=True):
                grad_down = _add_product(grad_down, grad_part, F.gelu(hidden), down.dtype)
                grad_hidden = torch.ops.aten.gelu_backward(grad_part @ low_down, hidden)
                grad_up = _add_product(grad_up, grad_hidden, part.to(grad.dtype), up.dtype)
                bias = grad_hidden.sum(0, dtype=up.dtype)
                grad_up_bias = bias if grad_up_bias is None else grad_up_bias + bias
                grad_rows.append(grad_hidden @ low_up)
            grad_down_bias = grad.sum(0, dtype=down.dtype)
        gathered = torch.cat(grad_rows) if len(grad_rows) > 1 else grad_rows[0]
        return gathered.to(rows.dtype), grad_up, grad_up_bias, grad_down, grad_down_bias


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """`total` plus left^T @ right, in precision `dtype` whatever the product's; may overwrite `total`."""
    if total is None:
        return (left.t() @ right).to(dtype)
    return total.addmm_(left.t(), right) if left.dtype == dtype else total.add_(left.t() @ right)
