"""Assignment: a tensor that keeps its memory and takes another value.

Whoever needs the old value gets it: the engine runs pending readers before the write, in one
schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from tilegrad.base.errors import DTypeError, ShapeError, TilegradError
from tilegrad.device.disk import is_file
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor import files, memory
from tilegrad.tensor.algebra import Algebra
from tilegrad.tensor.core import Core, check_devices, compute, describe, live
from tilegrad.tensor.index import has_tensor
from tilegrad.tensor.realized import owners
from tilegrad.tensor.sizes import Variables, here, is_one, merge, same_shape, show_shape
from tilegrad.tensor.tracing import is_open

__all__ = ["Assignment", "all_or_nothing"]


# What another tensor can be seen through.
_REORDERING = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.DETACH})
_MEMORY = (Ops.BUFFER, Ops.ASSIGN, Ops.AFTER)
# Assignments to parts of one memory that wait: with more, their graph would be slow to schedule.
_MOST_WAITING = 32


class _Log(threading.local):
    """What this thread's tensors were before they were assigned to, while somebody asks for it."""

    entries: list[tuple[Any, UOp, Any, Any, bool]] | None = None


_log = _Log()


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """For a block that assigns and then realizes, once: if it raises, as there was no memory, no
    assignment waits any more.
    """
    if _log.entries is not None:
        yield
        return
    entries: list[tuple[Any, UOp, Any, Any, bool]] = []
    _log.entries = entries
    try:
        yield
    except TilegradError:
        for tensor, node, variables, previous, is_shared in reversed(entries):
            tensor.uop, tensor._variables = node, variables
            tensor._previous, tensor._is_shared = previous, is_shared
            memory.supersede(memory.version_of(node), is_so=False)
        raise
    finally:
        _log.entries = None


def _note(tensor: Any) -> None:
    """Remember a tensor as it is before it is assigned to."""
    if _log.entries is not None:
        _log.entries.append(
            (tensor, tensor.uop, tensor._variables, tensor._previous, tensor._is_shared)
        )


class Assignment(Algebra):
    """Assignment, whole and in part, and Python's in-place operators."""

    __slots__ = ()

    def replace(self, other: Self) -> Self:
        """Be `other` from now on: its graph, whatever its shape; nothing is written.

        >>> x = Tensor([1, 2])
        >>> x.replace(Tensor([3, 4])).tolist()
        [3, 4]
        """
        self.uop, self.device, self._variables = other.uop, other.device, other._variables
        self._previous, self._is_shared = (), other._is_shared
        return self

    def assign(self, value: Any) -> Self:
        """Take the value of `value`; gives this tensor.

        A tensor that is memory is written in place when it is realized, after everything that still
        needs its old value. A view of another tensor in memory, whole or a window
        (`x.reshape(2, 3).assign(v)`, `x[1:3].assign(v)`), is written when any of those that look at
        that memory is realized, and changes all of them. Any other tensor has no memory yet, and
        takes the value as its own. A tensor in a file is written at once, by a value from any
        device.

        Raises ShapeError, DTypeError or DeviceError unless `value` has this tensor's shape, dtype
        and device; ShapeError for a view of a tensor that has no memory yet.

        >>> x = Tensor([1, 2, 3, 4]).realize()
        >>> x.reshape(2, 2)[1].assign(Tensor([7, 8])).tolist(), x.tolist()
        ([7, 8], [1, 2, 7, 8])
        """
        other = self._assignable(value)
        # Asked before a variable here holds the node.
        is_sole = memory.is_sole(self)
        node = self.uop
        if other.uop is node:
            return self
        if is_file(self.device):
            if self._has_elements():
                files.write(self, ..., other)
            return self
        variables = merge(self._variables, other._variables)
        if not self._has_elements():
            return self
        if self._has_no_memory():
            self._refuse_view_of_nothing(node)
            self._become(other.contiguous().uop, variables)
        elif (
            memory.is_whole(node) and memory.is_in_order(node) and self._owns(memory.base_of(node))
        ):
            # What nobody has seen is not written first.
            place = memory.place_of(memory.unwritten(node) if is_sole else node)
            self._become(compute(Ops.ASSIGN, node.dtype, (place, other.uop)), variables)
            memory.supersede(memory.version_of(node))
        else:
            self._write_through(node, other.uop, variables)
        return self

    def _has_no_memory(self) -> bool:
        """Whether no other tensor would see what is written to this one."""
        node = self.uop
        return self._is_shared or not memory.is_view(node) or memory.is_superseded(node)

    def _become(self, node: UOp, variables: Variables) -> None:
        _note(self)
        self.uop, self._variables, self._previous, self._is_shared = node, variables, (), False

    def _owns(self, base: UOp) -> bool:
        """Whether no other tensor that someone holds has the memory `base` as its value."""
        reference = owners.get(base)
        owner = None if reference is None else reference()
        return owner is None or owner is self or owner._is_shared

    def _refuse_view_of_nothing(self, node: UOp) -> None:
        """Raise ShapeError if `node` only reorders the value of another tensor, which is not in
        memory: it would not change with this one.
        """
        base = node
        while base.op in _REORDERING:
            base = base.src[0]
        if base is node or base.is_constant or base.op in (Ops.BUFFER, Ops.ASSIGN):
            return
        if any(tensor.uop is base for tensor in live() if tensor is not self):
            raise ShapeError(
                "assign: this is a view of a tensor that has no memory yet",
                tensor=describe(node),
                line=here(),
                remedy="realize that tensor first, or assign to a clone() of it",
            )

    def _assignable(self, given: Any) -> Self:
        """`given` as a tensor, if it fits this one exactly; a number fits any shape."""
        value = self._as_tensor(given)
        if value is not given and value.uop.op is Ops.CONST:
            value = value.expand(self.shape)
        if not same_shape(value.shape, self.shape):
            raise ShapeError(
                f"assign: shapes differ: {show_shape(self.shape)} and {show_shape(value.shape)}",
                target=describe(self.uop),
                value=describe(value.uop),
                line=here(),
            )
        if value.dtype is not self.dtype:
            raise DTypeError(
                f"assign: dtypes differ: {self.dtype.name} and {value.dtype.name}",
                target=describe(self.uop),
                value=describe(value.uop),
                line=here(),
                remedy=f"cast the value: .cast({self.dtype!r})",
            )
        if not value.uop.is_constant and not is_file(self.device):
            check_devices("assign", [self, value])
        return value

    def _write_through(
        self, window: UOp, value: UOp, variables: Variables, wants_grad: bool | None = None
    ) -> None:
        """Let `value` be written to `window` of memory; tensors that look at that memory look at it
        as it is then. If it wants a gradient, so do they from now on.
        """
        old = memory.version_of(window)
        lookers = [
            tensor
            for tensor in live()
            if not tensor._is_shared and memory.looks_at(tensor.uop, old)
        ]
        if value.op in _MEMORY and memory.base_of(value) is memory.base_of(old):
            # The memory itself in another order: copied before it is written to.
            value = compute(Ops.CONTIGUOUS, value.dtype, (value,))
        written = compute(Ops.ASSIGN, window.dtype, (memory.place_of(window), value))
        fresh = UOp(Ops.AFTER, old.dtype, (old, written))
        memory.put_off(fresh, variables)
        for tensor in lookers:
            _note(tensor)
            tensor.uop = tensor.uop.substitute({old: fresh})
            tensor._previous = ()
            if wants_grad and tensor._requires_grad is None:
                tensor._requires_grad, tensor._is_leaf = True, False
        memory.supersede(old)
        if memory.writes_before(fresh) >= _MOST_WAITING and not is_open(fresh):
            memory.run([fresh], variables)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write `value` to the elements that `key` picks, when this tensor or one that looks at it
        is realized.

        Raises ShapeError if `value` does not stretch to the picked shape, DTypeError for a tensor
        that requires a gradient.

        >>> x = Tensor([1, 2, 3]); x[1:] = 0; x.tolist()
        [1, 0, 0]
        """
        if self._requires_grad and self._is_leaf:
            raise DTypeError(
                "setitem: a leaf that requires a gradient cannot be written in part",
                tensor=describe(self.uop),
                line=here(),
                remedy="write to a clone() of it, or to detach() for no gradient",
            )
        wants_grad = isinstance(value, Core) and self.dtype.is_float and value._requires_grad
        if not self._has_elements():
            return
        if is_file(self.device):
            files.write(self, key, self._as_tensor(value).cast(self.dtype))
            return
        if self._has_no_memory():
            if not has_tensor(key):
                # What is wrong with the key is said of the tensor as it was.
                _ = self[key]
            node, variables = memory.owned(self.uop, self.device), self._variables
            memory.put_off(node, variables)
            self._become(node, memory.sizes_in(self.shape, variables))
        if has_tensor(key):
            new = self._written(key, value)
            variables = merge(self._variables, new._variables)
            self._write_through(self.uop, new.uop, variables, wants_grad)
            return
        window = self[key]
        new = self._as_tensor(value).cast(self.dtype)
        # Axes of size 1 in front of the picked ones are no matter.
        while new.ndim > window.ndim and is_one(new.shape[0]):
            new = new.reshape(new.shape[1:])
        new = new.expand(window.shape)
        check_devices("setitem", [self, new])
        if window._has_elements():
            variables = merge(window._variables, new._variables)
            self._write_through(window.uop, new.uop, variables, wants_grad)

    def __iadd__(self, other: Any) -> Self:
        return self.assign(self + other)

    def __isub__(self, other: Any) -> Self:
        return self.assign(self - other)

    def __imul__(self, other: Any) -> Self:
        return self.assign(self * other)

    def __itruediv__(self, other: Any) -> Self:
        return self.assign(self / other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self.assign(self // other)

    def __imod__(self, other: Any) -> Self:
        return self.assign(self % other)

    def __ipow__(self, other: Any) -> Self:
        return self.assign(self**other)

    def __imatmul__(self, other: Self) -> Self:
        return self.assign(self @ other)

    def __iand__(self, other: Any) -> Self:
        return self.assign(self & other)

    def __ior__(self, other: Any) -> Self:
        return self.assign(self | other)

    def __ixor__(self, other: Any) -> Self:
        return self.assign(self ^ other)

    def __ilshift__(self, other: Any) -> Self:
        return self.assign(self << other)

    def __irshift__(self, other: Any) -> Self:
        return self.assign(self >> other)
