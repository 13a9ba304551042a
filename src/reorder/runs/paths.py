"""What a path must be to be a run; imports nothing slow, so that a wrong path is refused at once."""

from pathlib import Path


def check_run(path: Path) -> None:
    """Refuse a directory that no run was begun in."""
    if not (path / "config.yaml").exists():
        raise ValueError(f"{path} is not a run directory: it has no config.yaml")


def check_trained(path: Path) -> None:
    """Refuse what `reorder.load` cannot load: neither a run, nor a checkpoint, nor a directory for a hub."""
    if (path / "config.json").exists() or path.name == "weights.safetensors" or path.name.startswith("step-"):
        if not path.exists():
            raise ValueError(f"{path} does not exist")
    else:
        check_run(path)
