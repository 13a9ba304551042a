"""Longformer (Beltagy et al., 2020): sliding-window attention, and a class token that may see all."""

# B images, L tokens (token 0 is the class token), D width, H heads, d = D / H

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.models.kernels.feed_forward import feed_forward
from reorder.models.kernels.sliding_window import sliding_window_attention, window_pattern
from reorder.models.layers import DropPath, drop_path_rates, head_width, run_blocks
from reorder.models.patches import initial_std
from reorder.models.readout import check_readout, move_class_token, move_class_token_back, read_out
from reorder.models.sizes import Size

NORM_EPS = 1e-5


class Longformer(nn.Module):
    """Tokens (B, L, D) -> (B, L, D), as Hugging Face's LongformerModel given embeddings with positions.

    `readout`: by default the class token is first and global: it sees all, with projections of its own, and
    is seen by all. Else it is a slot like any other, and there are no such projections: in the middle of the
    patches or last; or first, and the patches' mean is returned in its place.
    """

    def __init__(
        self,
        size: Size,
        grid: tuple[int, int],
        *,
        dropout: float = 0.1,
        drop_path: float = 0.0,
        checkpointing: bool = False,
        window: int = 14,
        readout: str = "first",
    ):
        super().__init__()
        if window < 1 or window % 2:
            raise ValueError(f"window must be even and positive, not {window}")
        head_width(size.width, size.heads)
        self.checkpointing, self.window, self.readout = checkpointing, window, check_readout(readout)
        self.token_type = nn.Parameter(torch.zeros(1, size.width))
        self.norm = nn.LayerNorm(size.width, eps=NORM_EPS)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(size.width, size.heads, window, dropout, rate, has_global=readout == "first")
            for rate in drop_path_rates(drop_path, size.depth)
        )
        self.apply(partial(_initialise, std=initial_std(size.width)))
        nn.init.normal_(self.token_type, std=initial_std(size.width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, L, D) -> (B, L, D)."""
        tokens = self.dropout(self.norm(move_class_token(tokens, self.readout) + self.token_type))
        tokens = run_blocks(self.layers, tokens, self.checkpointing)
        return read_out(move_class_token_back(tokens, self.readout), self.readout)

    def attends(self, length: int) -> Tensor:
        """Whether slot i attends to slot j, (L, L): within the window, to a global token, or as it."""
        has_global = self.readout == "first"
        seen = window_pattern(length, self.window // 2, has_global, self.token_type.device)
        seen[:1] |= has_global
        return seen


class Layer(nn.Module):
    """Attention and feed-forward, each followed by its residual and LayerNorm (post-norm)."""

    def __init__(
        self, width: int, heads: int, window: int, dropout: float, drop_path: float, has_global: bool
    ):
        super().__init__()
        self.attention = Attention(width, heads, window, dropout, has_global)
        self.attention_norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.branch = nn.Sequential(nn.Dropout(dropout), DropPath(drop_path))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, L, D) -> (B, L, D)."""
        tokens = self.attention_norm(tokens + self.branch(self.attention(tokens)))
        return self.norm(tokens + self.branch(feed_forward(tokens, self.up, self.down)))


class Attention(nn.Module):
    """Tokens see their window and a global token 0, if any; that sees all, with projections of its own."""

    def __init__(self, width: int, heads: int, window: int, dropout: float, has_global: bool):
        super().__init__()
        self.heads, self.window, self.dropout, self.has_global = heads, window, dropout, has_global
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        if has_global:
            self.query_global, self.key_global, self.value_global = (
                nn.Linear(width, width) for _ in range(3)
            )
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, L, D) -> (B, L, D)."""
        # Three products rather than one: their gradients need not be packed together again.
        query, key, value = (
            project(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        local = sliding_window_attention(query, key, value, self.window, dropout, self.has_global)
        local = local.transpose(1, 2).flatten(2)
        if not self.has_global:
            return self.output(local)
        return self.output(local.slice_scatter(self.global_row(tokens).to(local.dtype), dim=1, end=1))

    def global_row(self, tokens: Tensor) -> Tensor:
        """What the global token reads from all tokens (B, L, D), as (B, 1, D).

        With one query, q . (W_k x_j + b_k) = (W_k^T q) . x_j + q . b_k and sum_j p_j (W_v x_j + b_v) =
        W_v sum_j p_j x_j + b_v sum_j p_j: no token needs a global key or value, and L D^2 becomes L D H.
        """
        batch, _, width = tokens.shape
        key_weight, value_weight = (
            linear.weight.view(self.heads, -1, width) for linear in (self.key_global, self.value_global)
        )
        key_bias, value_bias = (
            linear.bias.view(self.heads, -1) for linear in (self.key_global, self.value_global)
        )
        query = self.query_global(tokens[:, 0]).view(batch, self.heads, -1) * key_bias.shape[1] ** -0.5
        reader = torch.einsum("bhd,hdw->bhw", query, key_weight)
        scores = reader @ tokens.transpose(1, 2) + (query * key_bias).sum(-1, keepdim=True)
        probabilities = F.dropout(scores.softmax(-1), self.dropout, self.training)
        read = torch.einsum("bhw,hdw->bhd", probabilities @ tokens, value_weight)
        # Dropped-out probabilities do not sum to one.
        read = read + value_bias * probabilities.sum(-1, keepdim=True)
        return read.reshape(batch, 1, width)


def _initialise(module: nn.Module, std: float) -> None:
    """As Hugging Face does: normal weights, no biases."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=std)
        nn.init.zeros_(module.bias)
