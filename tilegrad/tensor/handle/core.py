"""The base of every tensor method: the handle around a node, and how operands meet.

A tensor is a small mutable handle around an immutable node. Methods build a larger node and wrap
it; nothing runs. The class grows by inheritance, one file a subject (movement, elementwise, reduce,
...), up to `Tensor` in tensor.py.

Operands meet in three steps: one device, one dtype (`base.dtype_promotion`; a Python number takes
the tensor's), one shape (broadcasting). Constants and symbolic integers have shape () and stand
next to operands of any shape as they are.
"""

from __future__ import annotations

import weakref
from operator import attrgetter
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

from tilegrad.base.config import gradients
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import DeviceError, DTypeError, ShapeError, article, type_name
from tilegrad.base.origin import mark
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.tensor.handle.aliases import Alias
from tilegrad.tensor.handle.broadcasting import broadcast, describe, is_scalar_leaf
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.living import (
    by_identity,
    forget,
    hold,
    hold_also,
    live,
    with_gradient,
    with_variables,
)  # fmt: skip
from tilegrad.tensor.handle.metadata import Metadata
from tilegrad.tensor.handle.pairs import ValuesAlone
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, merge, show_shape
from tilegrad.tensor.handle.slot_layout import Slots

__all__ = [
    "Core", "as_dtype", "cast_node", "check_tensors", "compute", "describe", "device_of",
    "is_scalar_leaf", "live",
]  # fmt: skip

Operand = Any
_DTYPES = frozenset(dtypes.all)
# Methods that put their number into the result.
_PUTTING = frozenset({"maximum", "minimum", "pad", "scatter", "where"})


def compute(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
    """A node that computes something; it remembers the user's line."""
    node = UOp(op, dtype, src, arg)
    mark(node)
    # Worked out now, it takes no walk later.
    _ = node.shape
    return node


def as_dtype(value: DType | str) -> DType:
    """The dtype `value`, or the one of that name.

    Raises DTypeError if there is none, or if it is no dtype of tensors.
    """
    if not isinstance(value, DType):
        if not isinstance(value, str):
            # numpy.float32, numpy.dtype("float32"), and Python's own types
            value = {bool: "bool", int: "int", float: "float"}.get(value) or getattr(
                value, "name", getattr(value, "__name__", repr(value))
            )
        value = dtypes.from_name(value)
    if value not in _DTYPES:
        raise DTypeError(f"dtype: a tensor cannot have dtype {value!r}")
    return value


def cast_node(node: UOp, dtype: DType) -> UOp:
    """`node` in another dtype; a cast to bool asks whether the value is not zero."""
    if node.dtype is dtype:
        return node
    if node.op is Ops.CONST:
        return UOp.const(dtype, node.arg)
    if dtype is dtypes.bool:
        return compute(Ops.CMPNE, dtype, (node, UOp.const(node.dtype, 0)))
    if is_scalar_leaf(node):
        return UOp(Ops.CAST, dtype, node.src)
    return compute(Ops.CAST, dtype, (node,))


class Core(Metadata):
    """The handle: `uop` is the value, `grad` its gradient, `_variables` the bound values of its
    symbolic sizes. `Slots` lists its attributes.

    `_previous` are weak references to nodes that had the same value before this tensor was
    realized, so that a graph built earlier can still be differentiated with respect to it.
    `_is_leaf` marks what a user made, not an op. `_alias` is the storage that this tensor shares
    with its views, or as one of them, and how it looks there (`tensor.aliases`).
    """

    # Not as a display, from which type checkers would conclude that there is nothing to set.
    __slots__ = tuple[str, ...]()
    _device: str
    _gradient: Self | None
    _symbols: Variables
    device: str
    _requires_grad: bool | None
    _previous: tuple[weakref.ref[UOp], ...]
    _is_leaf: bool
    _is_shared: bool
    # Set for a result that is a pair in PyTorch.
    _stands_for: ValuesAlone
    _alias: Alias | None

    def _set(
        self, uop: UOp, device: str, variables: Variables, requires_grad: bool | None, *, leaf: bool
    ) -> None:
        self._node = uop
        self._call = None
        self.device = device
        self._gradient = None
        self._symbols = variables
        if variables:
            with_variables.add(self)
        self._requires_grad = requires_grad
        self._previous = ()
        self._is_leaf = leaf
        self._is_shared = False
        self._alias = None
        # As `living.enter`, without its frame: every tensor that is made comes by.
        number = id(self)
        reference = by_identity[number] = weakref.ref(self, MethodType(forget, number))
        if uop.holders is None:
            uop.holders = reference
        else:
            hold_also(uop, reference)

    def _hold(self, node: UOp) -> None:
        self._node = node
        if self._call is not None:
            self._call = None
        hold(self, node)

    def _bind(self, variables: Variables) -> None:
        self._symbols = variables
        if variables:
            with_variables.add(self)

    if TYPE_CHECKING:

        @property
        def uop(self) -> UOp: ...

        @uop.setter
        def uop(self, node: UOp) -> None: ...

        @property
        def _variables(self) -> Variables: ...

        @_variables.setter
        def _variables(self, variables: Variables) -> None: ...

    else:
        # No `__getattr__` may make the nodes of a call that waits: with one, any attribute of a
        # tensor takes ten times as long to read.
        def _expanded(self) -> UOp:
            call = self._call
            return self._node if call is None else call.expanded()

        uop = property(_expanded, _hold)
        # Read by a function of C: that costs 4 ns more than a slot.
        _variables = property(attrgetter("_symbols"), _bind)

    @property
    def grad(self) -> Self | None:
        """The gradient that `backward` has added up so far.

        Returns a tensor of this shape, dtype and device, or None before `backward`.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> loss = (x * x).sum().backward()
        >>> x.grad.tolist()
        [6.0]
        """
        return self._gradient

    @grad.setter
    def grad(self, gradient: Self | None) -> None:
        self._gradient = gradient
        if gradient is not None:
            with_gradient.add(self)

    @classmethod
    def _of(
        cls,
        uop: UOp,
        device: str | None = None,
        variables: Variables = NO_VARIABLES,
        requires_grad: bool | None = None,
    ) -> Self:
        """The tensor around `uop`."""
        tensor = object.__new__(cls)
        tensor._set(uop, canonical(device), variables, requires_grad, leaf=False)
        return tensor

    def _again(self, uop: UOp, device: str, variables: Variables) -> Self:
        """A tensor of its own around `uop`, which has this tensor's value."""
        requires_grad = self._requires_grad
        if requires_grad and not gradients.get():
            uop, requires_grad = _detached(uop), False
        return self._of(uop, device, variables, requires_grad)

    def _like(self, uop: UOp) -> Self:
        """The tensor around `uop`, which was made of this tensor alone."""
        if uop is self.uop:
            return self
        tensor: Self = object.__new__(type(self))
        requires_grad = self._requires_grad if uop.dtype.is_float else None
        if requires_grad and not gradients.get():
            uop, requires_grad = _cut(uop, self), False
        tensor._set(uop, self.device, self._variables, requires_grad, leaf=False)
        return tensor

    def _values_alone(self, name: str, axis: int, keepdim: bool, made: Self) -> Self:
        """`made`, the values that a call of this tensor gives, which cannot be unpacked as the pair
        that PyTorch gives, but has its names.
        """
        if made is not self:
            call = self._call
            made._stands_for = ValuesAlone(
                name, axis, keepdim, self._node if call is None else call
            )
        return made

    def _joined(self, uop: UOp, *others: Core) -> Self:
        """The tensor around `uop`, made of this tensor and `others`, whose devices have met."""
        device, variables, requires_grad = self.device, self._variables, self._requires_grad
        for other in others:
            # A value without axes may have been brought to where the others are.
            if self.uop.op is Ops.CONST or (
                not self.uop.shape and device != other.device and device[:3] == "CPU"
            ):
                device = other.device
            if other._variables:
                variables = merge(variables, other._variables)
            requires_grad = requires_grad or other._requires_grad
        if not uop.dtype.is_float:
            requires_grad = None
        elif requires_grad and not gradients.get():
            uop, requires_grad = _cut(uop, self, *others), False
        tensor: Self = object.__new__(type(self))
        tensor._set(uop, device, variables, requires_grad, leaf=False)
        return tensor

    def _earlier(self) -> list[UOp]:
        """Nodes that had this tensor's value before it was realized, and that some graph still
        holds.
        """
        return [node for reference in self._previous if (node := reference()) is not None]

    def _earlier_references(self) -> tuple[weakref.ref[UOp], ...]:
        """References to such nodes. The dead among them are left out at powers of two, so that they
        never outnumber the living by much.
        """
        previous = self._previous
        if len(previous) < 4 or len(previous) & (len(previous) - 1):
            return previous
        return tuple([reference for reference in previous if reference() is not None])

    # sizes that are numbers

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The shape, of a tensor whose sizes are all numbers.

        Raises ShapeError for a symbolic size.
        """
        for size in self.shape:
            if not isinstance(size, int):
                raise ShapeError(
                    f"this op needs sizes that are numbers, not {show_shape(self.shape)}",
                    tensor=describe(self.uop),
                    remedy="pad it to a fixed size, and cut the result",
                )
        return self.shape  # type: ignore[return-value]

    def _length(self, axis: int) -> int:
        """The size of one axis, whatever those of the others are.

        Raises ShapeError for a symbolic one.
        """
        size = self.shape[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"axis {axis % self.ndim} of {show_shape(self.shape)} must have a size that is a "
                "number",
                tensor=describe(self.uop),
                remedy="use another axis, or pad it to a fixed size and cut the result",
            )
        return size

    # how operands meet

    def _on_one_device(self, name: str, tensors: list[Any]) -> list[Any]:
        """The operands of an op, which are on one device.

        Raises DeviceError where they are not.
        """
        check_devices(name, tensors)
        return tensors

    def _meet(self, name: str, *others: Any, unify: bool = True) -> tuple[UOp, ...]:
        """The nodes of this tensor and `others` on one device, in one dtype (unless told not to)
        and of one shape.
        """
        nodes = [tensor.uop for tensor in self._on_one_device(name, [self, *others])]
        if unify:
            dtype = nodes[0].dtype
            for node in nodes[1:]:
                if node.dtype is not dtype:
                    dtype = promote(dtype, node.dtype)
            nodes = [node if node.dtype is dtype else cast_node(node, dtype) for node in nodes]
        return broadcast(name, nodes)


def _detached(node: UOp) -> UOp:
    """The same value, through which no gradient flows."""
    return UOp(Ops.DETACH, node.dtype, (node,)) if node.dtype.is_float else node


def _cut(made: UOp, *operands: Core) -> UOp:
    """`made`, which an op made of `operands`, without a gradient to those that require one.

    These are detached, not what was made of them: a node between two ops would hide from the
    scheduler that they belong together.
    """
    known = {tensor.uop: tensor._requires_grad for tensor in operands}
    new: dict[UOp, UOp] = {}
    for node in toposort([made], stop=known.__contains__):
        if node in known:
            new[node] = _detached(node) if known[node] else node
        else:
            sources = tuple([new[source] for source in node.src])
            new[node] = (
                node if sources == node.src else compute(node.op, node.dtype, sources, node.arg)
            )
    cut = new[made]
    # The value itself, in which the operands are not found.
    return cut if cut is not made else _detached(made)


def number_dtype(name: str, dtype: DType, value: Any) -> DType:
    """The dtype that a Python number takes next to a tensor of `dtype`.

    Raises DTypeError if it is no number, or an integer that the tensor's dtype cannot hold.
    """
    if isinstance(value, bool):
        return dtype
    if isinstance(value, int):
        kind = dtypes.default_int if dtype is dtypes.bool else dtype
        # A number that fits as bits is taken, so that `x & 0xFFFFFFFF` and `~mask` need no thought;
        # but a value put into a tensor is to be found there.
        most = kind.max if name in _PUTTING else (1 << kind.bits) - 1
        if kind.is_int and not -(1 << (kind.bits - 1)) <= value <= most:
            raise DTypeError(
                f"{name}: {value} does not fit {kind.name}",
                rule="a number takes the tensor's dtype; cast the tensor first",
            )
        return kind
    if isinstance(value, float):
        return dtype if dtype.is_float else dtypes.default_float
    raise DTypeError(
        f"{name}: cannot use {article(type(value).__name__)} as an operand",
        rule="a tensor, a number or a Variable",
    )


def check_tensors(name: str, *values: Any, are_several: bool = False) -> None:
    """Raise DTypeError unless all values are tensors, or of a class that computes the function
    `name` as they do; where there may be several, the remedy says how a list of them is passed.
    """
    for value in values:
        if not isinstance(value, Core):
            if name in getattr(value, "_functions", ()):
                continue
            is_list = are_several and isinstance(value, (list, tuple))
            raise DTypeError(
                f"{name}: cannot use {article(type_name(value))} as an operand",
                rule="a tensor",
                remedy=f"pass them one by one: Tensor.{name}(*tensors)"
                if is_list
                else "make one: Tensor(value)",
            )


def check_devices(name: str, tensors: list[Core]) -> None:
    """Raise DeviceError unless all tensors are on one device; constants are on any."""
    check_tensors(name, *tensors)
    first = tensors[0]
    for tensor in tensors:
        if tensor.device != first.device:
            if first.uop.op is Ops.CONST:
                first = tensor
            elif tensor.uop.op is not Ops.CONST:
                raise DeviceError(
                    f"{name}: operands are on two devices: {first.device} and {tensor.device}",
                    left=describe(first.uop),
                    right=describe(tensor.uop),
                    remedy=f"move one with .to({first.device!r})",
                )


# The name of a tensor's device: a class of tensors may show something else as `device`.
_slot: Any = vars(Slots)["device"]
Core._device = _slot
device_of, set_device = _slot.__get__, _slot.__set__
