"""Kernels written by hand, as nodes of a graph like any other.

A function takes the pointers of the kernel's outputs and inputs, and returns a kernel graph over
them, such as the scheduler would make: loops, loads, stores, scratch. From there on it
goes the usual way, through checks, Opts and every back end; a capture records it, and other kernels
run around it in the order that the data asks for. This is how the library itself does what no
single op says: sorting, writing by index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType
from tilegrad.base.errors import ShapeError
from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import check_devices, compute
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.results.kernel_families import KernelFamily, finished
from tilegrad.tensor.results.paired import PairedValues
from tilegrad.tensor.storage.memory import elements

__all__ = ["Custom"]

Build = Callable[..., UOp]


class Custom(PairedValues):
    """Steps by a kernel graph."""

    __slots__ = ()

    def custom_kernel(
        self,
        *others: Self,
        fxn: Build,
        grad_fxn: Callable[[UOp, UOp], Sequence[UOp | None]] | None = None,
    ) -> list[Self]:
        """Run a kernel written by hand, which writes this tensor and reads `others`.

        Args:
            others: further tensors, of any shapes and dtypes.
            fxn: takes a pointer for each tensor, in order, to its elements in row-major order;
                gives the kernel, a SINK of stores to the first pointer over loops made by
                `UOp.range`.
            grad_fxn: takes the gradient of the result and the kernel's node, whose `src` are the
                values of `others`, and gives their gradients, None where none flows.

        Returns a list of the tensors after the kernel, in their shapes and dtypes. Nothing runs
        until the result is needed, this tensor itself stays as it is, and an element that the
        kernel does not write has no defined value.

        Raises ShapeError for a symbolic size or no other tensor, DTypeError if `fxn` gives no
        kernel, DeviceError if tensors are on two devices, InternalError for a kernel that could
        reach outside its memory.

        >>> from tilegrad import Tensor, UOp
        >>> def double(made, x):
        ...     i = UOp.range(x.dtype.size, 0)
        ...     return UOp.sink(made.store(i, x.load(i) * 2))
        >>> Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=double)[0].tolist()
        [2.0, 4.0, 6.0]
        """
        name = getattr(fxn, "__name__", "custom")
        result = self._by_kernel(name, self._sizes, self.dtype, fxn, list(others), grad_fxn)
        return [result, *others]

    def _by_kernel(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        build: Build,
        inputs: Sequence[Self],
        gradient: Callable[[UOp, UOp], Sequence[UOp | None]] | None = None,
    ) -> Self:
        """A tensor of `shape` and `dtype` that the kernel `build(made, *inputs)` fills."""
        _check_inputs(name, inputs)
        counts = [elements(shape), *[elements(each._sizes) for each in inputs]]
        if 0 in counts:
            raise ShapeError(f"custom_kernel: {name} has an operand without elements")
        kinds = [dtype, *[each.dtype for each in inputs]]
        pointers = [
            UOp(Ops.DEFINE_GLOBAL, kind.ptr(count), (), slot)
            for slot, (kind, count) in enumerate(zip(kinds, counts))
        ]
        arg = KernelArg(name, shape, finished(name, build(*pointers)), gradient)
        return self._with_kernel(arg, dtype, inputs)

    def _by_family(
        self,
        family: KernelFamily,
        sizes: tuple[int, ...],
        inputs: Sequence[Self],
        gradient: Callable[[UOp, UOp], Sequence[UOp | None]] | None = None,
    ) -> Self:
        """As `_by_kernel`, by the kernel of a family for these sizes. `gradient` has to take all
        sizes from its nodes.
        """
        _check_inputs(family.name, inputs)
        arg = KernelArg(family.name, family.shape(sizes), None, gradient, family, sizes)
        return self._with_kernel(arg, family.dtypes[0], inputs)

    def _with_kernel(self, arg: KernelArg, dtype: DType, inputs: Sequence[Self]) -> Self:
        # A constant is on no device; the memory that a kernel reads must be on one.
        device = canonical(inputs[0].device)
        sources = [
            compute(Ops.CONTIGUOUS, each.dtype, (each.uop,), device)
            if each.uop.is_constant
            else each.uop
            for each in inputs
        ]
        node = compute(Ops.CUSTOM, dtype, tuple(sources), arg)
        return inputs[0]._joined(node, *inputs[1:])


def _check_inputs(name: str, inputs: Sequence[Any]) -> None:
    if not inputs:
        raise ShapeError(f"custom_kernel: {name} reads no tensor, so no device is known")
    check_devices("custom_kernel", list(inputs))
