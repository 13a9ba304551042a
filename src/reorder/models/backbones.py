"""Sequence models that map tokens (B, L, D) to tokens (B, L, D) and do not know about orders."""

from torch import nn

from reorder.models.longformer import Longformer
from reorder.models.mamba import Mamba
from reorder.models.sizes import SIZES, Size
from reorder.models.transformer_xl import TransformerXL
from reorder.models.vit import ViT

BACKBONES: dict[str, type[nn.Module]] = {
    "vit": ViT,
    "transformer_xl": TransformerXL,
    "longformer": Longformer,
    "mamba": Mamba,
}

__all__ = ["BACKBONES", "SIZES", "Longformer", "Mamba", "Size", "TransformerXL", "ViT"]
