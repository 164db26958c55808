"""tilegrad: a deep-learning framework and tensor compiler.

The public names load what they need when they are first used, so that `import tilegrad` itself
costs next to nothing. docs/architecture.md is the map of the folders.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "Context", "Device", "GlobalCounters", "Tensor", "TinyJit", "UOp", "Variable",
    "dtypes", "func", "getenv", "jit", "nn", "scan",
]  # fmt: skip

__version__ = "0.1.0"

_HOME = {
    "Context": "tilegrad.base.config",
    "Device": "tilegrad.device.registry",
    "GlobalCounters": "tilegrad.base.trace",
    "Tensor": "tilegrad.tensor",
    "TinyJit": "tilegrad.capture",
    "UOp": "tilegrad.ir",
    "Variable": "tilegrad.ir",
    "dtypes": "tilegrad.base.dtype",
    "getenv": "tilegrad.base.config",
    "jit": "tilegrad.capture",
    "scan": "tilegrad.tensor.loops",
}


def __getattr__(name: str) -> Any:
    if name in ("func", "nn"):
        return importlib.import_module(f"tilegrad.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tilegrad' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
