"""Files that must be whole and on the disk."""

import hashlib
import os
from pathlib import Path


def checksum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_writable(directory: Path) -> None:
    """Refuse a directory that cannot be made or written to, before the work whose results go there."""
    nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"cannot write to {directory}: {nearest} is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {directory}: {nearest} is not yours to write to")


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; directories are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    put(temporary, path)


def put(temporary: Path, path: Path) -> None:
    """Give a file that is written its name, when it is on the disk."""
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk; Windows cannot be asked to."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
