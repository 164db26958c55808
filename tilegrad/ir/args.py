"""Arguments of ops that need more than a number: frozen, hashable, and printed as text that parses
back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tilegrad.base.members import Members

__all__ = [
    "STEP", "BufferArg", "CustomArg", "KernelArg", "KernelInfo", "LoopArg", "RandArg", "Ties",
    "TileMap",
]  # fmt: skip

STEP = "step"
"""The name of the variable that holds the iteration number of a loop."""


class Ties(Members):
    """Which of several equal largest elements a REDUCE_AXIS by MAX takes its derivative from, where
    not all of them share it, which is NaN if a NaN is the largest: `EVEN` all of them, or all that
    are NaN; `FIRST` the first of them, or the first NaN; `POOL`, of a pooling, the first of them,
    or the last NaN, and never the padding around a tensor.
    """

    EVEN = "even"
    FIRST = "first"
    POOL = "pool"


class BufferArg(NamedTuple):
    """A leaf of the tensor graph: buffer number `slot` of `size` elements on `device`. In a graph
    that is planned for many sizes `size` may depend on lengths (`ir.lengths`).

    It is a tuple because its hash needs no Python call: each result of each run has one.
    """

    slot: int
    device: str
    size: Any


@dataclass(frozen=True)
class RandArg:
    """A draw of random words: its shape, and the (seed, offset) that determine its numbers."""

    shape: tuple[Any, ...]
    seed: int
    offset: int
    device: str

    @property
    def launch_values(self) -> tuple[int, int, int]:
        """The low and the high word of the seed, and the offset: variables of a launch."""
        return self.seed & 0xFFFFFFFF, (self.seed >> 32) & 0xFFFFFFFF, self.offset

    @staticmethod
    def launch_names(number: int) -> tuple[str, str, str]:
        """The names of these variables, of draw `number` of a plan."""
        return f"seed{number}_low", f"seed{number}_high", f"offset{number}"


@dataclass(frozen=True)
class CustomArg:
    """A Python function as a step: its name, the shape of its result, and the function itself,
    which maps the bytes of whole row-major values to those of the result. `gradient` is as
    KernelArg's.
    """

    name: str
    shape: tuple[int, ...]
    function: Callable[[Sequence[memoryview]], bytes | memoryview] = field(repr=False)
    gradient: Callable[[Any, Any], Sequence[Any]] | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False)
class KernelArg:
    """A kernel written by hand as a step: its name, the shape of its result, and its graph.

    Parameter 0 of the graph is the result, the others are the sources in order. `gradient` maps the
    gradient of the result and the node to the gradients of the sources. A kernel for any sizes has
    a `family` (`tensor/results/kernel_families.py`), which makes its graph for `sizes` when
    somebody looks at it.
    """

    name: str
    shape: tuple[int, ...]
    graph: Any
    gradient: Callable[[Any, Any], Sequence[Any]] | None = None
    family: Any = None
    sizes: tuple[Any, ...] = ()

    def at(self, sizes: Sequence[Any]) -> KernelArg:
        """The kernel of its family for other sizes: numbers or lengths."""
        sizes = tuple(sizes)
        return replace(self, shape=self.family.shape(sizes), sizes=sizes)

    @property
    def ast(self) -> Any:
        """The graph of the kernel."""
        return self.graph if self.family is None else self.family.kernel(self.sizes)

    def is_same_kernel(self, other: KernelArg) -> bool:
        """Whether the two differ in their gradients only, which each call makes anew."""
        return replace(self, gradient=None) == replace(other, gradient=None)

    def __repr__(self) -> str:
        return f"KernelArg({self.name!r}, {self.shape!r}, {self.ast.key!r})"


@dataclass(frozen=True, repr=False)
class LoopArg:
    """A loop over the steps 0 to `length` - 1, or from the last to the first if it `is_reversed`.
    In a graph that is planned for many sizes the length is one of its variables.

    `body` is a SINK of the next value of each carry, followed by the stacked outputs of a step. Its
    leaf BUFFER -1 - i stands for source i of the loop: the current value for the first `carries`
    sources, the step's row (of the first axis) for the next `stacks`, the whole for all others.
    """

    body: Any
    length: Any
    carries: int
    stacks: int
    is_reversed: bool = False

    @property
    def outputs(self) -> int:
        """The number of outputs, each a LOOP_OUTPUT."""
        return len(self.body.src) + self.carries

    def value(self, number: int) -> Any:
        """The value that a step appends to output `number`, or, for a final carry, leaves as it."""
        count = len(self.body.src)
        return self.body.src[number if number < count else number - count]

    def shape(self, number: int) -> tuple[Any, ...]:
        """The shape of output `number`: stacked values have an axis of steps in front."""
        one = tuple(self.value(number).shape)
        return one if number < self.carries else (self.length, *one)

    def __repr__(self) -> str:
        way = ", is_reversed=True" if self.is_reversed else ""
        numbers = f"{self.length}, {self.carries}, {self.stacks}"
        return f"LoopArg({self.body.key!r}, {numbers}{way})"


@dataclass(frozen=True)
class KernelInfo:
    """The argument of a kernel's SINK: its name, the printed order of its ranges (by number), and
    the applied Opts.
    """

    name: str = ""
    order: tuple[int, ...] = ()
    opts: tuple[Any, ...] = ()

    @property
    def overlaps(self) -> bool:
        """Whether chunks of an axis overlap, so that some elements are stored twice. The Opt
        guarantees that both stores have the same value, so chunks may run in parallel.
        """
        return any(opt.op.name == "OVERLAP" for opt in self.opts)


@dataclass(frozen=True)
class TileMap:
    """A matrix in global memory; one instruction copies a box of it (COPY_TILE). Each dimension,
    the one along the rows first, has a size, a stride in elements, and a number of elements in the
    box. The box comes to the shared memory of a cluster of blocks, neighbours along the first axis
    of the launch.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    blocks: int = 1

    @property
    def last(self) -> int:
        """The position of the last element of the matrix."""
        return sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides))
