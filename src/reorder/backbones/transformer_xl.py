"""Transformer-XL: causal attention with learned relative distances, read out by a class token that sees all.

Score of query slot i for key slot j <= i, with u and v shared by all layers and r_{i-j} a projected row of
one learned table of distances (Dai et al., 2019, equation in section 3.3):

    (q_i + u) . k_j + (q_i + v) . r_{i-j}

The class token, slot 0, is a key for every patch, at its distance; as a query it sees every slot and has no
relative term.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from reorder.backbones.layers import DropPath, Size, drop_path_rates, head_width, run_blocks

# B images, N patches, L = N + 1 tokens, D width, H heads, d = D / H


def shift(by_distance: Tensor) -> Tensor:
    """Scores (B, H, L, L) for distances L-1 ... 0 to scores for keys: column j of row i gets distance i - j.

    Entries with j > i hold leftovers of other rows and must be masked.
    """
    length = by_distance.shape[-1]
    padded = F.pad(by_distance, (1, 0))  # (B, H, L, L + 1)
    return padded.flatten(2)[..., length:].view_as(by_distance)


class RelativeAttention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.scale = heads, head_width(width, heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.relative = nn.Linear(width, width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)

    def forward(self, tokens: Tensor, table: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Tokens (B, L, D), distances L-1 ... 0 as table (L, D), biases u and v (H, 1, d) to (B, L, D)."""
        q, k, value = rearrange(self.qkv(tokens), "b l (three h d) -> three b h l d", three=3, h=self.heads)
        r = rearrange(self.relative(table), "l (h d) -> h l d", h=self.heads)
        content = (q + u) @ k.transpose(-1, -2)
        relative = shift((q + v) @ r.transpose(-1, -2))
        later = torch.ones(content.shape[-2:], dtype=torch.bool, device=content.device).triu(1)
        patch_scores = (content + relative).masked_fill(later, -torch.inf)
        scores = torch.cat([content[:, :, :1], patch_scores[:, :, 1:]], dim=2) * self.scale
        read = scores.softmax(-1) @ value
        return self.proj(rearrange(read, "b h l d -> b l (h d)"))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, drop_path: float):
        super().__init__()
        self.attn = RelativeAttention(width, heads)
        self.norm1 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor, table: Tensor, u: Tensor, v: Tensor) -> Tensor:
        tokens = self.norm1(tokens + self.drop_path(self.drop(self.attn(tokens, table, u, v))))
        hidden = self.drop(F.relu(self.fc1(tokens)))
        return self.norm2(tokens + self.drop_path(self.drop(self.fc2(hidden))))


class TransformerXL(nn.Module):
    """Tokens (B, L, D) to tokens (B, L, D): each patch sees the class token and the patches before it."""

    def __init__(
        self,
        size: Size,
        grid: tuple[int, int],
        *,
        dropout: float = 0.1,
        drop_path: float = 0.0,
        checkpointing: bool = False,
    ):
        super().__init__()
        self.checkpointing = checkpointing
        self.blocks = nn.ModuleList(
            Block(size.width, size.heads, dropout, rate) for rate in drop_path_rates(drop_path, size.depth)
        )
        d = head_width(size.width, size.heads)
        self.distances = nn.Parameter(torch.empty(grid[0] * grid[1] + 1, size.width))  # row = distance
        self.u = nn.Parameter(torch.empty(size.heads, 1, d))
        self.v = nn.Parameter(torch.empty(size.heads, 1, d))
        self.drop = nn.Dropout(dropout)
        for parameter in (self.distances, self.u, self.v):
            nn.init.normal_(parameter, std=0.02)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > len(self.distances):
            raise ValueError(f"{length} tokens given; the table holds distances for {len(self.distances)}")
        table = self.drop(self.distances[:length].flip(0))
        tokens = run_blocks(self.blocks, self.drop(tokens), self.checkpointing, table, self.u, self.v)
        return self.drop(tokens)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.normal_(module.weight, mean=1.0, std=0.02)
        nn.init.zeros_(module.bias)
