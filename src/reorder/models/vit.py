"""Vision Transformer: pre-norm blocks of full self-attention, indifferent to the order of its tokens."""

from functools import partial

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from reorder.models.layers import DropPath, drop_path_rates, head_width, run_blocks
from reorder.models.patches import initial_std
from reorder.models.readout import check_readout, read_out
from reorder.models.sizes import Size

# B images, L tokens, D width, H heads, d = D / H


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        head_width(width, heads)
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self._project(tokens)
        read = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.proj(rearrange(read, "b h l d -> b l (h d)"))

    def weights(self, tokens: Tensor) -> Tensor:
        """Attention weights (B, H, L, L) for tokens (B, L, D)."""
        q, k, _ = self._project(tokens)
        return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)

    def _project(self, tokens: Tensor) -> Tensor:
        """Queries, keys and values, (3, B, H, L, d)."""
        return rearrange(self.qkv(tokens), "b l (three h d) -> three b h l d", three=3, h=self.heads)


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(tokens)))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, drop_path: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, 4 * width, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.drop_path(self.attn(self.norm1(tokens)))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


class ViT(nn.Module):
    """Tokens (B, L, D) to tokens (B, L, D); parameters are named as in timm's vision_transformer.

    `readout`: with `mean` the patches' mean is returned in the place of the class token. Where that stands
    makes no difference, so it is never moved.
    """

    def __init__(
        self,
        size: Size,
        grid: tuple[int, int],
        *,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        checkpointing: bool = False,
        readout: str = "first",
    ):
        super().__init__()
        self.checkpointing, self.readout = checkpointing, check_readout(readout)
        self.blocks = nn.ModuleList(
            Block(size.width, size.heads, dropout, rate) for rate in drop_path_rates(drop_path, size.depth)
        )
        self.apply(partial(_initialise, std=initial_std(size.width)))

    def forward(self, tokens: Tensor) -> Tensor:
        return read_out(run_blocks(self.blocks, tokens, self.checkpointing), self.readout)


def _initialise(module: nn.Module, std: float) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=std)
        nn.init.zeros_(module.bias)
