"""Mamba as in ARM (Ren et al. 2024): four selective scans over the patches, then SwiGLU.

Options make it plain Mamba (one scan), or Vim (Zhu et al. 2024: two scans, twice as wide inside, no SwiGLU).
"""

# B images, N = rows * columns patches, L = N + 1 tokens, D width, E = expand * D inner width, S states

import math
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from reorder.models.kernels.causal_conv import causal_conv_silu
from reorder.models.kernels.selective_scan import selective_scan
from reorder.models.layers import DropPath, drop_path_rates, run_blocks
from reorder.models.readout import (
    check_readout,
    class_token_place,
    move_class_token,
    move_class_token_back,
    read_out,
)
from reorder.models.sizes import Size
from reorder.orders.order import invert
from reorder.orders.read import read_in_order
from reorder.orders.scans import check_grid

STATES = 16
TAPS = 4
STEP_RANGE = (0.001, 0.1)  # of the step sizes delta at initialisation
VERTICAL = ("grid", "order")
NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "rms": partial(nn.RMSNorm, eps=1e-5)}


class Scan(nn.Module):
    """One selective scan over tokens (B, L, E), with its own convolution, step sizes and matrices."""

    def __init__(self, width: int, rank: int):
        super().__init__()
        self.rank = rank
        self.conv = nn.Conv1d(width, width, TAPS, groups=width)
        self.x_proj = nn.Linear(width, self.rank + 2 * STATES, bias=False)
        self.dt_proj = nn.Linear(self.rank, width)
        self.A_log = nn.Parameter(torch.arange(1.0, STATES + 1).log().repeat(width, 1))
        self.D = nn.Parameter(torch.ones(width))
        # ARM's release gives only the first scan this start; the other three keep zero biases, steps of 0.69.
        nn.init.uniform_(self.dt_proj.weight, -(self.rank**-0.5), self.rank**-0.5)
        with torch.no_grad():
            low, high = map(math.log, STEP_RANGE)
            steps = torch.exp(low + (high - low) * torch.rand_like(self.dt_proj.bias))
            self.dt_proj.bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # the inverse of softplus

    def forward(self, tokens: Tensor, reverse: bool = False) -> Tensor:
        assert self.conv.bias is not None
        x = causal_conv_silu(tokens, self.conv.weight[:, 0], self.conv.bias, reverse=reverse)
        step, B, C = self.x_proj(x).split([self.rank, STATES, STATES], -1)
        delta = self.dt_proj(step).to(self.A_log.dtype)
        return selective_scan(x, delta, -self.A_log.exp(), B, C, self.D, delta_softplus=True, reverse=reverse)


class Mixer(nn.Module):
    """Forward and backward scans of the sequence and of its transposed grid, averaged; or the first only."""

    def __init__(self, width: int, depth: int, scans: int, expand: int = 1):
        super().__init__()
        inner = expand * width
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.scans = nn.ModuleList(Scan(inner, math.ceil(width / 16)) for _ in range(scans))
        self.out_proj = nn.Linear(inner, width, bias=False)
        with torch.no_grad():
            self.out_proj.weight.div_(math.sqrt(depth))

    def forward(self, tokens: Tensor, visits: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, L, D); visits (L,) or (B, L): the slots in the sequence of the vertical scans."""
        x, gate = self.in_proj(tokens).chunk(2, -1)
        x = x.contiguous()
        mixed = self.scans[0](x)
        if len(self.scans) > 1:
            mixed = mixed + self.scans[1](x, reverse=True)
        if visits is not None:
            turned = read_in_order(x, visits)
            turned = self.scans[2](turned) + self.scans[3](turned, reverse=True)
            mixed = mixed + read_in_order(turned, invert(visits))
        if len(self.scans) > 1:
            # The mean of the scans, as in ARM's and Vim's releases; the papers' equations are their sum.
            mixed = mixed / len(self.scans)
        # ARM gates every scan's output; they share the gate, so gating their mean is the same.
        return self.out_proj(mixed * silu(gate))


class SwiGLU(nn.Module):
    """silu(w1 x) * w2 x -> w3."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        hidden = width * 8 // 3
        self.w1 = nn.Linear(width, hidden)
        self.w2 = nn.Linear(width, hidden)
        self.w3 = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)
        for linear in (self.w1, self.w2, self.w3):
            nn.init.zeros_(linear.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.w3(silu(self.w1(tokens)) * self.w2(tokens)))


class Block(nn.Module):
    """A mixer and a SwiGLU, if there is one, each after a norm and around a residual."""

    def __init__(self, mixer: Mixer, mlp: SwiGLU | None, norm: Callable[[], nn.Module], drop_path: float):
        super().__init__()
        self.norm1 = norm()
        self.mixer = mixer
        self.norm2 = None if mlp is None else norm()
        self.mlp = mlp
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor, visits: Tensor | None = None) -> Tensor:
        tokens = tokens + self.drop_path(self.mixer(self.norm1(tokens), visits))
        if self.mlp is None or self.norm2 is None:
            return tokens
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


class Mamba(nn.Module):
    """ARM's backbone; `vertical`: the transposed scans follow the grid of slots, or the order itself.

    `readout`: where the class token is read among the patches, or the mean of the patches in its place; by
    default first, as in the paper. Given and returned, it is the first token all the same. With `pool` the
    patches' mean is returned in its place wherever it stands, as in ARM's release, where that is the middle.
    """

    def __init__(
        self,
        size: Size,
        grid: tuple[int, int] | None,
        *,
        dropout: float = 0.0,
        drop_path: float = 0.1,
        checkpointing: bool = False,
        scans: int = 4,
        vertical: str = "grid",
        readout: str | None = None,
        pool: bool = False,
        expand: int = 1,
        norm: str = "layer",
        mlp: bool = True,
    ):
        super().__init__()
        if scans not in (1, 2, 4):
            raise ValueError(f"scans must be 1, 2 or 4, got {scans!r}")
        if expand < 1:
            raise ValueError(f"expand must be at least 1, got {expand!r}")
        for option, value, choices in (("vertical", vertical, VERTICAL), ("norm", norm, NORMS)):
            if value not in choices:
                raise ValueError(f"unknown {option} {value!r}; choose from {list(choices)}")
        if readout is None:
            readout = "first"
            if scans == 1:
                warnings.warn(
                    "with scans=1 a class token that is read first sees no patch, so that all images get the "
                    "same logits; set readout=last, or mean",
                    stacklevel=2,
                )
        if grid is None and scans == 4:
            raise ValueError("four scans need a grid (rows, columns), got None")
        self.grid = check_grid(grid) if grid is not None and scans == 4 else None
        self.reads_order = vertical == "order" and scans == 4
        self.readout, self.pool = check_readout(readout), pool or readout == "mean"
        self.checkpointing = checkpointing
        # ARM puts a zero before its rates, so the last block's is a little below `drop_path`.
        rates = [0.0, *drop_path_rates(drop_path, size.depth)][: size.depth]
        make_norm = partial(NORMS[norm], size.width)
        self.blocks = nn.ModuleList()
        for rate in rates:
            mixer = Mixer(size.width, size.depth, scans, expand)
            feed_forward = SwiGLU(size.width, dropout) if mlp else None
            self.blocks.append(Block(mixer, feed_forward, make_norm, rate))
        self.norm = make_norm()

    def forward(self, tokens: Tensor, order: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, L, D); the order (N,) or (B, N) of reading matters to vertical="order" only."""
        visits = None
        if self.grid is not None:
            rows, columns = self.grid
            if tokens.shape[1] != rows * columns + 1:
                expected = f"a grid of {rows} x {columns} patches has {rows * columns + 1} tokens"
                raise ValueError(f"{expected}, got {tokens.shape[1]}")
            visits = self._visits(order if self.reads_order else None, tokens)
            if self.readout in ("middle", "last"):
                place = class_token_place(tokens.shape[1], self.readout).to(tokens.device)
                visits = invert(place)[visits[..., place]]
        tokens = move_class_token(tokens, self.readout)
        tokens = run_blocks(self.blocks, tokens, self.checkpointing, visits)
        tokens = self.norm(move_class_token_back(tokens, self.readout))
        return read_out(tokens, "mean" if self.pool else self.readout)

    def _visits(self, order: Tensor | None, tokens: Tensor) -> Tensor:
        """The slots of all tokens, class token first, as the vertical scans visit them: (L,) or (B, L)."""
        assert self.grid is not None
        patches = vertical_slots(self.grid, order, tokens.shape[0], tokens.device)
        return torch.cat((patches.new_zeros(*patches.shape[:-1], 1), patches + 1), -1)


def vertical_slots(grid: tuple[int, int], order: Tensor | None, images: int, device: torch.device) -> Tensor:
    """The slots (N,) or (B, N) in the sequence of a vertical scan of a grid read in `order`.

    The order is applied to the transposed image: where it reads the k-th patch of the raster, the vertical
    scan visits the k-th patch by columns. A row-major order thus gives column-major, on any rectangle.
    """
    rows, columns = grid
    by_columns = torch.arange(rows * columns, device=device).view(rows, columns).T.flatten()
    if order is None:
        return by_columns
    if order.shape not in ((rows * columns,), (images, rows * columns)):
        raise ValueError(
            f"order must be ({rows * columns},) or ({images}, {rows * columns}) "
            f"for a grid of {rows} x {columns}, got {tuple(order.shape)}"
        )
    order = order.to(device)
    return invert(order).gather(-1, by_columns[order])
