"""Methods of `torch.Tensor` that skip the layers around them once a call like this one came.

Around a method of tilegrad's own stand PyTorch's rules: which operands are refused, complex numbers
beside real ones, the dtype of a product, the step that `grad_fn` shows. Their decisions follow from
the classes, dtypes and shapes of the operands and from Python's arguments, as the graph does: all
of that is the short signature of a call (`tensor.calls.short_signatures`). So where a call came
twice with one signature, and its result was that of one template over just these operands, the next
one waits as that did, and no layer is asked.

before   x + y    3 functions around the method, then its template
after    x + y    the template
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.origin import call_site, composing, users
from tilegrad.base.recent import SecondTime
from tilegrad.ir.uop import node_count
from tilegrad.tensor.calls.masks import picked_by_host
from tilegrad.tensor.calls.postponed import postponed
from tilegrad.tensor.calls.recent_calls import RecentCalls, followers
from tilegrad.tensor.calls.short_signatures import short_signature, without_numbers
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage.pending import pressure, relieve
from tilegrad.tensor.views.in_memory import numbers_of_memory
from tilegrad.tensor.views.waiting_slices import note_slice, slice_of_call
from tilegrad.torch import thread_modes
from tilegrad.torch.naming import called
from tilegrad.torch.step_names import METHODS as STEPS
from tilegrad.torch.steps import noted

__all__ = ["METHODS", "quick", "quick_methods"]

# Methods that compute each result from its operands alone, and give no view.
METHODS = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__matmul__", "__pow__", "__rpow__", "__neg__", "__abs__", "__eq__",
    "__ne__", "__floordiv__", "__mod__", "abs", "add", "sub", "mul", "div", "matmul", "mm",
    "bmm", "mv", "dot", "neg", "pow", "square", "sum", "mean", "prod", "max", "min", "amax",
    "amin", "argmax", "argmin", "any", "all", "minimum", "maximum", "clamp", "exp", "log",
    "log2", "sqrt", "rsqrt", "relu", "sigmoid", "tanh", "sin", "cos", "softmax", "log_softmax",
    "floor", "ceil", "sign", "norm", "cumsum", "cumprod", "to", "float", "double", "long",
    "int", "bool", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_and", "logical_or",
    "logical_not", "std", "var",
)  # fmt: skip
# Those that refuse no number for its value.
_OF_NUMBERS = frozenset({
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__",
})  # fmt: skip
_PLAIN_KEYS = frozenset({int, slice, tuple})
# Signatures that came once, of a method.
_MOST_SEEN = 1024
_state = thread_modes.state


def quick(method: Callable[..., Any], name: str) -> Any:
    """The function that is called instead of `method`."""
    recent = RecentCalls()
    followers.append(recent)
    known, seen = recent.known, SecondTime(_MOST_SEEN)
    # With an axis they give pairs.
    is_alone = name in ("max", "min")

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if is_alone and (args or options):
            return method(self, *args, **options)
        pool = this_thread.pool
        short, inputs = short_signature(self, args, options, pool)
        if short is None:
            return method(self, *args, **options)
        if node_count() > pressure.most:
            relieve(self)
            short, inputs = short_signature(self, args, options, pool)
            if short is None:
                return method(self, *args, **options)
        last, given = known.get(short), inputs
        if last is None:
            last, given = recent.alike(short, inputs)
        if last is not None and _state.autocast is None and last.holds(current_config(), pool):
            frame = sys._getframe(1)
            user = frame.f_code
            entry = composing.entry or (
                (user, frame.f_lasti, code) if user.co_filename in users else call_site(frame, code)
            )
            made = postponed(pool, last.kind, self, given, entry, None)
            if made._requires_grad and name in STEPS:
                noted(made, name, (self, *args, *options.values()))
            return made
        pool.last = None
        made = method(self, *args, **options)
        last = pool.last
        if last is None or last.has_view or made.__class__ is not self.__class__:
            return made
        own, kind = made._call, last.kind
        if own is None or own.number != kind.number or own.kind != kind.kind or not own.inputs:
            return made
        count = len(inputs)
        if [*map(id, own.inputs[:count])] != [*map(id, inputs)]:
            return made
        is_of_numbers = len(own.inputs) > count
        if is_of_numbers and name not in _OF_NUMBERS:
            return made
        if seen.is_now(without_numbers(short)[0] if is_of_numbers else short):
            recent.follow(short, last, is_of_numbers=is_of_numbers)
        return made

    made: Any = called(call, name)
    code = made.__code__
    return made


def _quick_index(method: Callable[..., Any]) -> Any:
    """`__getitem__`, which is asked for more than numbers and slices of memory only."""

    @functools.wraps(method)
    def call(self: Any, key: Any) -> Any:
        if key.__class__ in _PLAIN_KEYS:
            frame = sys._getframe(1)
            own = self._call
            is_waiting = own is not None and own.value is None
            if is_waiting:
                found = slice_of_call(self, key, frame, code)
            else:
                found = numbers_of_memory(self, key, frame, code)
            if found is None and is_waiting and frame.f_code.co_filename in users:
                this_thread.pool.last = None
                found = method(self, key)
                if self._call is own:
                    note_slice(self, key, found, frame)
        elif key.__class__ is self.__class__:
            found = picked_by_host(self, key, sys._getframe(1), code)
        else:
            found = None
        return method(self, key) if found is None else found

    made: Any = called(call, "__getitem__")
    code = made.__code__
    return made


def quick_methods(kind: Any, names: Iterable[str]) -> None:
    """Let methods of a class of tensors, and its index, be quick."""
    for name in names:
        setattr(kind, name, quick(getattr(kind, name), name))
    kind.__getitem__ = _quick_index(kind.__getitem__)
