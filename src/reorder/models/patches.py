"""Images to tokens: patches, their embedding, positions, and the class token.

A position belongs to a patch, not to a slot: positions are added in raster order, and only then are the
tokens read in an order. The class token is slot 0 and never reordered.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from reorder.models.layers import run_block
from reorder.orders.read import Known, Reading, check_fits, known, read
from reorder.orders.scans import check_grid

# B images, C channels, P patch size, N = rows * columns patches, L = N + 1 tokens, D width

LARGE = 16_384  # patches of an image; larger ones are embedded in tiles
TILE = 4096  # patches that are embedded at once


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Images (B, C, H, W) to patches (B, N, C * P * P) in raster order."""
    return rearrange(images, "b c (r p) (s q) -> b (r s) (c p q)", p=patch_size, q=patch_size)


def some_patches(images: Tensor, patch_size: int, places: Tensor) -> Tensor:
    """The patches (B, n, C * P * P) of images (B, C, H, W) at places (n,) or (B, n); no others are copied."""
    table = rearrange(images, "b c (r p) (s q) -> r s b c p q", p=patch_size, q=patch_size)
    row, column = places // table.shape[1], places % table.shape[1]
    if places.dim() == 1:
        return table[row, column].transpose(0, 1).flatten(2)
    image = torch.arange(len(images), device=images.device)[:, None]
    return table[row, column, image].flatten(2)


def unpatchify(patches: Tensor, grid: tuple[int, int], patch_size: int) -> Tensor:
    """Patches (B, N, C * P * P) in raster order to images (B, C, H, W)."""
    rows, columns = check_grid(grid)
    return rearrange(
        patches, "b (r s) (c p q) -> b c (r p) (s q)", r=rows, s=columns, p=patch_size, q=patch_size
    )


def sincos_positions(grid: tuple[int, int], width: int) -> Tensor:
    """Fixed positions (N, D): sines and cosines of the column, then of the row, half of the width each."""
    if width % 4:
        raise ValueError(f"sincos positions need a width divisible by 4, got {width}")
    frequency = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    row, column = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    angles = [axis.reshape(-1, 1) * frequency for axis in (column, row)]
    return torch.cat([f(angle) for angle in angles for f in (torch.sin, torch.cos)], dim=1).float()


def initial_std(width: int) -> float:
    """Of the weights a model of a width (D) starts with: 0.02, as the published models, all of width 192 up.

    A narrow model's signals would fade with that, and it would hardly learn in a short run: weights of
    1 / sqrt(D) keep them.
    """
    return 0.02 if width >= 192 else width**-0.5


class PatchEmbed(nn.Module):
    """Images (B, C, H, W) to tokens (B, N, D): LayerNorm of the pixels, a linear map, LayerNorm.

    The first, which the paper's models have, erases how bright a patch is: a white one is as a black one.
    Without `pixel_norm` it is kept.
    """

    def __init__(self, patch_size: int, channels: int, width: int, pixel_norm: bool = True):
        super().__init__()
        pixels = channels * patch_size**2
        if pixels == 1 and pixel_norm:
            raise ValueError(
                "a patch of a single value is erased by its LayerNorm; use a patch size of at least 2, or "
                "pixel_norm=false"
            )
        self.patch_size = patch_size
        self.pixel_norm: nn.Module = nn.LayerNorm(pixels) if pixel_norm else nn.Identity()
        self.proj = nn.Linear(pixels, width)
        self.norm: nn.Module = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        """Large images in tiles, whose patches are made again backward: never are all of them in memory."""
        rows, columns = (side // self.patch_size for side in images.shape[2:])
        if rows * columns <= LARGE or torch.compiler.is_exporting():
            return self.embed(images)
        tiles = images.split(max(1, TILE // columns) * self.patch_size, dim=2)
        return torch.cat([run_block(self.embed, tile, True) for tile in tiles], dim=1)

    def embed(self, images: Tensor) -> Tensor:
        return self.project(patchify(images, self.patch_size))

    def some(self, images: Tensor, places: Tensor) -> Tensor:
        """The tokens (B, n, D) of the patches at places (n,) or (B, n) alone."""
        return self.project(some_patches(images, self.patch_size, places))

    def project(self, patches: Tensor) -> Tensor:
        return self.norm(self.proj(self.pixel_norm(patches)))


class Tokens(nn.Module):
    """Images (B, C, H, W) and an order to tokens (B, L, D): class token, then patches in that order."""

    def __init__(
        self,
        grid: tuple[int, int],
        patch_size: int,
        channels: int,
        width: int,
        positions: str = "learned",
        pixel_norm: bool = True,
    ):
        super().__init__()
        rows, columns = check_grid(grid)
        self.image_shape = (channels, rows * patch_size, columns * patch_size)
        self.patch_embed = PatchEmbed(patch_size, channels, width, pixel_norm)
        std = initial_std(width)
        self.cls_token = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, width), std=std))
        patches = rows * columns
        if positions == "learned":
            self.pos_embed = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, patches + 1, width), std=std))
        elif positions == "sincos":
            fixed = torch.cat([torch.zeros(1, width), sincos_positions(grid, width)])
            self.register_buffer("pos_embed", fixed[None], persistent=False)
        else:
            raise ValueError(f"unknown positions {positions!r}; choose from learned, sincos")

    def forward(self, images: Tensor, order: Reading | None = None) -> Tensor:
        return self.in_order(images, order)[0]

    def in_order(self, images: Tensor, order: Reading | None, unseen: int = 0) -> tuple[Tensor, Known | None]:
        """The tokens, and the order of their patches, which may depend on the images.

        The model needs no patches of the first `unseen` slots: they may be left out.
        """
        if tuple(images.shape[1:]) != self.image_shape:
            raise ValueError(
                f"images of shape {tuple(images.shape[1:])} given; the model reads {self.image_shape}"
            )
        class_token = (self.cls_token + self.pos_embed[:, :1]).expand(images.shape[0], -1, -1)
        count = self.pos_embed.shape[1] - 1
        some = unseen > 0 and count - unseen <= LARGE and not torch.compiler.is_exporting()
        if some and isinstance(order, Tensor):
            check_fits(images.shape[0], count, order)
            if order.amin() < 0 or order.amax() >= count:
                holds = f"{int(order.amin())} to {int(order.amax())}"
                raise ValueError(f"an order of {count} patches holds 0 to {count - 1}, not {holds}")
            places = order.to(images.device)[..., unseen:]
            # As an embedding: the gradient of an index is added up in another order each time.
            positions = F.embedding(places, self.pos_embed[0, 1:])
            patches = self.patch_embed.some(images, places) + positions
            return torch.cat([class_token.to(patches.dtype), patches], dim=1), order
        patches = self.patch_embed(images) + self.pos_embed[:, 1:]
        found = known(patches, order)
        return torch.cat([class_token.to(patches.dtype), read(patches, found)], dim=1), found
