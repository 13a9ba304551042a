"""Codes and fitted tokenizers on disk: a directory for each dataset, transform and tokenizer.

tokenizer.safetensors   the fitted tokenizer's tensors
tokenizer.json          the rest of it
codes.npy               codes (images, N)
facts.json              what is known of them; written last, so that its presence says that all is whole
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save

from reorder.files import checksum, replace_file, replacing
from reorder.prior.tokenizers import Fitted
from reorder.schemas import Unreadable, read


class Cache:
    """One directory of the cache, named by a key of all that determines its content but the version."""

    def __init__(self, root: Path, name: str, version: int, key: dict[str, Any]):
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        self.path, self.version, self.key = Path(root) / f"{name}-{digest[:16]}", version, key

    def load_codes(self, patches: int) -> tuple[np.ndarray, dict[str, Any]] | None:
        """Codes (images, N), memory-mapped, and facts; none if they are not there, whole and fitting."""
        kept, file = self._read("facts.json"), self.path / "codes.npy"
        if kept is None or not _is_whole(file, kept):
            return None
        codes, facts = np.load(file, mmap_mode="r"), kept["facts"]
        fit = codes.shape == (facts["images"], patches) and codes.max() < facts["codebook_size"]
        return (codes, facts) if fit else None

    def save_codes(self, batches: Iterable[np.ndarray]) -> None:
        """Write batches of codes (b, N) as they come, all of one type."""
        rows, header = 0, {}
        with replacing(self.path / "codes.npy") as file:
            for batch in batches:
                rows += len(batch)
                header = np.lib.format.header_data_from_array_1_0(batch)
                if file.tell() == 0:
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(batch.tobytes())
            assert rows
            file.seek(0)  # the format leaves room for the first axis to grow
            np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, batch.shape[1])})

    def save_facts(self, facts: dict[str, Any]) -> None:
        self._write("facts.json", {"facts": facts, "key": self.key}, self.path / "codes.npy")

    def load_tokenizer(self, kind: type[Fitted]) -> Fitted | None:
        """A tokenizer fitted before; none if it is not there whole."""
        kept, file = self._read("tokenizer.json"), self.path / "tokenizer.safetensors"
        if kept is None or not _is_whole(file, kept):
            return None
        try:
            return kind.restore(load_file(file), kept["settings"])
        except (KeyError, TypeError, ValueError, RuntimeError):  # of another kind of tokenizer
            return None

    def save_tokenizer(self, tokenizer: Fitted) -> None:
        file = self.path / "tokenizer.safetensors"
        replace_file(file, save({name: tensor.contiguous() for name, tensor in tokenizer.tensors().items()}))
        self._write("tokenizer.json", {"settings": tokenizer.settings(), "key": self.key}, file)

    def _read(self, name: str) -> dict[str, Any] | None:
        """What is known of a file; none if that is missing or damaged, and so to be made again."""
        try:
            kept: dict[str, Any] = read(self.path / name)
        except Unreadable:
            raise
        except ValueError:
            return None
        if kept["version"] != self.version:
            raise ValueError(
                f"{self.path} was made by version {kept['version']} of the tokenizer, and this is "
                f"version {self.version}; remove it, or choose another cache"
            )
        return kept

    def _write(self, name: str, content: dict[str, Any], whole: Path) -> None:
        """JSON with the checksum of the file it completes."""
        content = {"version": self.version, "sha256": checksum(whole), **content}
        replace_file(self.path / name, json.dumps(content, indent=1) + "\n")


def _is_whole(file: Path, kept: dict[str, Any]) -> bool:
    return file.is_file() and kept.get("sha256") == checksum(file)
