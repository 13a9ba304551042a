"""k-means on patches against scikit-learn's own predictions and planted clusters."""

import numpy as np
import pytest
import torch
from sklearn.cluster import MiniBatchKMeans

from reorder.config import Data
from reorder.data.datasets import Memory
from reorder.data.loader import Images
from reorder.data.progress import Display
from reorder.prior import kmeans
from reorder.prior.kmeans import KMeans, sample_patches
from reorder.prior.tokenizers import choose_codebook_size

QUIET = Display(quiet=True)


def in_memory(pixels):
    """Images to look at, of pixels, uint8 (n, C, H, W)."""
    split = Memory(pixels, torch.zeros(len(pixels), dtype=torch.long), tuple(pixels.shape[2:]))
    return Images(split, torch.arange(len(pixels)), Data())


def from_patches(patches):
    """An image (C, H, W) laid out by hand from patches (rows, columns, C, P, P)."""
    return torch.cat([torch.cat(list(row), dim=2) for row in patches], dim=1)


@pytest.mark.parametrize(("channels", "patch_size"), [(1, 2), (3, 7)])
def test_planted_clusters_are_recovered(channels, patch_size):
    random = torch.Generator().manual_seed(0)
    planted = torch.randint(20, 236, (8, channels, patch_size, patch_size), generator=random)
    labels = torch.randint(8, (40, 3, 5), generator=random)
    noise = torch.randint(-3, 4, (40, 3, 5, channels, patch_size, patch_size), generator=random)
    images = torch.stack([from_patches(image) for image in planted[labels] + noise]).to(torch.uint8)
    tokenizer = KMeans.fit(in_memory(images), patch_size, 8, seed=0, display=QUIET)
    codes = tokenizer.encode(images)
    assert codes.shape == (40, 3, 5)
    pairs = set(zip(labels.flatten().tolist(), codes.flatten().tolist(), strict=True))
    assert len(pairs) == 8  # one code for each planted cluster, and the other way round
    error = (tokenizer.decode(codes) - images).abs().max()
    assert error <= 6.5  # the noise, and how far it moves an average


def test_codes_are_scikit_learns_predictions():
    images = torch.randint(
        256, (30, 3, 12, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    tokenizer = KMeans.fit(in_memory(images), 4, 32, seed=3, display=QUIET)
    patches = np.stack(
        [
            image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].reshape(-1)
            for image in images.numpy().astype(np.float32)
            for row in range(3)
            for column in range(5)
        ]
    )
    peer = MiniBatchKMeans(32, n_init=1, random_state=0).fit(patches)
    peer.cluster_centers_ = tokenizer.centres.numpy()
    assert np.array_equal(tokenizer.encode(images).flatten().numpy(), peer.predict(patches))


def test_few_distances_at_a_time_change_nothing(monkeypatch):
    images = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    tokenizer = KMeans.fit(in_memory(images), 2, 16, seed=0, display=QUIET)
    whole = tokenizer.encode(images)
    monkeypatch.setattr(kmeans, "DISTANCES", 50)
    assert torch.equal(tokenizer.encode(images), whole)


def test_codes_lie_where_the_patches_do():
    shades = torch.arange(6).view(2, 3) * 40  # darkest at the top left, lightest at the bottom right
    image = shades.repeat_interleave(4, 0).repeat_interleave(4, 1)[None, None].to(torch.uint8)
    tokenizer = KMeans.fit(in_memory(image), 4, 6, seed=0, display=QUIET)
    codes = tokenizer.encode(image)
    assert sorted(codes.flatten().tolist()) == list(range(6))
    assert torch.equal(tokenizer.centres[codes[0], 0], shades.float())
    assert torch.equal(tokenizer.decode(codes), image.float())


def test_a_codebook_is_no_larger_than_the_number_of_different_patches(capsys):
    images = torch.zeros(50, 1, 8, 8, dtype=torch.uint8)
    images[:, :, 4:, 4:] = 200
    tokenizer = KMeans.fit(in_memory(images), 4, 16, seed=0, display=Display())
    assert tokenizer.codebook_size == 2
    assert "only 2 different patches: a codebook of 2, not 16" in capsys.readouterr().out
    codes = tokenizer.encode(images)
    assert (codes == codes[0]).all()
    assert len(codes[0].unique()) == 2


@pytest.mark.parametrize(
    ("patches", "size"), [(1, 1), (127, 1), (128, 2), (19_600, 256), (2**17, 2048), (10**9, 8192)]
)
def test_the_codebook_grows_with_the_patches(patches, size):
    assert choose_codebook_size(patches, most=8192) == size


def test_a_sample_is_bounded_and_of_patches_of_the_images(monkeypatch):
    monkeypatch.setattr(kmeans, "SAMPLE", 64)
    images = torch.arange(100, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 12, 12).contiguous()
    images[:, :, :, 6:] += 100  # an image of two shades in 36 patches of 2x2
    sample = sample_patches(in_memory(images), 2, 0, QUIET)
    assert sample.shape == (64, 4)
    seen, counts = np.unique(sample[:, 0] % 100, return_counts=True)
    assert len(seen) == 4  # 16 patches of each of four images
    assert (counts == 16).all()
    assert np.array_equal(sample, sample_patches(in_memory(images), 2, 0, QUIET))
    assert not np.array_equal(sample, sample_patches(in_memory(images), 2, 1, QUIET))
