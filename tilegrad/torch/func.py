"""`torch.func`: functions of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tilegrad import func as ours
from tilegrad.func.argument_trees import flatten
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.complex_families import has_complex
from tilegrad.torch.tensor import with_ours
from tilegrad.torch.thread_modes import is_grad_enabled

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


class _Watched:
    """A function, and whether what it gave requires gradients: it may know parameters."""

    def __init__(self, func: Callable[..., Any]):
        functools.update_wrapper(self, func)
        self._func = func
        self.requires_grad = False

    def __call__(self, *args: Any, **options: Any) -> Any:
        found = self._func(*args, **options)
        leaves = flatten(found)[0]
        if any(isinstance(each, OurTensor) and each._requires_grad for each in leaves):
            self.requires_grad = True
        return found


def _recorded(made: Any, given: Any, func: _Watched) -> Any:
    """The results `made` by a transformed function: they require gradients where the tensors
    `given`, or those that the function itself knows, do.
    """
    if is_grad_enabled() and (
        func.requires_grad or any(each.requires_grad for each in _tensors(given))
    ):
        for each in _tensors(made):
            if each.dtype.is_float and not each._requires_grad:
                each._requires_grad, each._is_leaf = True, False
    return made


def _tensors(tree: Any) -> list[OurTensor]:
    return [each for each in flatten(tree)[0] if isinstance(each, OurTensor)]


def _made(transform: Callable[..., Any]) -> Any:
    """A transform whose functions give tensors of `torch`."""

    @functools.wraps(transform)
    def of(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        watched = _Watched(func)
        made = transform(watched, *args, **options)

        @functools.wraps(func)
        def call(*given: Any, **named: Any) -> Any:
            watched.requires_grad = False
            return _recorded(with_ours(made(*given, **named)), (given, named), watched)

        return call

    return of


def _of_reals(transform: Any) -> Any:
    """A transform that PyTorch has for real arguments alone."""

    @functools.wraps(transform)
    def of(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        made = transform(func, *args, **options)

        @functools.wraps(func)
        def call(*given: Any, **named: Any) -> Any:
            if has_complex((given, named)):
                raise RuntimeError(
                    f"{transform.__name__}: Expected all inputs to be real but received complex "
                    "tensor: use vjp or jvp, or functions of view_as_real"
                )
            return made(*given, **named)

        return call

    return of


grad = _made(ours.grad)
grad_and_value = _made(ours.grad_and_value)
hessian = _of_reals(_made(ours.hessian))
jacfwd = _of_reals(_made(ours.jacfwd))
_jacrev = _of_reals(_made(ours.jacrev))
_vmap = _made(ours.vmap)


def jacrev(
    func: Callable[..., Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian of `func`, all its rows at once, whatever `chunk_size` is."""
    made: Callable[..., Any] = _jacrev(func, argnums, has_aux=has_aux)
    return made


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func` of each slice along an axis, as one function of the whole."""
    made: Callable[..., Any] = _vmap(func, in_dims, out_dims, randomness)

    @functools.wraps(func)
    def call(*args: Any, **options: Any) -> Any:
        if has_complex(args) and (_is_negative(in_dims) or _is_negative(out_dims)):
            raise NotImplementedError(
                "vmap: axes of complex numbers count from the front: no negative in_dims, out_dims"
            )
        return made(*args, **options)

    return call


def _is_negative(dims: Any) -> bool:
    return any(isinstance(each, int) and each < 0 for each in flatten(dims)[0])


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` itself: a graph here holds no writes, only new values."""
    return func


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of `func`, and the function that pulls gradients back."""
    watched = _Watched(func)
    found = ours.vjp(watched, *primals, has_aux=has_aux)
    value, pull, *rest = found

    def pulled(*cotangents: Any, **options: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return _recorded(with_ours(pull(given)), (primals, cotangents), watched)

    return (_recorded(with_ours(value), primals, watched), pulled, *rest)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, **options: Any) -> Any:
    """The value of `func`, and how it changes along `tangents`."""
    watched = _Watched(func)
    found = with_ours(ours.jvp(watched, primals, tangents, **options))
    return _recorded(found, (primals, tangents), watched)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of `func` at `primals`, and its linear approximation there: a function from
    tangents to the change along them.
    """

    def change(*tangents: Any) -> Any:
        return jvp(func, primals, tangents)[1]

    return func(*primals), change


def functional_call(
    module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Any = None, **rest: Any
) -> Any:
    """The result of a module with other tensors in place of its own."""
    given = parameter_and_buffer_dicts
    if isinstance(given, (tuple, list)):
        given = {name: each for several in given for name, each in several.items()}
    positional = args if isinstance(args, tuple) else () if args is None else (args,)
    return with_ours(ours.functional_call(module, given, positional, kwargs or {}))


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of several models along a new first axis, and their buffers."""
    listed = list(models)
    names = {name for name, _ in listed[0].named_buffers()}
    found = with_ours(ours.stack_module_state(listed))
    parameters = {name: each for name, each in found.items() if name not in names}
    return parameters, {name: each for name, each in found.items() if name in names}


refuse_others(__name__)
