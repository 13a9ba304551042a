"""A small convolutional VQ-VAE trained on the user's images: a code knows its patch and those around it.

van den Oord et al., Neural Discrete Representation Learning, with the codebook of its appendix A.1: moving
averages of what each code was chosen for. A code that is hardly chosen is revived as a vector of the batch.
"""

import math
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reorder.data.loader import Images
from reorder.data.progress import Display
from reorder.prior.tokenizers import check_codebook_size, choose_codebook_size

# B images, C channels, H x W pixels, P patch size, rows x columns patches, K codes, D values of a code

MOST_CODES = 512  # unless asked for; as in the paper cited above
WIDTH, DIMENSIONS, BLOCKS = 64, 32, 2  # of the convolutions, of a code, of each of encoder and decoder
STEPS, BATCH_PATCHES = 1000, 2048  # batches to train on, and patches in one
LEARNING_RATE, COMMITMENT = 1e-3, 0.25
DECAY = 0.95  # of the moving averages in a batch: they are of the last twenty or so
DEAD = 0.05  # of the average use of a code; one used less is revived
KEPT = 2**29  # bytes of images to train on, at most
ENCODED_PIXELS = 2**20  # at once


class Codebook(nn.Module):
    """K vectors (K, D), each the moving average of the vectors it was the nearest to."""

    vectors: Tensor
    uses: Tensor
    sums: Tensor

    def __init__(self, codebook_size: int, dimensions: int):
        super().__init__()
        self.register_buffer("vectors", torch.zeros(codebook_size, dimensions))
        self.register_buffer("uses", torch.zeros(codebook_size))  # (K,), moving average per batch
        self.register_buffer("sums", torch.zeros(codebook_size, dimensions))

    def nearest(self, vectors: Tensor) -> Tensor:
        """Codes (n,) of vectors (n, D)."""
        return torch.addmm(self.vectors.square().sum(1) / 2, vectors, self.vectors.T, alpha=-1).argmin(1)

    @torch.no_grad()
    def start(self, vectors: Tensor, generator: torch.Generator) -> None:
        """Begin with vectors (n, D) of a batch, as if all had been used equally."""
        self._replace(torch.ones_like(self.uses, dtype=torch.bool), vectors, generator)

    @torch.no_grad()
    def update(self, vectors: Tensor, codes: Tensor, generator: torch.Generator) -> int:
        """Move by one batch of vectors (n, D) and their codes (n,); the number of codes revived."""
        uses = torch.bincount(codes, minlength=len(self.uses)).to(vectors.dtype)
        sums = torch.zeros_like(self.sums).index_add_(0, codes, vectors)
        self.uses.lerp_(uses, 1 - DECAY)
        self.sums.lerp_(sums, 1 - DECAY)
        self.vectors.copy_(self.sums / self.uses.clamp(min=1e-12)[:, None])
        dead = self.uses < DEAD * len(vectors) / len(self.uses)
        if dead.any():
            self._replace(dead, vectors, generator)
        return int(dead.sum())

    def _replace(self, dead: Tensor, vectors: Tensor, generator: torch.Generator) -> None:
        count, average = int(dead.sum()), len(vectors) / len(self.uses)
        chosen = torch.randint(len(vectors), (count,), generator=generator)
        if count <= len(vectors):  # no two alike
            chosen = torch.randperm(len(vectors), generator=generator)[:count]
        self.vectors[dead] = vectors[chosen]
        self.uses[dead] = average
        self.sums[dead] = average * vectors[chosen]


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, grid: Tensor) -> Tensor:
        return grid + self.layers(grid)


class Output(NamedTuple):
    images: Tensor  # (B, C, H, W), rebuilt
    vectors: Tensor  # (n, D), what the encoder gave
    codes: Tensor  # (n,)
    commitment: Tensor  # (), mean square of how far the vectors are from their codes


class VQVAE(nn.Module):
    version: ClassVar[int] = 1

    def __init__(self, channels: int, patch_size: int, codebook_size: int, training: dict[str, Any]):
        super().__init__()
        self.channels, self.patch_size, self.codebook_size = channels, patch_size, codebook_size
        self.training_facts = training
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, WIDTH, patch_size, stride=patch_size),
            *(Residual(WIDTH) for _ in range(BLOCKS)),
            nn.Conv2d(WIDTH, DIMENSIONS, 1),
        )
        self.codebook = Codebook(codebook_size, DIMENSIONS)
        self.decoder = nn.Sequential(
            nn.Conv2d(DIMENSIONS, WIDTH, 1),
            *(Residual(WIDTH) for _ in range(BLOCKS)),
            nn.ConvTranspose2d(WIDTH, channels, patch_size, stride=patch_size),
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on a CPU

    @classmethod
    def fit(
        cls, images: Images, patch_size: int, codebook_size: int | None, seed: int, display: Display
    ) -> Self:
        """Train on as many of the images as fit in memory."""
        check_codebook_size(codebook_size)
        pixels = keep(images, seed, display)
        patches = len(pixels) * (pixels.shape[2] // patch_size) * (pixels.shape[3] // patch_size)
        size = codebook_size or choose_codebook_size(patches, MOST_CODES)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls(pixels.shape[1], patch_size, size, {"trained_on": len(pixels), "steps": STEPS})
        train(model, pixels, STEPS, seed, display)
        return model

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], settings: dict[str, Any]) -> Self:
        size = len(tensors["codebook.vectors"])
        model = cls(settings["channels"], settings["patch_size"], size, settings["training"])
        model.load_state_dict(tensors)
        return model

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.state_dict())

    def settings(self) -> dict[str, Any]:
        return {"channels": self.channels, "patch_size": self.patch_size, "training": self.training_facts}

    def forward(self, images: Tensor) -> Output:
        """Of images, uint8 (B, C, H, W); what is rebuilt is in -1..1."""
        latent = self.encoder(scale(images))
        vectors = latent.permute(0, 2, 3, 1).flatten(0, 2)
        codes = self.codebook.nearest(vectors.detach())
        chosen = self.codebook.vectors[codes]
        # the gradient passes to the encoder as if nothing had been rounded
        straight = vectors + (chosen - vectors).detach()
        quantized = straight.view(len(images), *latent.shape[2:], -1).permute(0, 3, 1, 2)
        return Output(self.decoder(quantized), vectors, codes, F.mse_loss(vectors, chosen))

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Images, uint8 (B, C, H, W), to codes (B, rows, columns)."""
        parts = images.split(max(1, ENCODED_PIXELS // images[0, 0].numel()))
        return torch.cat([self._encode(part) for part in parts])

    def _encode(self, images: Tensor) -> Tensor:
        latent = self.encoder(scale(images)).permute(0, 2, 3, 1)
        return self.codebook.nearest(latent.flatten(0, 2)).view(latent.shape[:3])

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        rebuilt = self.decoder(self.codebook.vectors[codes].permute(0, 3, 1, 2))
        return rebuilt.add(1).mul(127.5).clamp(0, 255)


def scale(images: Tensor) -> Tensor:
    """Bytes to -1..1."""
    return images.float().div(127.5).sub(1)


def keep(images: Images, seed: int, display: Display) -> Tensor:
    """A random choice of the images, uint8 (n, C, H, W), as many as fit in memory."""
    count = max(1, KEPT // (3 * math.prod(images.split.shape)))
    subset = images.subset(count, np.random.default_rng(seed))
    kept = []
    with display.progress("images to train the VQ-VAE on", len(subset)) as advance:
        for batch in subset.batches(64):
            kept.append(batch)
            advance(len(batch))
    if not kept:
        raise ValueError(f"none of the {len(subset)} images could be read")
    return torch.cat(kept)


def train(model: VQVAE, pixels: Tensor, steps: int, seed: int, display: Display) -> None:
    """Train on random batches of images (n, C, H, W), the learning rate falling to zero as a cosine."""
    generator = torch.Generator().manual_seed(seed)
    patches = pixels.shape[2] * pixels.shape[3] // model.patch_size**2
    batch_size = min(len(pixels), max(8, BATCH_PATCHES // patches))
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def batch() -> Tensor:
        return pixels[torch.randint(len(pixels), (batch_size,), generator=generator)]

    with torch.no_grad():
        model.codebook.start(model(batch()).vectors, generator)
    with display.progress("training the VQ-VAE, batches", steps) as advance:
        for _ in range(steps):
            images = batch()
            output = model(images)
            loss = F.mse_loss(output.images, scale(images)) + COMMITMENT * output.commitment
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            model.codebook.update(output.vectors.detach(), output.codes, generator)
            advance(1)
