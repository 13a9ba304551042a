"""Transformer-XL: causal attention with learned relative distances, read out by a class token.

A layer's memory is its input for the slots before a segment, so all segments of a layer are computed at once;
what each slot sees is defined in `kernels/segment_attention.py`.
"""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.models.kernels.segment_attention import (
    Cut,
    Keys,
    Relative,
    cut_of,
    remember,
    segment_attention,
    segment_weights,
)
from reorder.models.layers import DropPath, drop_path_rates, head_width, run_block
from reorder.models.patches import initial_std
from reorder.models.readout import check_readout, move_class_token, move_class_token_back, read_out
from reorder.models.sizes import Size
from reorder.orders.scans import check_grid

# B images, N patches, L = N + 1 tokens, D width, H heads, d = D / H


class Memory(NamedTuple):
    """What a slot sees: its segment up to itself, `slots` before the segment, and a global slot 0 if any."""

    segment: int | None
    slots: int
    gradient: bool  # whether what is remembered passes its gradient on
    has_global: bool

    def cut(self, length: int) -> Cut:
        return cut_of(length, self.segment, self.slots, self.has_global)


class RelativeAttention(nn.Module):
    def __init__(self, width: int, heads: int, memory: Memory):
        super().__init__()
        self.heads, self.memory = heads, memory
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.relative = nn.Linear(width, width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)

    def forward(self, tokens: Tensor, distances: Tensor, u: Tensor, v: Tensor, skip: int = 0) -> Tensor:
        """Tokens (B, L, D), distances (L, D), biases u and v (H, 1, d) to (B, L - skip, D)."""
        if skip == tokens.shape[1] - 1:
            return self.proj(self._last_slot(tokens, distances, u, v).transpose(1, 2).flatten(2))
        query, own, remembered, relative = self._project(tokens, distances, u, v)
        read = segment_attention(query, own, remembered, relative, self.memory.cut(tokens.shape[1]))
        return self.proj(read.transpose(1, 2)[:, skip:].flatten(2))

    def _last_slot(self, tokens: Tensor, distances: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """What the last slot alone reads, (B, H, 1, d), by the formula as it stands."""
        length, width = tokens.shape[1:]
        cut = self.memory.cut(length)
        segment = (length - 1) // cut.segment * cut.segment  # the first slot of the last segment
        low = max(0, segment - cut.memory)
        if self.memory.gradient:
            query, key, value = (self._heads(part) for part in self.qkv(tokens[:, low:]).chunk(3, -1))
            query = query[:, :, -1:]
        else:
            seen = torch.cat([tokens[:, low:segment].detach(), tokens[:, segment:]], 1)
            query = self._heads(F.linear(tokens[:, -1:], self.qkv.weight[:width]))
            key, value = (self._heads(part) for part in F.linear(seen, self.qkv.weight[width:]).chunk(2, -1))
        away = self._heads(self.relative(distances[: length - low].flip(0))[None])
        scores = (query + u) @ key.transpose(2, 3) + (query + v) @ away.transpose(2, 3)
        return (scores * query.shape[3] ** -0.5).softmax(-1).to(value.dtype) @ value

    def weights(self, tokens: Tensor, distances: Tensor, u: Tensor, v: Tensor, skip: int = 0) -> Tensor:
        """Attention weights (B, H, L, L) for the arguments of `forward`."""
        query, own, _, relative = self._project(tokens, distances, u, v)
        return segment_weights(query, own.key, own.key, relative, self.memory.cut(tokens.shape[1]))

    def _project(
        self, tokens: Tensor, distances: Tensor, u: Tensor, v: Tensor
    ) -> tuple[Tensor, Keys, Keys | None, Relative]:
        """Queries, own and remembered keys and values (B, H, L, d), and the relative terms."""
        relative = Relative(self._heads(self.relative(distances[: tokens.shape[1]])[None])[0], u, v)
        if self.memory.gradient or self.memory.cut(tokens.shape[1]).segments == 1:
            query, key, value = (self._heads(part) for part in self.qkv(tokens).chunk(3, -1))
            return query, Keys(key, value), None, relative
        width = tokens.shape[2]
        query = self._heads(F.linear(tokens, self.qkv.weight[:width]))
        own, remembered = (
            Keys(*(self._heads(part) for part in rows.chunk(2, -1)))
            for rows in remember(tokens, self.qkv.weight[width:])
        )
        return query, own, remembered, relative

    def _heads(self, rows: Tensor) -> Tensor:
        """(B, L, D) to (B, H, L, d)."""
        return rows.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, memory: Memory, dropout: float, drop_path: float):
        super().__init__()
        self.attn = RelativeAttention(width, heads, memory)
        self.norm1 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor, distances: Tensor, u: Tensor, v: Tensor, skip: int = 0) -> Tensor:
        """Tokens (B, L, D) to (B, L - skip, D): the first slots are only read by others."""
        read = self.attn(tokens, distances, u, v, skip)
        tokens = self.norm1(tokens[:, skip:] + self.drop_path(self.drop(read)))
        hidden = self.drop(F.relu(self.fc1(tokens)))
        return self.norm2(tokens + self.drop_path(self.drop(self.fc2(hidden))))


class TransformerXL(nn.Module):
    """Tokens (B, L, D) to tokens (B, L, D): each patch sees patches before it.

    `segment` is how many slots are read at once; a segment also sees the `memory` slots before it. With None,
    the default, all are read at once, and `memory` has no effect. With `memory_gradient` the gradient flows
    into what is remembered; in the paper it does not.
    `readout`: by default the class token is first, sees every slot and is seen by all. Else it is a slot like
    any other, in the middle of the patches or last; or first, and the patches' mean is returned in its place.
    """

    def __init__(
        self,
        size: Size,
        grid: tuple[int, int],
        *,
        dropout: float = 0.1,
        drop_path: float = 0.0,
        checkpointing: bool = False,
        segment: int | None = None,
        # The paper states a memory of 128 and no segment; all 196 patches at once leave nothing to remember.
        memory: int = 128,
        memory_gradient: bool = False,
        readout: str = "first",
    ):
        super().__init__()
        if segment is not None and segment < 1:
            raise ValueError(f"segment must be at least 1, or None for a single one, got {segment}")
        if memory < 1:
            raise ValueError(f"memory must be at least 1, got {memory}")
        self.checkpointing, self.readout = checkpointing, check_readout(readout)
        self.segment, self.memory = segment, memory
        sees = Memory(segment, memory, memory_gradient, has_global=readout == "first")
        self.blocks = nn.ModuleList(
            Block(size.width, size.heads, sees, dropout, rate)
            for rate in drop_path_rates(drop_path, size.depth)
        )
        d = head_width(size.width, size.heads)
        rows, columns = check_grid(grid)
        self.distances = nn.Parameter(torch.empty(rows * columns + 1, size.width))  # row = distance
        self.u = nn.Parameter(torch.empty(size.heads, 1, d))
        self.v = nn.Parameter(torch.empty(size.heads, 1, d))
        self.drop = nn.Dropout(dropout)
        for parameter in (self.distances, self.u, self.v):
            nn.init.normal_(parameter, std=initial_std(size.width))
        self.apply(partial(_initialise, std=initial_std(size.width)))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self._run(move_class_token(tokens, self.readout), [0] * (len(self.blocks) + 1))
        return read_out(move_class_token_back(tokens, self.readout), self.readout)

    def class_token(self, tokens: Tensor) -> Tensor:
        """The first token of `forward` (B, D); read last, only the slots that can reach it are computed."""
        if self.readout != "last":
            return self(tokens)[:, 0]
        return self._run(move_class_token(tokens, self.readout), self._needed(tokens.shape[1]))[:, 0]

    def unseen(self, length: int) -> int:
        """How many of the first of L - 1 patches can never reach a class token that is read last."""
        return self._needed(length)[0] if self.readout == "last" else 0

    def _needed(self, length: int) -> list[int]:
        """The first slot that can reach the last of L, before each block and after all, by whole segments."""
        segment, needed = self.segment or length, [length - 1]
        for _ in self.blocks:
            seen = needed[0] // segment * segment - self.memory
            needed.insert(0, max(0, seen // segment * segment))
        return needed

    def _run(self, tokens: Tensor, needed: list[int]) -> Tensor:
        """Slots (B, L, D) through the blocks, before each of which those from `needed` on are kept."""
        length = tokens.shape[1]
        if length > len(self.distances):
            raise ValueError(f"{length} tokens given; the table holds distances for {len(self.distances)}")
        distances, tokens = self.drop(self.distances[:length]), self.drop(tokens[:, needed[0] :])
        for block, start, stop in zip(self.blocks, needed, needed[1:], strict=False):
            shared = distances, self.u, self.v, stop - start
            tokens = run_block(block, tokens, self.checkpointing, *shared)
        return self.drop(tokens)


def _initialise(module: nn.Module, std: float) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.normal_(module.weight, mean=1.0, std=0.02)
        nn.init.zeros_(module.bias)
