"""Arguments that are refused before anything slow is imported."""

import re
from pathlib import Path

from reorder.orders.scans import check_grid

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


def parse_grid(text: str) -> tuple[int, int]:
    """The grid that ROWSxCOLUMNS, such as 14x14, names."""
    if not re.fullmatch(r"[0-9]{1,9}x[0-9]{1,9}", text):
        raise ValueError(f"a grid is ROWSxCOLUMNS, such as 14x14, got {text[:40]!r}")
    rows, columns = map(int, text.split("x"))
    return check_grid((rows, columns))
