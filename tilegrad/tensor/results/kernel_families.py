"""Kernels written by hand for operands of any sizes.

A kernel graph is one for its sizes. A *family* makes it for others, numbers as well as lengths, so
that one plan serves a range of them: `engine/realize/skeleton.py` takes the sizes out of a graph,
and puts lengths in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import DTypeError
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.rules import simplify
from tilegrad.ir.sizes import highest, tidy, tidy_all
from tilegrad.ir.uop import UOp, prod

__all__ = ["KernelFamily", "finished"]

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class KernelFamily:
    """A kernel for all sizes of its operands.

    Attributes:
        name: of the kernel.
        build: takes a pointer for the result and one for each source, then the sizes, then the
            `options` by name, and gives the kernel, a SINK.
        shapes: takes the sizes, and gives the shapes of the result and of each source: sums and
            products of sizes.
        dtypes: of the result and of each source.
        options: what else shapes the kernel, by name.
    """

    name: str
    build: Callable[..., UOp]
    shapes: Callable[..., tuple[Shape, ...]]
    dtypes: tuple[DType, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def shape(self, sizes: tuple[Any, ...]) -> Shape:
        """The shape of the result for these sizes."""
        return tidy_all(self.shapes(*sizes)[0])

    def kernel(self, sizes: tuple[Any, ...]) -> UOp:
        """The kernel graph for these sizes."""
        return _kernel(self, sizes)


@functools.lru_cache(maxsize=256)
def _kernel(family: KernelFamily, sizes: tuple[Any, ...]) -> UOp:
    counts = [highest(tidy(prod(shape))) for shape in family.shapes(*sizes)]
    pointers = [
        UOp(Ops.DEFINE_GLOBAL, dtype.ptr(count), (), slot)
        for slot, (dtype, count) in enumerate(zip(family.dtypes, counts, strict=True))
    ]
    return finished(family.name, family.build(*pointers, *sizes, **dict(family.options)))


def finished(name: str, ast: Any) -> UOp:
    """The kernel, simplified, with its loops in the order of their numbers.

    Raises DTypeError if it is no SINK of effects.
    """
    if not isinstance(ast, UOp) or ast.op is not Ops.SINK or not ast.src:
        given = ast.op if isinstance(ast, UOp) else type(ast).__name__
        raise DTypeError(
            f"custom_kernel: {name} gave {given}, not a kernel",
            rule="UOp.sink(...) of the stores, or of the ends of the loops that they stand in",
        )
    ast = UOp.sink(*[simplify(effect) for effect in ast.src])
    # A loop of one iteration is gone, so its END closes nothing.
    while closed := [node for node in ast.toposort() if node.op is Ops.END and len(node.src) == 1]:
        ast = ast.substitute({closed[0]: closed[0].src[0]})
    loops = nodes_of(ast, Ops.RANGE)
    order = sorted(loop.number for loop in loops)
    return ast.replace(arg=KernelInfo(name, tuple(order)))  # type: ignore[no-any-return]
