"""Attention in a band by Triton's kernels, with gradients: what windows and segments have in common."""

# B images, H heads, L slots, Q queries, d width of a head

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from reorder.models.kernels import band_attention_triton as kernels
from reorder.orders.straight_through_triton import product_type

BLOCK = 16  # slots at least of one program
PART = 16  # blocks of queries whose gradient of distances one program adds up
LAUNCH: dict[str, Any] = {"num_warps": 4, "num_stages": 1, "enable_fp_fusion": True}


class Band(NamedTuple):
    """Which slots see which, see band_attention_triton."""

    first_query: int  # the slot of the first query: the queries are all slots from it on
    first: int  # the first slot that is not global
    segment: int
    memory: int
    ahead: int


class BandAttention(torch.autograd.Function):
    """What queries (B, H, Q, d) read of keys and values (B, H, L, d), one type.

    `to_global` (B, H, Q) are scores for slot 0, or None; position (B, H, Q, d) and distances (H, L, d) may
    be None. Remembered keys and values are those of `key` and `value`; if given, their gradient is that
    from later segments. `dropout` acts on the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        content: Tensor,
        position: Tensor | None,
        key: Tensor,
        value: Tensor,
        remembered_key: Tensor | None,
        remembered_value: Tensor | None,
        distances: Tensor | None,
        to_global: Tensor | None,
        band: Band,
        dropout: float,
    ) -> Tensor:
        rows = [None if each is None else _by_slot(each) for each in (content, position, key, value)]
        distances = None if distances is None else distances.contiguous()
        to_global = None if to_global is None else to_global.float().contiguous()
        (images, heads, queries, width), length = content.shape, key.shape[2]
        out = torch.empty(images, queries, heads, width, dtype=content.dtype, device=content.device)
        log_sum = torch.empty(images, heads, queries, dtype=torch.float32, device=content.device)
        seed, kept = (int(torch.randint(2**31, ())), _kept(log_sum, dropout)) if dropout else (0, None)
        sizes = (queries, length, *band, heads, width, seed, dropout)
        kernels.forward_kernel[triton.cdiv(queries, _block(content)), heads, images](
            *rows, distances, to_global, kept, out, log_sum, *sizes, **_options(content, position, dropout)
        )
        ctx.save_for_backward(*rows, distances, to_global, kept, out, log_sum)
        ctx.sizes, ctx.band, ctx.apart = sizes, band, remembered_key is not None
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        content, position, key, value, distances, to_global, kept, out, log_sum = ctx.saved_tensors
        (images, queries, heads, _), length, band = content.shape, key.shape[1], ctx.band
        grad = _by_slot(grad.to(content.dtype))
        inner = (grad.float() * out.float()).sum(-1).transpose(1, 2).contiguous()
        given = (grad, content, position, key, value, distances, log_sum, inner)
        sizes, options = ctx.sizes, _options(content, position, ctx.sizes[-1])
        dcontent, dposition = (
            None if each is None else torch.empty_like(each) for each in (content, position)
        )
        kernels.query_kernel[triton.cdiv(queries, _block(content)), heads, images](
            *given, dcontent, dposition, *sizes, **options
        )
        # A global key's gradient is that of `to_global`.
        dkey, dvalue = torch.zeros_like(key), torch.zeros_like(key)
        before_key, before_value = (torch.zeros_like(key) if ctx.apart else None for _ in range(2))
        kernels.key_kernel[triton.cdiv(length - band.first, _block(content)), heads, images](
            *given, dkey, dvalue, before_key, before_value, *sizes, **options
        )
        dto_global = None
        if to_global is not None:
            weight = torch.exp(to_global - log_sum)
            dweight = torch.einsum("bqhd,bhd->bhq", grad.float(), value[:, 0].float())
            read = weight if kept is None else weight * kept
            dto_global = weight * ((dweight if kept is None else dweight * kept) - inner)
            dvalue[:, 0] = torch.einsum("bhq,bqhd->bhd", read, grad.float())
        ddistances = None if position is None else _distances(given, sizes[:-2], band)
        by_slot = (dcontent, dposition, dkey, dvalue, before_key, before_value)
        by_head = (None if each is None else each.transpose(1, 2) for each in by_slot)
        return *by_head, ddistances, dto_global, None, None


def _by_slot(rows: Tensor) -> Tensor:
    """(B, H, L, d) as a contiguous (B, L, H, d), which is how projections leave them."""
    return rows.transpose(1, 2).contiguous()


def _block(content: Tensor) -> int:
    """Slots of one program: products of float32 take more registers."""
    return BLOCK if content.dtype == torch.float32 else 2 * BLOCK


def _kept(like: Tensor, dropout: float) -> Tensor:
    """What dropout multiplies the weights of a global key by: 0 or 1 / (1 - dropout)."""
    return (torch.rand_like(like) >= dropout) / (1 - dropout)


def _options(content: Tensor, position: Tensor | None, dropout: float) -> dict[str, Any]:
    depth = max(16, triton.next_power_of_2(content.shape[-1]))
    kind = {"KIND": product_type(content.dtype), "SLOTS": _block(content), "DEPTH": depth}
    return {"RELATIVE": position is not None, "DROPS": dropout > 0, **kind, **LAUNCH}


def _distances(given: tuple[Tensor, ...], sizes: tuple[int, ...], band: Band) -> Tensor:
    """The gradient (H, L, d) of distances; those that no query sees have none."""
    (images, queries, heads, width), distances = given[1].shape, given[5]
    reach = min(band.memory + band.segment, distances.shape[1])
    options, slots = _options(given[1], None, 0.0), _block(given[1])
    parts = triton.cdiv(queries, slots * PART)
    found = torch.empty(images * parts, reach, heads, width, dtype=torch.float32, device=distances.device)
    del options["RELATIVE"], options["DROPS"]
    kernels.distance_kernel[triton.cdiv(reach, slots), heads, images * parts](
        *given, found, reach, parts, PART, *sizes, **options
    )
    gradient = torch.zeros_like(distances)
    gradient[:, :reach] = found.sum(0).transpose(0, 1)
    return gradient
