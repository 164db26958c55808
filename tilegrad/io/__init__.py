"""Files: weights in, weights out.

Each loader is a bounded parser of data: it imports nothing, executes nothing, and checks every size
in a file before it acts on it. Results are lazy tensors over the mapped file.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilegrad.base.absent import absent, as_asked

__all__ = [
    "TensorIO", "gguf_load", "npy_load", "npy_save", "npz_load", "npz_save", "safe_load",
    "safe_load_metadata", "safe_save", "tar_extract", "torch_load", "zip_extract",
]  # fmt: skip

_HOME = {
    "TensorIO": "tilegrad.io.byte_stream",
    "gguf_load": "tilegrad.io.gguf",
    "npy_load": "tilegrad.io.numpy_files",
    "npy_save": "tilegrad.io.numpy_files",
    "npz_load": "tilegrad.io.numpy_files",
    "npz_save": "tilegrad.io.numpy_files",
    "safe_load": "tilegrad.io.weights",
    "safe_load_metadata": "tilegrad.io.weights",
    "safe_save": "tilegrad.io.weights",
    "tar_extract": "tilegrad.io.archive",
    "torch_load": "tilegrad.io.torch_file",
    "zip_extract": "tilegrad.io.archive",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise as_asked(absent("module 'tilegrad.io'", name, __all__))
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
