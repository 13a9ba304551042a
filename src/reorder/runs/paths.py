"""What a path must be to be a run; imports nothing slow, so that a wrong path is refused at once."""

from pathlib import Path


def check_run(path: Path) -> None:
    """Refuse a directory that no run was begun in."""
    if not (path / "config.yaml").exists():
        raise ValueError(f"{path} is not a run directory: it has no config.yaml")
