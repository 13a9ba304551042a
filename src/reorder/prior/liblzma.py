"""liblzma called directly, for many short sequences on several threads.

Python's own lzma sets an encoder up while it holds the interpreter's lock, which is half the work for a few
hundred bytes, so that threads wait for each other. A call through ctypes holds no lock. Where Python's
extension does not show liblzma's functions, Python's own is used; the sizes are the same.
"""

import _lzma
import ctypes
import lzma
from functools import cache
from typing import Any

import numpy as np

Filter = dict[str, Any]  # of Python's lzma
VLI_UNKNOWN = 2**64 - 1  # ends a list of filters


class _Options(ctypes.Structure):
    """The beginning of lzma_options_lzma; the rest is set by a preset."""

    _fields_ = (
        ("dict_size", ctypes.c_uint32),
        ("preset_dict", ctypes.c_void_p),
        ("preset_dict_size", ctypes.c_uint32),
        ("lc", ctypes.c_uint32),
        ("lp", ctypes.c_uint32),
        ("pb", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 256),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint64), ("options", ctypes.c_void_p))


@cache
def _library() -> ctypes.CDLL | None:
    """The liblzma that Python's extension is linked with, if its functions can be called."""
    try:
        library = ctypes.CDLL(_lzma.__file__)
        library.lzma_raw_buffer_encode.argtypes = [
            *(ctypes.c_void_p,) * 3,
            ctypes.c_size_t,
            *(ctypes.c_void_p,) * 2,
            ctypes.c_size_t,
        ]
    except (OSError, AttributeError):
        return None
    return library


def compressed_sizes(sequences: np.ndarray, chosen: Filter) -> np.ndarray:
    """Bytes (n,) of the raw stream of each of n sequences (n, length) of uint8, through one filter."""
    sequences = np.ascontiguousarray(sequences)
    library = _library()
    if library is None:
        return np.array([len(lzma.compress(s, lzma.FORMAT_RAW, filters=[chosen])) for s in sequences])
    options = _Options()
    library.lzma_lzma_preset(ctypes.byref(options), ctypes.c_uint32(chosen["preset"]))
    for key in ("dict_size", "lc", "lp", "pb"):
        setattr(options, key, chosen[key])
    filters = (_Filter * 2)(_Filter(chosen["id"], ctypes.addressof(options)), _Filter(VLI_UNKNOWN, None))
    length = sequences.shape[1]
    room = 2 * length + 1024  # more than what cannot be compressed takes
    output, written = ctypes.create_string_buffer(room), ctypes.c_size_t()
    sizes = np.empty(len(sequences), dtype=np.int64)
    for number, start in enumerate(
        range(sequences.ctypes.data, sequences.ctypes.data + sequences.size, length)
    ):
        written.value = 0
        status = library.lzma_raw_buffer_encode(
            ctypes.addressof(filters),
            None,
            start,
            length,
            ctypes.addressof(output),
            ctypes.addressof(written),
            room,
        )
        if status:
            raise RuntimeError(f"liblzma cannot compress with {chosen}: status {status}")
        sizes[number] = written.value
    return sizes
