"""`torch._dynamo`: what programs tell PyTorch's compiler of functions and tensors: no effect."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.compiler import allow_in_graph, disable, is_compiling, reset
from tilegrad.torch.compiling import Compiled as OptimizedModule
from tilegrad.torch.module_aliases import also_known

__all__ = [
    "OptimizedModule", "TransformGetItemToIndex", "allow_in_graph",
    "assume_constant_result", "config", "disable",
    "disallow_in_graph", "forbid_in_graph", "graph_break", "is_compile_supported",
    "is_compiling", "mark_dynamic",
    "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic", "reset",
]  # fmt: skip

config = SimpleNamespace()
"""Settings, by any name: nothing reads them."""

assume_constant_result = disallow_in_graph = forbid_in_graph = allow_in_graph


def graph_break(msg: str = "") -> None:
    """Nothing: Python runs in any case."""


def mark_dynamic(t: Any, index: Any, **bounds: Any) -> None:
    """Nothing: a size that changes gets a plan for its range by itself."""


maybe_mark_dynamic = mark_unbacked = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing: a size that stays has a plan of its own by itself."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Nothing: memory of captured tensors stays where it is."""


class TransformGetItemToIndex(nullcontext[None]):
    """A block in which subscripts by tensors of one element stay tensors: they do in any case."""


def is_compile_supported(device_type: Any) -> bool:
    """True: graphs are compiled on every device."""
    return True


also_known(__name__, ("decorators", "eval_frame", "utils", "_trace_wrapped_higher_order_op"))

refuse_others(__name__)
