"""How many patches an image has; imports nothing slow, so that a bad size is refused at once."""

from reorder.orders.scans import check_grid


def grid_of(image_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    """The (rows, columns) of patches in an image of a size, an int for a square or (height, width)."""
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    if patch_size < 1:
        raise ValueError(f"patch size must be at least 1, got {patch_size}")
    if height < patch_size or width < patch_size or height % patch_size or width % patch_size:
        raise ValueError(
            f"image size {height}x{width} is not divisible by patch size {patch_size}; "
            f"try {max(1, round(height / patch_size)) * patch_size}x"
            f"{max(1, round(width / patch_size)) * patch_size}"
        )
    return check_grid((height // patch_size, width // patch_size))
