"""The VQ-VAE: its codebook against values computed by hand, and that it learns."""

import pytest
import torch

from reorder.data.progress import Display
from reorder.prior import vqvae
from reorder.prior.vqvae import VQVAE, Codebook, train

QUIET = Display(quiet=True)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(count=64, channels=1, shape=(16, 24)):
    """Smooth images: noise of 4x6 pixels, enlarged."""
    coarse = torch.rand(count, channels, 4, 6, generator=generator())
    return torch.nn.functional.interpolate(coarse, shape, mode="bilinear").mul(255).to(torch.uint8)


def test_the_codebook_moves_as_computed_by_hand(monkeypatch):
    monkeypatch.setattr(vqvae, "DECAY", 0.75)
    book = Codebook(2, 2)
    book.vectors.copy_(torch.tensor([[0.0, 0.0], [4.0, 4.0]]))
    book.uses.copy_(torch.tensor([2.0, 2.0]))
    book.sums.copy_(torch.tensor([[0.0, 0.0], [8.0, 8.0]]))
    batch = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [4.0, 8.0]])
    codes = book.nearest(batch)
    assert codes.tolist() == [0, 0, 0, 1]
    assert book.update(batch, codes, generator()) == 0
    # uses: 3/4 * 2 + 1/4 * (3, 1); sums: 3/4 * old + 1/4 * ((2, 2), (4, 8))
    assert book.uses.tolist() == [2.25, 1.75]
    assert book.sums.tolist() == [[0.5, 0.5], [7.0, 8.0]]
    expected = torch.tensor([[0.5 / 2.25, 0.5 / 2.25], [7 / 1.75, 8 / 1.75]])
    assert torch.allclose(book.vectors, expected, atol=1e-7)


def test_a_dead_code_is_revived_as_a_vector_of_the_batch():
    book = Codebook(3, 2)
    batch = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.0, 0.0], [0.2, 0.1]])
    book.start(batch, generator())
    assert len({tuple(vector) for vector in book.vectors.tolist()} & {tuple(v) for v in batch.tolist()}) == 3
    book.vectors[2], book.sums[2] = 100.0, 200.0  # nothing is near it any more
    revived = [book.update(batch, book.nearest(batch), generator(step)) for step in range(100)]
    first = revived.index(1)
    # its use falls from 2 by 0.95 a batch, below a twentieth of 2 after log(0.05) / log(0.95) = 58.4 batches
    assert first == 58
    assert sum(revived[:first]) == 0
    assert book.vectors.abs().max() <= 1


def test_vectors_get_the_nearest_code():
    book = Codebook(50, 8)
    book.vectors.copy_(torch.randn(50, 8, generator=generator()))
    vectors = torch.randn(200, 8, generator=generator(1))
    distances = (vectors[:, None] - book.vectors).square().sum(2)
    assert torch.equal(book.nearest(vectors), distances.argmin(1))


@pytest.mark.parametrize("patch_size", [1, 4, 7])
def test_the_grid_is_that_of_the_patches(patch_size):
    model = VQVAE(3, patch_size, 16, {})
    model.codebook.start(torch.randn(100, vqvae.DIMENSIONS, generator=generator()), generator())
    images = torch.randint(256, (2, 3, 3 * patch_size, 5 * patch_size), dtype=torch.uint8)
    codes = model.encode(images)
    assert codes.shape == (2, 3, 5)
    assert codes.dtype == torch.long
    assert model.decode(codes).shape == images.shape


def test_a_change_in_a_patch_changes_codes_around_it_only():
    torch.manual_seed(0)
    model = VQVAE(1, 4, 256, {})
    image = blobs(1, shape=(48, 64))
    latent = model.encoder(vqvae.scale(image))
    image[:, :, 20:24, 40:44] = 255  # row 5, column 10 of 12 x 16
    changed = (model.encoder(vqvae.scale(image)) != latent).any(1)[0]
    expected = torch.zeros(12, 16, dtype=torch.bool)
    expected[5 - 2 : 5 + 3, 10 - 2 : 10 + 3] = True
    assert torch.equal(changed, expected)


def test_training_learns_and_uses_the_codebook():
    images = blobs(32)
    torch.manual_seed(0)
    model = VQVAE(1, 4, 32, {})

    def error():
        return float((model.decode(model.encode(images)) - images).square().mean())

    train(model, images, 3, 0, QUIET)
    before = error()
    train(model, images, 100, 0, QUIET)
    variance = float(images.float().var())
    assert error() < 0.2 * variance < 0.5 * before
    assert len(model.encode(images).unique()) >= 28


def test_the_seed_decides_the_training():
    images, codes = blobs(16), []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        model = VQVAE(1, 4, 8, {})
        train(model, images, 5, seed, QUIET)
        codes.append(model.encode(images))
    assert torch.equal(codes[0], codes[1])
    assert not torch.equal(codes[0], codes[2])
