"""Variables, and what a function has: defaults, code, closures, partials, caches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tests.capture.stale.registry import Box, case, nothing
from tilegrad import Tensor
from tilegrad.func import vmap


def _in_globals(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "apart", "k": 1.0, "values": [1.0, 2.0]}
    exec(compile(source, "apart.py", "exec"), names)
    return names


@case
def globals_item() -> Any:
    names = _in_globals("def f(x): return x * globals()['k']")
    return names["f"], lambda n: names.update(k=float(n // 2))


@case
def globals_get() -> Any:
    names = _in_globals("def f(x): return x * globals().get('later', 2.0)")
    return names["f"], lambda n: names.update(later=3.0) if n == 3 else None


@case
def a_name_that_appears() -> Any:
    names = _in_globals("def f(x):\n  try: return x * later\n  except NameError: return x * 5")
    return names["f"], lambda n: names.update(later=3.0) if n == 3 else None


@case
def a_builtin_is_shadowed() -> Any:
    names = _in_globals("def f(x): return x * max(values)")
    return names["f"], lambda n: names.update(max=min) if n == 3 else None


@case
def eval_of_text() -> Any:
    names = _in_globals("def f(x): return x * eval('k + 1')")
    return names["f"], lambda n: names.update(k=float(n // 2))


@case
def mutable_default() -> Any:
    def function(x: Tensor, own: list[float] = [1.0]) -> Tensor:  # noqa: B006
        return x * own[0]

    defaults = function.__defaults__
    assert defaults is not None
    return function, lambda n: defaults[0].__setitem__(0, float(n // 2))


@case
def default_that_counts() -> Any:
    def function(x: Tensor, own: list[float] = []) -> Tensor:  # noqa: B006
        own.append(1.0)
        return x * len(own)

    return function, nothing


@case
def defaults_are_exchanged() -> Any:
    def inner(x: Tensor, k: float = 1.0) -> Tensor:
        return x * k

    return lambda x: inner(x), lambda n: setattr(inner, "__defaults__", (float(n // 2),))


@case
def keyword_defaults() -> Any:
    def inner(x: Tensor, *, k: float = 1.0) -> Tensor:
        return x * k

    kwdefaults = inner.__kwdefaults__
    return lambda x: inner(x), lambda n: kwdefaults.update(k=float(n // 2))


@case
def attribute_of_a_function() -> Any:
    def inner(x: Tensor) -> Tensor:
        return x * inner.k

    inner.k = 1.0  # type: ignore[attr-defined]
    return inner, lambda n: setattr(inner, "k", float(n // 2))


@case
def code_of_a_function() -> Any:
    def inner(x: Tensor) -> Tensor:
        return x * 1

    def other(x: Tensor) -> Tensor:
        return x * 9

    return (
        lambda x: inner(x),
        lambda n: setattr(inner, "__code__", other.__code__) if n == 3 else None,
    )


@case
def a_nested_closure() -> Any:
    k = 1.0

    def change(n: int) -> None:
        nonlocal k
        k = float(n // 2)

    def outer() -> Callable[[Tensor], Tensor]:
        def middle(x: Tensor) -> Tensor:
            return sum([x * k for _ in range(2)])  # type: ignore[return-value]

        return middle

    return lambda x: outer()(x), change


@case
def a_partial() -> Any:
    options = {"k": 1.0}
    inner = functools.partial(lambda x, table: x * table["k"], table=options)
    return lambda x: inner(x), lambda n: options.update(k=float(n // 2))


@case
def a_partial_that_is_captured() -> Any:
    options = {"k": 1.0}
    function = functools.partial(lambda table, x: x * table["k"], options)
    return function, lambda n: options.update(k=float(n // 2))


@case
def a_partial_of_a_partial_that_is_captured() -> Any:
    box = Box(k=1.0)
    inner = functools.partial(lambda by, box, x: x * by * box.k, 2.0)
    return functools.partial(inner, box), lambda n: setattr(box, "k", float(n // 2))


@case
def a_partial_method_that_is_captured() -> Any:
    options = {"k": 1.0}

    class Scale:
        scaled = functools.partialmethod(lambda self, table, x: x * table["k"], options)

    return Scale().scaled, lambda n: options.update(k=float(n // 2))


@case
def an_object_called_by_a_partial_method() -> Any:
    options = {"k": 1.0}

    class Scale:
        __call__ = functools.partialmethod(lambda self, table, x: x * table["k"], options)

    return Scale(), lambda n: options.update(k=float(n // 2))


@case
def a_partial_that_the_core_calls() -> Any:
    options = {"k": 1.0}
    inner = functools.partial(lambda table, x: x * table["k"], options)
    return lambda x: vmap(inner)(x), lambda n: options.update(k=float(n // 2))


@case
def a_partial_that_c_calls() -> Any:
    options = {"k": 1.0}
    inner = functools.partial(lambda x, table: x * table["k"], table=options)
    return lambda x: next(map(inner, [x])), lambda n: options.update(k=float(n // 2))


@case
def a_cached_function() -> Any:
    box = Box(k=1.0)

    @functools.lru_cache
    def find() -> float:
        return box.k

    def change(n: int) -> None:
        box.k = float(n)
        if n % 2:
            find.cache_clear()

    return lambda x: x * find(), change


@case
def what_a_cache_holds() -> Any:
    @functools.lru_cache
    def find() -> list[float]:
        return [1.0]

    return lambda x: x * find()[0], lambda n: find().__setitem__(0, float(n // 2))


@case
def single_dispatch() -> Any:
    @functools.singledispatch
    def rate(value: Any) -> float:
        return 1.0

    def change(n: int) -> None:
        if n == 3:
            rate.register(int, lambda value: 5.0)

    return lambda x: x * rate(3), change
