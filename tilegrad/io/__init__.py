"""Files: weights in, weights out.

Each loader is a bounded parser of data: it imports nothing, executes nothing, and checks every size
in a file before it acts on it. What it gives are lazy tensors over the mapped file.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["gguf_load", "npy_load", "npy_save", "npz_load", "npz_save", "torch_load"]

_HOME = {
    "gguf_load": "tilegrad.io.gguf",
    "npy_load": "tilegrad.io.numpy_files",
    "npy_save": "tilegrad.io.numpy_files",
    "npz_load": "tilegrad.io.numpy_files",
    "npz_save": "tilegrad.io.numpy_files",
    "torch_load": "tilegrad.io.torch_file",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tilegrad.io' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
