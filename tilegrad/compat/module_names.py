"""Names in tinygrad's modules, and what they are here."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MODULES", "absent", "find"]

_TOP = {
    "Context": "tilegrad.compat.environment_switches",
    "Device": "tilegrad.compat.devices",
    "GlobalCounters": "tilegrad.base.trace",
    "Tensor": "tilegrad.tensor.tensor",
    "TinyJit": "tilegrad.compat.devices",
    "UOp": "tilegrad.ir",
    "Variable": "tilegrad.compat.numbers",
    "dtypes": "tilegrad.compat.numbers",
    "fetch": "tilegrad.compat.helpers",
    "function": "tilegrad.compat.devices",
    "getenv": "tilegrad.base.config",
}


def _some(*names: str) -> dict[str, str]:
    return {name: _TOP[name] for name in names}


_NODES = {
    **_some("UOp", "Variable"),
    **dict.fromkeys(("Ops", "PatternMatcher", "UPat", "graph_rewrite"), "tilegrad.ir"),
}
_OF_NUMBERS = (
    "ConstType", "DTypeLike", "float_to_bf16", "float_to_fp16", "float_to_fp8", "fp8_to_float",
    "least_upper_float", "sum_acc_dtype", "to_dtype", "truncate",
)  # fmt: skip
# Name -> the module that it comes from. Under "" stands a module that has all the others.
MODULES: dict[str, dict[str, str]] = {
    "tinygrad": _TOP,
    "tinygrad.tensor": {
        **_some("Tensor", "TinyJit", "Device", "dtypes", "Variable"),
        **dict.fromkeys(("_from_np_dtype", "_to_np_dtype"), "tilegrad.compat.numbers"),
    },
    "tinygrad.dtype": {
        **_some("dtypes"),
        "DType": "tilegrad.base.dtype",
        "can_lossless_cast": "tilegrad.base.dtype",
        "least_upper_dtype": "tilegrad.base.dtype_promotion",
        **dict.fromkeys(_OF_NUMBERS, "tilegrad.compat.numbers"),
    },
    "tinygrad.helpers": {
        **_some("Context", "GlobalCounters", "dtypes", "getenv"),
        "": "tilegrad.compat.helpers",
        "ContextVar": "tilegrad.compat.environment_switches",
        "tqdm": "tilegrad.compat.bar",
        "trange": "tilegrad.compat.bar",
    },
    "tinygrad.device": {**_some("Device"), "is_dtype_supported": "tilegrad.compat.devices"},
    "tinygrad.engine": {},
    "tinygrad.engine.jit": _some("TinyJit"),
    "tinygrad.uop": {"Ops": "tilegrad.ir"},
    "tinygrad.uop.ops": _NODES,
    # Where older scripts look.
    "tinygrad.features": {},
    "tinygrad.features.jit": _some("TinyJit"),
    "tinygrad.jit": _some("TinyJit"),
    "tinygrad.ops": {**_NODES, **_some("Device", "GlobalCounters")},
    "tinygrad.shape": {},
    "tinygrad.shape.symbolic": _some("Variable"),
    "tinygrad.nn": {
        **_some("Tensor", "dtypes"),
        "": "tilegrad.nn",
        "BatchNorm": "tilegrad.compat.renamed_layers",
        "ConvTranspose1d": "tilegrad.compat.renamed_layers",
        "ConvTranspose2d": "tilegrad.compat.renamed_layers",
        "Embedding": "tilegrad.compat.renamed_layers",
    },
    "tinygrad.nn.optim": {
        "": "tilegrad.nn.optim",
        **dict.fromkeys(
            ("LAMB", "LARS", "Muon", "SGD", "Adam", "AdamW", "OptimizerGroup"),
            "tilegrad.compat.renamed_layers",
        ),
    },
    "tinygrad.nn.state": {
        "": "tilegrad.nn.state",
        "load_state_dict": "tilegrad.compat.renamed_layers",
        "safe_load_metadata": "tilegrad.compat.renamed_layers",
        **dict.fromkeys(
            ("TensorIO", "gguf_load", "tar_extract", "torch_load", "zip_extract"), "tilegrad.io"
        ),
    },
    "tinygrad.nn.datasets": dict.fromkeys(("cifar", "mnist"), "tilegrad.compat.renamed_layers"),
}

# Another name for a thing.
_RENAMED = {
    ("tinygrad.nn", "BatchNorm2d"): "BatchNorm",
    ("tinygrad.nn", "BatchNorm3d"): "BatchNorm",
}
_RENAMED_FROM = {
    ("tinygrad.engine.jit", "JitError"): ("tilegrad.base.errors", "CaptureError"),
    ("tinygrad.uop.ops", "AxisType"): ("tilegrad.ir", "Axis"),
    ("tinygrad.uop.ops", "sint"): ("tilegrad.ir.uop", "sint"),
}


def find(module: str, name: str) -> Any:
    """The object here that `name` of tinygrad's `module` stands for. Raises KeyError if it is
    nothing.
    """
    table = MODULES[module]
    home, name_there = _RENAMED_FROM.get((module, name), ("", ""))
    if home:
        return getattr(importlib.import_module(home), name_there)
    name = _RENAMED.get((module, name), name)
    if name in table:
        return getattr(importlib.import_module(table[name]), name)
    if f"{module}.{name}" in MODULES:
        return importlib.import_module(f"{module}.{name}")
    rest = importlib.import_module(table[""]) if "" in table else None
    if rest is not None and name in rest.__all__:
        return getattr(rest, name)
    if module == "tinygrad.helpers":
        return importlib.import_module("tilegrad.compat.environment_switches").switch(name)
    raise KeyError(name)


_INTERNAL = (
    "it is a part of tinygrad's compiler; `python -m tilegrad show` prints the stages of ours"
)
_HINTS = {
    "tinygrad.codegen": _INTERNAL,
    "tinygrad.renderer": _INTERNAL,
    "tinygrad.runtime": _INTERNAL,
    "tinygrad.schedule": _INTERNAL,
    "tinygrad.engine": _INTERNAL,
    "tinygrad.uop": _INTERNAL,
    "tinygrad.device": _INTERNAL,
    "tinygrad.Tensor.from_url": "download the file first, then Tensor(path)",
    "tinygrad.Tensor.lazydata": "the graph is Tensor.uop",
}


def absent(name: str) -> str:
    """Message for a dotted name of tinygrad's that has no counterpart here."""
    prefix = name
    while prefix and prefix not in _HINTS:
        prefix = prefix.rpartition(".")[0]
    hint = _HINTS.get(prefix, "docs/from-tinygrad.md lists what maps, docs/differences.md what not")
    return f"tilegrad has no {name}: {hint}"
