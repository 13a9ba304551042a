"""Small trees of images in the real formats."""

import numpy as np
import pytest
from PIL import Image


def write_image(file, seed, size=(40, 32)):
    """An image of one colour that is different for each seed, with a dark left edge so that a flip shows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full(
        (size[1], size[0], 3), (40 + 37 * seed % 200, 40 + 91 * seed % 200, 250 - 3 * seed), np.uint8
    )
    pixels[:, : size[0] // 2] //= 4
    Image.fromarray(pixels).save(file)


@pytest.fixture
def folder(tmp_path):
    """12 training and 5 validation images of the classes ant, bee and cow."""
    root, seed = tmp_path / "animals", 0
    for split, counts in (("train", (5, 3, 4)), ("val", (2, 2, 1))):
        for name, count in zip(("ant", "bee", "cow"), counts, strict=True):
            for number in range(count):
                write_image(root / split / name / f"{number}.png", seed)
                seed += 1
    return root
