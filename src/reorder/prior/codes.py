"""A dataset's images as grids of codes, kept on disk so that a second look is free."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reorder.config import Experiment
from reorder.data.datasets import load_unlabelled
from reorder.data.loader import Images
from reorder.data.progress import Display
from reorder.data.transform import TRANSFORM_VERSION
from reorder.models.grid import grid_of
from reorder.prior.cache import Cache
from reorder.prior.chameleon import Chameleon, find_files
from reorder.prior.kmeans import KMeans
from reorder.prior.options import check_tokenizer
from reorder.prior.tokenizers import Fitted, Tokenizer
from reorder.prior.vqvae import VQVAE

# n images, B in a batch, N = rows * columns patches, K codes

FITTED: dict[str, type[Fitted]] = {"kmeans": KMeans, "vqvae": VQVAE}
BATCH = 64  # images to hold and encode at once
COLLAPSED = 0.03  # of the codes that could be used: a perplexity below it is worth a warning


class Codes(NamedTuple):
    codes: np.ndarray  # (images, N), raster order, memory-mapped, the smallest unsigned type that fits
    codebook_size: int
    grid: tuple[int, int]
    facts: dict[str, Any]  # of the tokenizer and the images, as JSON can hold them


def encode_dataset(
    experiment: Experiment,
    tokenizer: str = "kmeans",
    *,
    codebook_size: int | None = None,
    weights: str | None = None,
    images: int | None = None,
    cache: Path,
    display: Display,
    seed: int = 0,
) -> Codes:
    """Codes of the training images, or of so many chosen by the seed; from the cache if they are there."""
    check_tokenizer(tokenizer, codebook_size, weights, images)
    patch_size = experiment.model.patch_size
    grid = grid_of(experiment.model.image_shape, patch_size)
    files = find_files(weights) if weights else {}
    chosen = _choose_images(experiment, images, seed)
    key = {"tokenizer": tokenizer, "codebook_size": codebook_size, "weights": _stamps(files)}
    key |= {"images": images, "seed": seed} | _identity(experiment, chosen)
    kept = Cache(cache, tokenizer, FITTED.get(tokenizer, Chameleon).version, key)
    found = kept.load_codes(grid[0] * grid[1])
    if found is None:
        model: Tokenizer
        if tokenizer in FITTED:
            model = _load_or_fit(FITTED[tokenizer], kept, chosen, patch_size, codebook_size, seed, display)
        else:
            model = Chameleon.load(files, patch_size)
        _encode(model, tokenizer, chosen, kept, display)
        found = kept.load_codes(grid[0] * grid[1])
        assert found is not None
    codes, facts = found
    if len(facts["broken"]) > experiment.data.max_broken:
        raise ValueError(
            f"{len(facts['broken'])} images are broken, more than data.max_broken="
            f"{experiment.data.max_broken}; mend them, or raise it"
        )
    if facts["broken"]:
        display.say(f"{len(facts['broken'])} broken images are left out")
    if facts["collapsed"]:
        display.say(
            f"warning: the codebook collapsed: the {facts['codebook_size']} codes are used as unevenly as "
            f"{facts['perplexity']:.1f} codes used equally"
        )
    return Codes(codes, facts["codebook_size"], grid, facts)


def _choose_images(experiment: Experiment, count: int | None, seed: int) -> Images:
    """All training images, or the first so many of a random choice, in the dataset's sequence."""
    split = load_unlabelled(experiment.data, experiment.model.image_shape)
    indices = np.arange(len(split))
    if count is not None:
        indices = np.sort(np.random.default_rng(seed).permutation(indices)[:count])
    return Images(split, torch.from_numpy(indices), experiment.data)


def _identity(experiment: Experiment, images: Images) -> dict[str, Any]:
    """What determines the pixels: the dataset and what is done to it; not how fast or for what it is read."""
    data, model = experiment.data, experiment.model
    return {
        "data": {key: getattr(data, key) for key in ("name", "root", "max_pixels", "crop_to_box")},
        "fingerprint": images.split.fingerprint(),
        "transform": TRANSFORM_VERSION,
        "image_shape": list(model.image_shape),
        "patch_size": model.patch_size,
    }


def _stamps(files: dict[str, Path]) -> dict[str, list[Any]]:
    """Where each file of weights is, its size and its time."""
    return {
        name: [str(file.resolve()), (stat := file.stat()).st_size, stat.st_mtime_ns]
        for name, file in files.items()
    }


def _load_or_fit(
    kind: type[Fitted],
    kept: Cache,
    images: Images,
    patch_size: int,
    codebook_size: int | None,
    seed: int,
    display: Display,
) -> Fitted:
    fitted = kept.load_tokenizer(kind)
    if fitted is None:
        fitted = kind.fit(images, patch_size, codebook_size, seed, display)
        kept.save_tokenizer(fitted)
    return fitted


class Tally:
    """What the codes are like, added up batch by batch."""

    def __init__(self, codebook_size: int):
        self.images, self.uses = 0, torch.zeros(codebook_size, dtype=torch.long)
        self.values, self.error = 0, 0.0
        self.sums: Tensor | float = 0.0  # (C,)
        self.squares: Tensor | float = 0.0  # (C,)

    def add(self, images: Tensor, codes: Tensor, rebuilt: Tensor | None) -> None:
        """Images and what is rebuilt of them, (B, C, H, W) in 0..255, and codes (B, rows, columns)."""
        self.images += len(images)
        self.uses += torch.bincount(codes.flatten(), minlength=len(self.uses))
        if rebuilt is not None:
            pixels = images.float()
            self.values += images.numel()
            self.error += float((rebuilt - pixels).square().sum(dtype=torch.float64))
            self.sums += pixels.sum((0, 2, 3), dtype=torch.float64)
            self.squares += pixels.square().sum((0, 2, 3), dtype=torch.float64)

    def facts(self) -> dict[str, Any]:
        size = len(self.uses)
        possible = min(size, int(self.uses.sum()))
        perplexity = float(torch.distributions.Categorical(self.uses.double()).entropy().exp())
        facts = {
            "images": self.images,
            "codebook_size": size,
            "codes_used": int((self.uses > 0).sum()),
            "perplexity": perplexity,
            "collapsed": perplexity < min(possible / 2, max(4, COLLAPSED * possible)),
        }
        if self.values:
            assert isinstance(self.sums, Tensor)
            assert isinstance(self.squares, Tensor)
            pixels = self.values / len(self.sums)
            variance = float((self.squares / pixels - (self.sums / pixels).square()).mean())
            error = self.error / self.values
            facts |= {"mse": error / 255**2, "mse_of_variance": error / variance if variance else 0.0}
        return facts


def _encode(model: Tokenizer, name: str, images: Images, kept: Cache, display: Display) -> None:
    """Write the codes of all images, and then what they are like."""
    tally = Tally(model.codebook_size)
    dtype = np.min_scalar_type(model.codebook_size - 1)

    def batches() -> Iterator[np.ndarray]:
        with display.progress(f"encoding with {name}, images", len(images)) as advance:
            for batch in images.batches(BATCH):
                codes = model.encode(batch)
                tally.add(batch, codes, model.decode(codes) if isinstance(model, KMeans | VQVAE) else None)
                yield codes.flatten(1).numpy().astype(dtype)
                advance(len(batch))
        if not tally.images:
            raise ValueError(f"none of the {len(images)} images could be read")

    kept.save_codes(batches())
    facts = {"tokenizer": name, "version": model.version, "broken": sorted(images.broken), **tally.facts()}
    kept.save_facts(facts | (model.settings() if isinstance(model, KMeans | VQVAE) else {}))
