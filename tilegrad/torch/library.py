"""`torch.library`: operations of a program's own, known by a name in `torch.ops`.

An operation here is the Python function that computes it: its tensor calls make the graph. Its
gradient is that, or the one that `register_autograd` is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.autograd import Function

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "find", "impl", "register_autograd",
    "register_fake", "register_kernel", "register_vmap", "triton_op",
]  # fmt: skip

_known: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """An operation: a function that takes and gives tensors, and what a program says of it.

    `register_autograd` gives it a gradient, `register_kernel("cpu")` another function that
    computes it. Functions that PyTorch needs to know shapes and batches (`register_fake`,
    `register_vmap`) are taken, and asked for tensors on `meta` in the first case: what the
    operation does with tensors has both by itself.
    """

    def __init__(self, name: str, fn: Callable[..., Any] | None):
        self._name, self._fn = name, fn
        self._fake: Callable[..., Any] | None = None
        self._function: type[Function] | None = None
        self.__name__ = name.rpartition("::")[2]

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._fn is None:
            raise NotImplementedError(f"torch.ops: {self._name} has no function that computes it")
        if self._fake is not None and any(
            isinstance(each, OurTensor) and getattr(each, "is_meta", False) for each in args
        ):
            return self._fake(*args, **options)
        if self._function is None:
            return self._fn(*args, **options)
        if options:
            bound = inspect.signature(self._fn).bind(*args, **options)
            args = bound.args
        return self._function.apply(*args)

    @property
    def default(self) -> CustomOpDef:
        """The operation itself: there is one for all types of arguments."""
        return self

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Compute tensors on `meta` by `fn`."""
        self._fake = fn
        return fn

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None) -> Any:
        """Compute by `fn` on the CPU; a function for other devices has no effect."""
        if fn is None:
            return lambda given: self.register_kernel(device_types, given)
        kinds = [device_types] if isinstance(device_types, str) else device_types
        if kinds is None or any(kind in ("cpu", "default") for kind in kinds):
            self._compute_by(fn)
        return fn

    def register_vmap(self, fn: Callable[..., Any] | None = None) -> Any:
        """Nothing: `vmap` maps what the operation does."""
        return fn if fn is not None else lambda given: given

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Let gradients go back by `backward(ctx, *gradients)`, which gives one for each argument;
        `setup_context(ctx, inputs, output)` keeps what it needs.
        """
        self._function = _with_gradient(self, backward, setup_context)

    def _compute_by(self, fn: Callable[..., Any]) -> None:
        self._fn = fn


def _with_gradient(
    op: CustomOpDef, backward: Callable[..., Any], setup: Callable[..., Any] | None
) -> type[Function]:
    class Operation(Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            assert op._fn is not None
            return op._fn(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            if setup is not None:
                setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, *gradients)

    Operation.__name__ = op.__name__
    return Operation


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """An operation `namespace::name`, computed by `fn`; also as a decorator. Its calls show which
    arguments it writes to, and `mutates_args` has no effect.

    Raises ValueError for a name without a namespace.

    >>> import tilegrad.torch as torch
    >>> @torch.library.custom_op("mine::twice", mutates_args=())
    ... def twice(x: torch.Tensor) -> torch.Tensor:
    ...     return x * 2
    >>> torch.ops.mine.twice(torch.tensor([1.0])).tolist()
    [2.0]
    """
    if fn is None:
        return lambda given: custom_op(name, given, mutates_args=mutates_args)
    # One that was there before, as in a notebook, is forgotten with its gradient.
    _known.pop(name, None)
    made = _put(name)
    made._compute_by(fn)
    return made


triton_op = custom_op


def _put(name: str) -> CustomOpDef:
    namespace, _, own = name.partition("::")
    if not namespace or not own:
        raise ValueError(f"torch.library: {name!r} is no namespace::name")
    return _known.setdefault(name.partition(".")[0], CustomOpDef(name, None))


def _asked(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    found = find(str(op))
    if found is None:
        raise RuntimeError(f"torch.library: there is no operation {op}; define it by custom_op")
    return found


def find(name: str) -> CustomOpDef | None:
    """The operation `namespace::name` that a program has made, or None."""
    return _known.get(name.partition(".")[0])


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """As `CustomOpDef.register_fake`, of an operation or its name; also as a decorator."""
    if func is None:
        return lambda given: register_fake(op, given)
    # Operations of a library of machine code may be registered, and are missed when called.
    found = _put(op) if isinstance(op, str) else _asked(op)
    return found.register_fake(func)


def register_kernel(
    op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, **options: Any
) -> Any:
    """As `CustomOpDef.register_kernel`, of an operation or its name; also as a decorator.

    Raises RuntimeError where there is none.
    """
    if func is None:
        return lambda given: register_kernel(op, device_types, given)
    return _asked(op).register_kernel(device_types, func)


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Any = None,
) -> None:
    """As `CustomOpDef.register_autograd`, of an operation or its name.

    Raises RuntimeError where there is none.
    """
    _asked(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Nothing: `vmap` maps what the operation does."""
    return _asked(op).register_vmap(func)


def define(qualname: str, schema: str = "", *, lib: Any = None, tags: Any = None) -> None:
    """Make an operation that `impl` gives a function. Types in the schema have no effect."""
    _put(qualname)


def impl(
    qualname: str, types: Any, func: Callable[..., Any] | None = None, *, lib: Any = None
) -> Any:
    """Compute an operation by `func` on the CPU; also as a decorator.

    Raises RuntimeError where there is none.
    """
    if func is None:
        return lambda given: impl(qualname, types, given)
    kinds = [types] if isinstance(types, str) else types
    if any(kind.lower() in ("cpu", "default", "compositeexplicitautograd",
                            "compositeimplicitautograd") for kind in kinds):  # fmt: skip
        _asked(qualname)._compute_by(func)
    return func


class Library:
    """Operations of one namespace, with functions that compute them."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Make the operation that stands in front of the arguments; its name."""
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}")
        return name

    def impl(
        self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any
    ) -> None:
        """Compute an operation of the namespace by `fn`."""
        name = op_name if isinstance(op_name, str) else op_name.__name__
        kind = dispatch_key or self.dispatch_key or "default"
        impl(f"{self.ns}::{name.rpartition('::')[2]}", kind, fn)


refuse_others(__name__)
