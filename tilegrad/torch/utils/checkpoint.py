"""`torch.utils.checkpoint`: a call whose inside is computed again for its gradient.

Values and gradients are those of the plain call; the difference is memory. A call that is computed
again has its graph made at each step, while the calls of a plain one wait
(`tensor.handle.waiting`). So small tensors that make few values are given to the function itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tilegrad.base.recent import Recent
from tilegrad.func import checkpoint as ours
from tilegrad.func.argument_trees import flatten
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod, toposort
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.waiting import Call, next_serial
from tilegrad.tensor.storage.writes import postpones_calls
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.tensor import with_ours

__all__ = [
    "CheckpointError", "checkpoint", "checkpoint_sequential", "get_device_states",
    "noop_context_fn", "set_device_states",
]  # fmt: skip

# Most bytes of the arguments of a call that keeps its values, and of these.
_SMALL_BYTES, _FEW_BYTES = 1 << 18, 1 << 23
# Bytes of the values that a function made of arguments of certain shapes.
_made: Recent[tuple[Any, ...], int] = Recent(lambda: 512)

_LEAVES = frozenset({Ops.BUFFER, Ops.COPY, Ops.CONST})

_CHOICES = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "context_fn")


class CheckpointError(RuntimeError):
    """PyTorch's error where a second run differs from the first."""


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of `function`; values that it computes in between are not materialised for the
    gradient, unless they are few.
    """
    given = {name: value for name, value in options.items() if name not in _CHOICES}
    tensors = _tensors_in((args, given))
    if not (callable(function) and postpones_calls() and _are_small(tensors)):
        return with_ours(ours(function, *args, **given))
    key = (_code_of(function), *[(each.shape, each.dtype) for each in tensors])
    known = _made.get(key)
    if known is not None and known > _FEW_BYTES:
        return with_ours(ours(function, *args, **given))
    start = next_serial()
    result = function(*args, **given)
    if known is None:
        _made.put(key, _bytes_between(tensors, _tensors_in(result), start))
    return result


def _tensors_in(tree: Any) -> list[Core]:
    return [each for each in flatten(tree)[0] if isinstance(each, Core)]


def _are_small(tensors: Collection[Core]) -> bool:
    return sum([_bytes_of(each) for each in tensors]) <= _SMALL_BYTES


def _bytes_of(value: Any) -> int:
    size = prod(value.shape)
    # A symbolic size may be of any value.
    return size * value.dtype.itemsize if isinstance(size, int) else _SMALL_BYTES + 1


def _code_of(function: Any) -> Any:
    """The code of a function, which is equal in all calls for which the function is made anew."""
    inside = getattr(function, "func", function)
    return getattr(inside, "__code__", id(inside))


def _bytes_between(inputs: Collection[Core], outputs: Collection[Core], start: int) -> int:
    """Bytes of the values that were made on the way to the `outputs`, by calls since `start` or by
    nodes above the `inputs`.
    """
    stack: list[Any] = [each._call or each._node for each in outputs]
    calls: set[Call] = set()
    roots: list[UOp] = []
    while stack:
        each = stack.pop()
        if isinstance(each, UOp):
            roots.append(each)
        elif isinstance(each, Call) and each.serial >= start and each not in calls:
            calls.add(each)
            stack += each.inputs or ()
    count = sum(map(_bytes_of, calls))
    below = {each._node for each in inputs if each._call is None}
    nodes = toposort(roots, stop=lambda node: node in below or node.op in _LEAVES)
    # The products that a sum adds up are in no memory.
    terms = {source for node in nodes if node.op is Ops.REDUCE_AXIS for source in node.src}
    for node in nodes:
        if not (node in below or node in terms or node.op in _LEAVES or node.op.is_movement):
            count += _bytes_of(node)
    return count


def get_device_states(*args: Any) -> tuple[list[Any], list[Any]]:
    """The GPUs that arguments are on, and their generators' states: there is one generator."""
    return [], []


def set_device_states(devices: Any, states: Any, **options: Any) -> None:
    """Nothing: there is one generator, which `torch.set_rng_state` sets."""


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **options: Any
) -> Any:
    """`functions` one after another, in `segments` checkpointed segments."""
    layers = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(1, len(layers) // segments)

    def run(segment: Sequence[Any]) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for layer in segment:
                x = layer(x)
            return x

        return forward

    for start in range(0, size * (segments - 1), size):
        input = checkpoint(run(layers[start : start + size]), input)
    return run(layers[size * (segments - 1) :])(input)


refuse_others(__name__)
