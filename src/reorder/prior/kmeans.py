"""k-means on patches: a code is the nearest of K average patches."""

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from reorder.data import Images
from reorder.display import Display
from reorder.patches import patchify, unpatchify
from reorder.prior.tokenizers import check_codebook_size, choose_codebook_size

# B images, C channels, H x W pixels, P patch size, N = rows * columns patches, K codes, D = C * P * P

MOST_CODES = 8192  # as many as Chameleon's
SAMPLE = 2**17  # patches to fit to, at most; 64 for each of 2,048 codes
SAMPLE_VALUES = 2**27  # numbers in them, at most: half a gigabyte
PATCHES_PER_IMAGE = 16  # at least, where there are as many: so at most 8,192 images are decoded for the fit
DISTANCES = 2**22  # to hold at once


class KMeans:
    version: ClassVar[int] = 1

    def __init__(self, centres: Tensor, patch_size: int, sampled: int = 0):
        self.centres, self.patch_size, self.sampled = centres, patch_size, sampled  # centres (K, D)
        self.codebook_size = len(centres)

    @classmethod
    def fit(
        cls, images: Images, patch_size: int, codebook_size: int | None, seed: int, display: Display
    ) -> Self:
        """Mini-batch k-means on a sample of the patches of a sample of the images."""
        from sklearn.cluster import MiniBatchKMeans  # here, for it takes long to import

        check_codebook_size(codebook_size)
        patches = sample_patches(images, patch_size, seed, display)
        size = codebook_size or choose_codebook_size(len(patches), MOST_CODES)
        distinct = len({patch.tobytes() for patch in patches})
        if distinct <= size:  # then every different patch is a code of its own
            if distinct < size:
                display.say(f"only {distinct} different patches: a codebook of {distinct}, not {size}")
            centres = np.unique(patches, axis=0).astype(np.float32)
            return cls(torch.from_numpy(centres), patch_size, len(patches))
        model = MiniBatchKMeans(size, batch_size=4096, n_init=1, random_state=seed, compute_labels=False)
        model.fit(patches.astype(np.float32))
        return cls(torch.from_numpy(model.cluster_centers_.astype(np.float32)), patch_size, len(patches))

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], settings: dict[str, Any]) -> Self:
        return cls(tensors["centres"], settings["patch_size"], settings["sampled_patches"])

    def tensors(self) -> dict[str, Tensor]:
        return {"centres": self.centres}

    def settings(self) -> dict[str, Any]:
        return {"patch_size": self.patch_size, "sampled_patches": self.sampled}

    def encode(self, images: Tensor) -> Tensor:
        """Images, uint8 (B, C, H, W), to codes (B, rows, columns)."""
        rows, columns = images.shape[2] // self.patch_size, images.shape[3] // self.patch_size
        patches = patchify(images, self.patch_size).flatten(0, 1)
        # |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c), of which the first is the same for all codes
        half_squares, columns_of = self.centres.square().sum(1) / 2, self.centres.T
        parts = patches.split(max(1, DISTANCES // self.codebook_size))
        nearest = [torch.addmm(half_squares, part.float(), columns_of, alpha=-1).argmin(1) for part in parts]
        return torch.cat(nearest).view(len(images), rows, columns)

    def decode(self, codes: Tensor) -> Tensor:
        return unpatchify(self.centres[codes.flatten(1)], (codes.shape[1], codes.shape[2]), self.patch_size)


def sample_patches(images: Images, patch_size: int, seed: int, display: Display) -> np.ndarray:
    """Random patches, uint8 (n, D), equally many of each of a random choice of the images."""
    random = np.random.default_rng(seed)
    grid = [side // patch_size for side in images.split.shape]
    patches, values = math.prod(grid), 3 * patch_size**2
    most = min(SAMPLE, SAMPLE_VALUES // values)
    some = images.subset(max(1, most // min(patches, PATCHES_PER_IMAGE)), random)
    each = min(patches, max(1, most // len(some)))
    sample = []
    with display.progress("patches to fit k-means to, images", len(some)) as advance:
        for batch in some.batches(64):
            chosen = random.permuted(np.tile(np.arange(patches), (len(batch), 1)), axis=1)[:, :each]
            index = torch.from_numpy(chosen)[:, :, None]
            sample.append(torch.take_along_dim(patchify(batch, patch_size), index, dim=1).flatten(0, 1))
            advance(len(batch))
    if not sample:
        raise ValueError(f"none of the {len(some)} images could be read")
    return torch.cat(sample).numpy()
