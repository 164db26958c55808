"""tilegrad: a deep-learning framework and tensor compiler.

The public names load what they need when they are first used, so that `import tilegrad` itself
costs next to nothing. docs/architecture.md is the map of the folders.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# For type checkers; at run time each name is loaded by `__getattr__`.
if TYPE_CHECKING:
    from tilegrad import func as func
    from tilegrad import nn as nn
    from tilegrad.base.config import Context as Context
    from tilegrad.base.config import getenv as getenv
    from tilegrad.base.dtype import dtypes as dtypes
    from tilegrad.base.trace import GlobalCounters as GlobalCounters
    from tilegrad.capture.jit import TinyJit as TinyJit
    from tilegrad.capture.jit import jit as jit
    from tilegrad.device.registry import Device as Device
    from tilegrad.ir import UOp as UOp
    from tilegrad.ir import Variable as Variable
    from tilegrad.tensor import Tensor as Tensor
    from tilegrad.tensor.handle.gradient_modes import enable_grad as enable_grad
    from tilegrad.tensor.handle.gradient_modes import is_grad_enabled as is_grad_enabled
    from tilegrad.tensor.handle.gradient_modes import no_grad as no_grad
    from tilegrad.tensor.handle.gradient_modes import set_grad_enabled as set_grad_enabled
    from tilegrad.tensor.loops import scan as scan

__all__ = [
    "Context", "Device", "GlobalCounters", "Tensor", "TinyJit", "UOp", "Variable",
    "dtypes", "enable_grad", "func", "getenv", "is_grad_enabled", "jit", "nn", "no_grad", "scan",
    "set_grad_enabled",
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
    "enable_grad": "tilegrad.tensor.handle.gradient_modes",
    "getenv": "tilegrad.base.config",
    "is_grad_enabled": "tilegrad.tensor.handle.gradient_modes",
    "jit": "tilegrad.capture",
    "no_grad": "tilegrad.tensor.handle.gradient_modes",
    "scan": "tilegrad.tensor.loops",
    "set_grad_enabled": "tilegrad.tensor.handle.gradient_modes",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("func", "nn"):
            return importlib.import_module(f"tilegrad.{name}")
        if name not in _HOME:
            from tilegrad.base.absent import as_asked

            raise as_asked(_absent(name))
        found = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = found
        return found


def _absent(name: str) -> AttributeError:
    """The error for a name that PyTorch, NumPy or tinygrad have here, with the spelling to use
    instead.
    """
    from tilegrad.base.absent import absent

    if name.startswith("__"):
        return AttributeError(f"module 'tilegrad' has no attribute {name!r}")
    instead = {
        "load": "nn.state.torch_load(path), or nn.state.safe_load(path)",
        "save": "nn.state.safe_save(tensors, path)",
        "array": "Tensor(data)",
        "asarray": "Tensor(data)",
        "as_tensor": "Tensor(data)",
        "from_numpy": "Tensor(array), or Tensor.from_dlpack(array) to share memory",
        "device": 'a device\'s name: Tensor(data, device="CPU")',
        "inference_mode": "tilegrad.no_grad",
        "vmap": "tilegrad.func.vmap",
        "grad": "tilegrad.func.grad",
        "optim": "tilegrad.nn.optim",
        "utils": "tilegrad.nn.utils",
        "array_api": "`from tilegrad import array_api`",
        "torch": "`import tilegrad.torch as torch`",
    }
    if name not in instead:
        for owner, path in (("dtypes", "dtypes"), ("Tensor", "Tensor"), ("nn", "nn")):
            if hasattr(getattr(importlib.import_module("tilegrad"), owner), name):
                instead[name] = f"{path}.{name}"
                break
    return absent("module 'tilegrad'", name, __all__, instead)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
