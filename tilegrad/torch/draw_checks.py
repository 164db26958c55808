"""Draws that write into a tensor: the dtypes and ranges that they refuse, and their generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilegrad.base.errors import ConfigError, UnsupportedDTypeError
from tilegrad.torch.streams import drawing

__all__ = ["drawn"]


# For draws: the argument that has a range, its position, its name, and its lower bound.
_RANGES = {
    "normal_": (1, "std", 0.0), "log_normal_": (1, "std", 0.0), "cauchy_": (1, "sigma", 0.0),
    "exponential_": (0, "lambd", 0.0), "geometric_": (0, "p", 0.0), "bernoulli_": (0, "p", 0.0),
    "bernoulli": (0, "p", 0.0),
}  # fmt: skip


def _check_draw(name: str, drawn: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Refuse a draw of integers where it is of floats, and a number outside its range."""
    is_of_floats = name not in ("random_", "geometric_", "bernoulli_")
    if is_of_floats and not drawn.dtype.is_float:
        raise UnsupportedDTypeError(f"{name}: the dtype must be a float, it is {drawn.dtype.name}")
    if name == "uniform_":
        if len(args) > 1 and args[0] > args[1]:
            raise ConfigError(f"uniform_: no range leads from {args[0]} to {args[1]}")
        return
    position, key, least = _RANGES.get(name, (9, "", 0.0))
    value = args[position] if position < len(args) else options.get(key)
    if isinstance(value, (int, float)) and (value < least or (key == "p" and value > 1)):
        raise ConfigError(f"{name}: {key} {value} is out of range")


def drawn(method: Callable[..., Any]) -> Any:
    name = method.__name__

    def give(self: Any, *args: Any, generator: Any = None, **options: Any) -> Any:
        _check_draw(name, self, args, options)
        if generator is None:
            return method(self, *args, **options)
        with drawing(generator):
            return method(self, *args, **options)

    return give
