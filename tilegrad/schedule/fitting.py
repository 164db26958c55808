"""Values of variables at which the slices of a graph lie inside of their memory.

A slice such as `x[:, :n]` is allowed where the bound value of `n` fits, whatever other values `n`
may have: who binds one checks that (`tensor.views.shrinking`, `capture.entry`). So in the kernels
of that graph `n` has no other values, and every access is inside of its memory:

before   n in 1..20, x of 10 columns, x[:, :n]
after    n in 1..10

Sizes of memory and strides stay those of the variable's own maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.uop import UOp

__all__ = ["fitting"]


def fitting(nodes: Iterable[UOp]) -> dict[UOp, UOp]:
    """For each variable that slices restrict, a variable whose range holds only values at which all
    slices fit.
    """
    ranges: dict[UOp, tuple[int, int]] = {}
    for node in nodes:
        if node.op is not Ops.SHRINK:
            continue
        for (start, end), size in zip(node.arg, node.src[0].shape):
            if isinstance(start, int) and isinstance(end, int) and isinstance(size, int):
                continue
            for distance in (start, end - start, size - end):
                _narrow(ranges, distance)
    return {
        variable: variable.replace(arg=(variable.name, low, high))
        for variable, (low, high) in ranges.items()
        if (low, high) != variable.arg[1:]
    }


def _narrow(ranges: dict[UOp, tuple[int, int]], distance: Any) -> None:
    """Restrict the variable of `distance`, if it is one, to values at which the distance is not
    negative.
    """
    if isinstance(distance, int) or distance.vmin >= 0:
        return
    distance = simplify(distance)
    variables = nodes_of(distance, Ops.DEFINE_VAR)
    if len(variables) != 1:
        return
    (variable,) = variables
    low, high = ranges.get(variable, variable.arg[1:])

    def fits(value: int) -> bool:
        number = UOp.const(variable.dtype, value)
        return bool(simplify(distance.substitute({variable: number})).arg >= 0)

    # A distance is monotone in its variable: it fits from a value on, or up to one.
    if fits(low) and not fits(high):
        high = _edge(low, high, fits)
    elif fits(high) and not fits(low):
        low = _edge(high, low, fits)
    ranges[variable] = low, high


def _edge(inside: int, outside: int, fits: Callable[[int], bool]) -> int:
    """The last value that fits between `inside`, which fits, and `outside`, which does not."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside
