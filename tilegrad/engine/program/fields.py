"""Fields of JSON, each with the type and the range that it must have: entries of the disk cache are
data that may be damaged in ways that a checksum does not see, as by a program of another version.

All functions raise ValueError for another value than they are asked for.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "flag", "integer", "mapping", "names", "names_or_integers", "numbers", "parsed", "row", "terms",
    "text", "whole",
]  # fmt: skip

_LARGEST = 1 << 62


def parsed(raw: bytes) -> Any:
    """The value of a text in JSON."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("lists within lists without end") from None


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {kind.__name__} is needed, not {value!r:.40}")
    return value


def text(value: Any) -> str:
    return str(_of(str, value))


def flag(value: Any) -> bool:
    return bool(_of(bool, value))


def whole(value: Any, high: int = _LARGEST) -> int:
    """A number from 0 on, at most `high`."""
    number = int(_of(int, value))
    if not 0 <= number <= high:
        raise ValueError(f"{number} is not from 0 to {high}")
    return number


def integer(value: Any) -> int:
    """A number, which may be negative."""
    return int(_of(int, value))


def numbers(value: Any, high: int = _LARGEST) -> tuple[int, ...]:
    return tuple([whole(each, high) for each in _of(list, value)])


def names(value: Any) -> tuple[str, ...]:
    return tuple([text(each) for each in _of(list, value)])


def names_or_integers(value: Any) -> tuple[str | int, ...]:
    several = _of(list, value)
    return tuple([text(each) if isinstance(each, str) else integer(each) for each in several])


def terms(value: Any) -> tuple[tuple[int, tuple[str, ...]], ...] | None:
    """A size as a sum of products, or None (`ir.lengths`)."""
    if value is None:
        return None
    pairs = [row(each, 2) for each in row(value)]
    return tuple([(integer(scale), names(factors)) for scale, factors in pairs])


def row(value: Any, length: int | None = None) -> list[Any]:
    """A list, of `length` values if that is given."""
    found: list[Any] = _of(list, value)
    if length is not None and len(found) != length:
        raise ValueError(f"{len(found)} values instead of {length}")
    return found


def mapping(value: Any, high: int = _LARGEST) -> dict[str, int]:
    """Names with numbers."""
    return {text(name): whole(each, high) for name, each in _of(dict, value).items()}
