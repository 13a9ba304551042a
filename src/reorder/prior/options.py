"""What can be asked of a prior; imports nothing slow, so that a bad option is refused at once."""

from reorder.config import TOKENIZERS

SCOPES = ("image", "corpus")
MOST_CODES = 2**16  # that can be asked for


def check_tokenizer(
    tokenizer: str, codebook_size: int | None, weights: str | None, images: int | None
) -> None:
    """Refuse a tokenizer, or a number of codes or images, that there cannot be."""
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer {tokenizer!r}; choose from {', '.join(TOKENIZERS)}")
    for what, number in (("the codebook size", codebook_size), ("the number of images", images)):
        if number is not None and number < 1:
            raise ValueError(f"{what} must be at least 1, got {number}")
    if codebook_size is not None and codebook_size > MOST_CODES:
        raise ValueError(f"the codebook size must be at most {MOST_CODES}, got {codebook_size}")
    if tokenizer == "chameleon" and not weights:
        raise ValueError("the chameleon tokenizer needs weights: a directory, or facebook/chameleon-7b")
    if tokenizer == "chameleon" and codebook_size is not None:
        raise ValueError("the codebook size of chameleon is that of its weights; leave it away")
    if tokenizer != "chameleon" and weights:
        raise ValueError(f"weights are for the chameleon tokenizer, not for {tokenizer}")


def check_measurable(grid: tuple[int, int], images: int, scope: str) -> None:
    """Refuse images, or a way to compress them, that cannot be measured."""
    if scope not in SCOPES:
        raise ValueError(f"unknown scope {scope!r}; choose from {', '.join(SCOPES)}")
    if grid[0] * grid[1] < 3:
        raise ValueError(
            f"a {grid[0]}x{grid[1]} grid has no order to speak of; choose a smaller model.patch_size"
        )
    if images < 2:
        raise ValueError(f"the prior needs at least 2 images for a standard error, got {images}")
