"""The shapes of a kernel's operands where its sizes are polynomials of unknowns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilegrad.ir import polynomial as poly
from tilegrad.ir.polynomial import Polynomial
from tilegrad.ir.sizes import of_products, products
from tilegrad.ir.uop import UOp

__all__ = ["kernel_shapes"]

# Unknowns of sizes are never as large.
_MOST = 1 << 31


def kernel_shapes(node: UOp, sizes: Sequence[Polynomial]) -> list[list[Polynomial]]:
    """The shapes of the result and of each source of a kernel of a family for these sizes, which
    tells them as sums and products. A kernel without a family is one of values whose sizes do not
    change.
    """
    family = node.arg.family
    if family is None:
        return [[poly.constant(size) for size in each.shape] for each in (node, *node.src)]
    count = 1 + max([-1, *itertools.chain(*map(poly.unknowns, sizes))])
    names = [UOp.variable(f"unknown{each}", 1, _MOST) for each in range(count)]
    number_of = {name: each for each, name in enumerate(names)}

    def polynomial(size: Any) -> Polynomial:
        return {
            tuple(sorted([number_of[name] for name in factors])): scale
            for factors, scale in products(size).items()
            if scale
        }

    def size_of(size: Polynomial) -> Any:
        return of_products(
            {tuple([names[each] for each in factors]): scale for factors, scale in size.items()}
        )

    return [list(map(polynomial, shape)) for shape in family.shapes(*map(size_of, sizes))]
