"""Arguments that are refused before anything slow is imported."""

from pathlib import Path

# What matplotlib can write, of all its versions.
ENDINGS = (
    *("avif", "eps", "gif", "jpeg", "jpg", "pdf", "pgf", "png", "ps", "raw", "rgba", "svg", "svgz", "tif"),
    *("tiff", "webp"),
)


def check_ending(path: Path) -> None:
    """Refuse a file that no figure can be written to by its name."""
    if path.suffix[1:].lower() not in ENDINGS:
        raise ValueError(f"cannot draw {str(path)!r}; choose an ending from {', '.join(ENDINGS)}")


def check_changes(changes: list[str]) -> None:
    """Refuse what is no change of the data."""
    for change in changes:
        if "=" not in change:
            raise ValueError(f"--data takes key=value, such as root=DIR, got {change!r}")
