"""Where the class token stands among the patches while a backbone runs, and what is read out in its place.

Given to a backbone and returned by it, the class token is token 0. With `middle` and `last` it stands among
or after the patches; with `mean` and `last_patch` it stands first, and the mean of the patches, or the patch
that was read last, is returned in its place.
"""

import torch
from torch import Tensor

# B images, N patches, L = N + 1 tokens, D width

READOUTS = ("first", "middle", "last", "mean", "last_patch")


def check_readout(readout: str) -> str:
    if readout not in READOUTS:
        raise ValueError(f"unknown readout {readout!r}; choose from {list(READOUTS)}")
    return readout


def patches_before(length: int, readout: str) -> int:
    """How many of the L - 1 patches stand before the class token."""
    return {"middle": (length - 1) // 2, "last": length - 1}.get(readout, 0)


def class_token_place(length: int, readout: str) -> Tensor:
    """The tokens (L,) in the sequence in which they stand; the class token is 0."""
    return move_class_token(torch.arange(length)[None, :, None], readout)[0, :, 0]


def move_class_token(tokens: Tensor, readout: str) -> Tensor:
    """Tokens (B, L, D), class token first, with the class token where the readout says."""
    before = patches_before(tokens.shape[1], readout)
    if before == 0:
        return tokens
    return torch.cat((tokens[:, 1 : before + 1], tokens[:, :1], tokens[:, before + 1 :]), 1)


def move_class_token_back(tokens: Tensor, readout: str) -> Tensor:
    """The inverse of `move_class_token`."""
    before = patches_before(tokens.shape[1], readout)
    if before == 0:
        return tokens
    return torch.cat((tokens[:, before : before + 1], tokens[:, :before], tokens[:, before + 1 :]), 1)


def read_out(tokens: Tensor, readout: str) -> Tensor:
    """Tokens (B, L, D), class token first; with `mean` the patches' mean in its place, or the last patch."""
    if readout == "last_patch":
        return torch.cat((tokens[:, -1:], tokens[:, 1:]), 1)
    if readout != "mean":
        return tokens
    return torch.cat((tokens[:, 1:].mean(1, keepdim=True), tokens[:, 1:]), 1)
