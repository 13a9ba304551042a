"""Files that must be whole and on the disk."""

import glob
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LEFT_BEHIND = 24 * 60 * 60  # seconds without a change, after which nobody writes to a temporary file


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


def temporary_name(path: Path) -> Path:
    """A name beside a file or directory that no other process uses, until what is written can take its place.

    It ends in .tmp, so that what a killed process leaves behind is known as such.
    """
    return path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of another when the block ends, whole or not at all.

    Directories are made. The file is created, never opened: a link that lies in wait is not followed. Of two
    processes that write the same file the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):  # by processes that were killed
        with suppress(FileNotFoundError):  # it was finished meanwhile
            if time.time() - left.lstat().st_mtime > LEFT_BEHIND:
                left.unlink()
    temporary = temporary_name(path)
    try:
        with naming(path):
            with open(temporary, "xb") as file:
                yield file
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; directories are made."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def discard(directory: Path) -> None:
    """Remove a directory; a kill meanwhile does not leave a part of it under its name."""
    temporary = temporary_name(directory.with_name("removed"))
    os.replace(directory, temporary)
    remove(temporary)


def remove(path: Path) -> None:
    """Remove a directory or a file; of a link the link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have errors of the disk name a file: those of a write by themselves do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk; Windows cannot be asked to."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
