"""The sizes of models, by name or by their numbers."""

from typing import NamedTuple


class Size(NamedTuple):
    width: int
    depth: int
    heads: int


SIZES = {
    "mini": Size(64, 4, 4),
    "tiny": Size(192, 12, 3),
    "small": Size(384, 12, 6),
    "base": Size(768, 12, 12),
    "large": Size(1024, 24, 16),
}


def size_of(name: str) -> Size:
    """A size by its name, or by width/depth/heads, such as 48/2/4."""
    if name in SIZES:
        return SIZES[name]
    numbers = name.split("/")
    if len(numbers) != 3 or not all(number.isdecimal() and 0 < int(number) < 10**5 for number in numbers):
        choices = f"{', '.join(SIZES)}, or width/depth/heads such as 48/2/4"
        raise ValueError(f"unknown size {name!r}; choose from {choices}")
    return Size(*map(int, numbers))
