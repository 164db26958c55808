"""References to an object that one other object holds: memory that nothing else sees is reused.

`sys.getrefcount` counts the references of the expression that asks as well. How many these are
depends on the version of Python, so the counts are measured here.
"""

from __future__ import annotations

from sys import getrefcount

__all__ = ["ONE_ATTRIBUTE", "ONE_ATTRIBUTE_AND_LOCAL"]


class _Holder:
    __slots__ = ("value",)
    value: object


def _of_attribute() -> int:
    holder = _Holder()
    holder.value = object()
    return getrefcount(holder.value)


def _of_attribute_and_local() -> int:
    holder = _Holder()
    holder.value = object()
    value = holder.value
    return getrefcount(value)


# The count of an object that one attribute, or element of a tuple, refers to, asked for as
# `getrefcount(holder.value)`; and where a local variable of the function that asks does so too.
ONE_ATTRIBUTE, ONE_ATTRIBUTE_AND_LOCAL = _of_attribute(), _of_attribute_and_local()
