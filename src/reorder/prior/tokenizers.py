"""Tokenizers by name: an image to a grid of discrete codes, the grid being that of the model's patches."""

from typing import Any, ClassVar, Protocol, Self

from torch import Tensor

from reorder.data.loader import Images
from reorder.data.progress import Display

# B images, C channels, H x W pixels, P patch size, N = rows * columns patches, K codes, D values of a code


class Tokenizer(Protocol):
    version: ClassVar[int]  # raised whenever the same images would get other codes
    codebook_size: int

    def encode(self, images: Tensor) -> Tensor:
        """Images, uint8 (B, C, H, W), to codes, long (B, H // P, W // P)."""


class Fitted(Tokenizer, Protocol):
    """A tokenizer made from the user's own images, which can also be undone."""

    @classmethod
    def fit(
        cls, images: Images, patch_size: int, codebook_size: int | None, seed: int, display: Display
    ) -> Self: ...

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], settings: dict[str, Any]) -> Self:
        """The tokenizer whose `tensors` and `settings` these are."""

    def tensors(self) -> dict[str, Tensor]: ...

    def settings(self) -> dict[str, Any]:
        """What else there is to know, as JSON can hold it."""

    def decode(self, codes: Tensor) -> Tensor:
        """Codes (B, rows, columns) to images, float (B, C, H, W) in 0..255."""


PATCHES_PER_CODE = 64  # their average is then known to an eighth of their spread


def choose_codebook_size(patches: int, most: int) -> int:
    """The largest power of two that leaves each code at least 64 patches on average, at most `most`."""
    return min(most, 2 ** max(0, (patches // PATCHES_PER_CODE).bit_length() - 1))


def check_codebook_size(codebook_size: int | None) -> None:
    if codebook_size is not None and codebook_size < 1:
        raise ValueError(f"the codebook must have at least 1 code, got {codebook_size}")
