"""k-means on patches: a code is the nearest of K average patches."""

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from reorder.data.loader import Images
from reorder.data.progress import Display
from reorder.models.patches import patchify, unpatchify
from reorder.prior.tokenizers import check_codebook_size, choose_codebook_size

# B images, C channels, H x W pixels, P patch size, N = rows * columns patches, K codes, D = C * P * P

MOST_CODES = 8192  # as many as Chameleon's
SAMPLE = 2**17  # patches to fit to, at most; 64 for each of 2,048 codes
SAMPLE_VALUES = 2**27  # numbers in them, at most: half a gigabyte
PATCHES_PER_IMAGE = 16  # at least, where there are as many: so at most 8,192 images are decoded for the fit
START = 4096  # different patches among which k-means++ looks for the first centres
START_CODES = 256  # up to which it does; with more it takes minutes, so they are different patches at random
PASSES = 5  # over the sample, at most
DISTANCES = 2**19  # to hold at once: they stay in the processor's cache


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
        from sklearn.cluster import MiniBatchKMeans, kmeans_plusplus  # imported here: slow, seldom needed

        check_codebook_size(codebook_size)
        patches = sample_patches(images, patch_size, seed, display)
        size = codebook_size or choose_codebook_size(len(patches), MOST_CODES)
        distinct = np.array(sorted({patch.tobytes(): i for i, patch in enumerate(patches)}.values()))
        values = patches.astype(np.float32)
        if len(distinct) <= size:  # then every different patch is a code of its own
            if len(distinct) < size:
                display.say(
                    f"only {len(distinct)} different patches: a codebook of {len(distinct)}, not {size}"
                )
            return cls(torch.from_numpy(values[distinct]), patch_size, len(patches))
        centres = values[np.random.default_rng(seed).permutation(distinct)[: max(size, START)]]
        if size <= START_CODES:
            centres, _ = kmeans_plusplus(centres, size, random_state=seed)
        model = MiniBatchKMeans(
            size,
            init=centres[:size],
            n_init=1,
            batch_size=4096,
            max_iter=PASSES,
            random_state=seed,
            compute_labels=False,
        )
        model.fit(values)
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
        half_squares, transposed = self.centres.square().sum(1) / 2, self.centres.T
        parts = patches.split(max(1, DISTANCES // self.codebook_size))
        distances = (torch.addmm(half_squares, part.float(), transposed, alpha=-1) for part in parts)
        nearest = np.concatenate([part.numpy().argmin(1) for part in distances])  # numpy's is the faster
        return torch.from_numpy(nearest).view(len(images), rows, columns)

    def decode(self, codes: Tensor) -> Tensor:
        return unpatchify(self.centres[codes.flatten(1)], (codes.shape[1], codes.shape[2]), self.patch_size)


def sample_patches(images: Images, patch_size: int, seed: int, display: Display) -> np.ndarray:
    """Random patches, uint8 (n, D), equally many of each of a random choice of the images."""
    random = np.random.default_rng(seed)
    grid = [side // patch_size for side in images.split.shape]
    patches, values = math.prod(grid), 3 * patch_size**2
    most = min(SAMPLE, SAMPLE_VALUES // values)
    subset = images.subset(max(1, most // min(patches, PATCHES_PER_IMAGE)), random)
    each = min(patches, max(1, most // len(subset)))
    sample = []
    with display.progress("patches to fit k-means to, images", len(subset)) as advance:
        for batch in subset.batches(64):
            chosen = random.permuted(np.tile(np.arange(patches), (len(batch), 1)), axis=1)[:, :each]
            index = torch.from_numpy(chosen)[:, :, None]
            sample.append(torch.take_along_dim(patchify(batch, patch_size), index, dim=1).flatten(0, 1))
            advance(len(batch))
    if not sample:
        raise ValueError(f"none of the {len(subset)} images could be read")
    return torch.cat(sample).numpy()
