"""Where values come out: realize, numpy, tolist, item; and memory of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.device.disk import is_file
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.realize.realize import exclusive
from tilegrad.ir.args import CustomArg
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import Group
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.calls.changing_constants import uploaded_constant
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.calls.uploads import are_few, can_upload, uploaded
from tilegrad.tensor.handle.aliases import Away, is_contiguous, look, shared
from tilegrad.tensor.handle.core import Core, as_dtype, compute, describe, device_of
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, show_shape
from tilegrad.tensor.handle.tracing import closed, is_open, is_transforming, needs_value
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.products.attention_methods import Attention
from tilegrad.tensor.results.computing import realize_all
from tilegrad.tensor.storage import file_tensors, host_memory, memory, running, segments, writes
from tilegrad.tensor.storage.asked_together import settle_together
from tilegrad.tensor.storage.host_readable import known_elements
from tilegrad.tensor.storage.host_runs import constant_number, evaluated
from tilegrad.tensor.storage.viewed import bytes_of_view, element_of

__all__ = ["Realized"]

# Python's buffers end there, NumPy 2 too, and the takers of DLPack that were tried.
_MOST_AXES = 64


class Realized(Attention):
    """Values and memory."""

    __slots__ = ()

    # values

    def realize(self, *others: Self) -> Self:
        """Compute this tensor, and `others` with it, now.

        Args:
            others: further tensors.

        Returns this tensor, of the same shape and dtype, whose values are in memory.

        Raises ShapeError for a symbolic size that is not bound, DeviceError if a device fails or is
        out of memory.

        >>> Tensor([1, 2]).add(1).realize().tolist()
        [2, 3]
        """
        if others:
            if settle_together([self, *others], realize_all):
                return self
        elif self._call is not None and segments.settle(self, realize_all):
            return self
        # The node of one whose call waits is made; a property would cost a call more.
        node = self._node if self._call is None else self.uop
        if others or not memory.is_stored(node):
            # Not to be held beside the tensor while it runs.
            del node
            realize_all([self, *others])
        return self

    def _become_known(self) -> None:
        """As `realize`, for the host, which looks at the memory at once and needs no node of it."""
        if self._call is None or not segments.read(self, realize_all, _is_there, is_users=False):
            self.realize()

    def contiguous(self) -> Self:
        """The same value in row-major order, in memory once it is realized: this tensor or an alias
        of it where it is in that order, else a copy.

        Returns a tensor of this shape and dtype.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        is_copy = self._alias is not None and not is_contiguous(self)
        if self._call is not None:
            return self._gathered() if is_copy else self._ordered()
        node = self.uop
        if node.op in (Ops.BUFFER, Ops.CONTIGUOUS):
            return self.clone() if is_copy else self
        if node.is_constant and self._has_elements():
            # All constants of a value are one node; memory that is written to later must be one
            # tensor's own.
            made = self._like(memory.owned(node, self.device))
            if not is_copy:
                storage, _ = shared(self)
                _, shape, moves = look(self)
                made._alias = storage, Away(shape, moves)
            return made
        node = compute(Ops.CONTIGUOUS, node.dtype, (node,))
        return self._like(node) if is_copy else self._as_view(self._like(node))

    @templated
    def _gathered(self) -> Self:
        """The same value in memory of its own, once it is realized."""
        node = self.uop
        return self._like(compute(Ops.CONTIGUOUS, node.dtype, (node,)))

    @templated
    def _ordered(self) -> Self:
        """The same value in memory, as an alias."""
        return self._as_view(self._gathered())

    def clone(self) -> Self:
        """Copy into memory of its own, which no assignment to this tensor changes.

        Returns a tensor of this shape and dtype.

        >>> x = Tensor([1, 2])
        >>> y = x.clone()
        >>> y[0] = 5
        >>> x.tolist(), y.tolist()
        ([1, 2], [5, 2])
        """
        if not self._has_elements():
            return self._gathered()
        copied = self._copied_indices()
        if copied is not None:
            return copied
        if self._call is not None or (writes.postpones_calls() and not self._node.is_constant):
            return self._gathered()
        if not self._requires_grad and self.uop.is_constant:
            made: Self | None = uploaded_constant(self)
            if made is not None:
                return made
        return self._like(memory.owned(self.uop, self.device))

    def _copied_indices(self) -> Self | None:
        """A copy at once of few integers or truth values in memory; None otherwise. They are
        positions rather than data, so the steps of a loop have them as memory from the first on.
        """
        if not self._at_once or self.dtype.is_float or self._requires_grad or self._symbols:
            return None
        device = device_of(self)
        if device != "CPU" or this_thread.stand_ins or not can_upload(device):
            return None
        size = self.numel()
        if not isinstance(size, int) or not are_few(size, self.dtype):
            return None
        array = known_elements(self)
        return None if array is None else uploaded(self, array, self.dtype)

    def to(self, device: str | DType | Core | None) -> Self:
        """Move to another device, or cast to another dtype.

        Args:
            device: name of a device, None for the default one, a dtype, or a tensor whose dtype and
                device to take.

        Returns a tensor of this shape; this tensor itself where nothing changes.

        Raises DeviceError for an unknown device.

        >>> Tensor([1]).to(dtypes.float32).tolist()
        [1.0]
        """
        if isinstance(device, DType):
            return self.cast(device)
        if isinstance(device, Core):
            return self.cast(device.dtype).to(device.device)
        name = canonical(device)
        if name == self.device:
            return self
        if self.uop.is_constant:
            return self._again(self.uop, name, self._variables)
        return self._again(file_tensors.moved(self.uop, self.device, name), name, self._variables)

    def to_(self, device: str | None) -> Self:
        """Move this tensor itself to another device.

        Args:
            device: name of a device, or None for the default one.

        Returns this tensor, of the same shape and dtype.

        Raises DeviceError for an unknown device.

        >>> Tensor([1, 2]).to_("CPU").device
        'CPU'
        """
        return self._become(self.to(device))

    def _become(self, moved: Self) -> Self:
        if moved is not self:
            self.uop, self.device, self._alias = moved.uop, moved.device, None
        return self

    def _bound_shape(self) -> tuple[int, ...]:
        return tuple([memory.bound(size, self._variables) for size in self.shape])

    def data(self) -> memoryview:
        """Values as a read-only memoryview of this shape; bfloat16 as its 16 bits. As with `numpy`,
        it is the tensor's memory itself where that can be.

        Returns a memoryview.

        Raises ShapeError for a symbolic size that is not bound, DTypeError for a dtype that a
        memoryview has no format for.

        >>> Tensor([1, 2]).data().tolist()
        [1, 2]
        """
        shape = self._host_shape("data")
        raw, code = self._bytes(engine.lend).cast("B"), host_memory.format_of(self.dtype)
        cast: Any = raw.cast
        found: memoryview = cast(code, shape) if shape and raw.nbytes else cast(code)
        return found

    def _host_shape(self, name: str) -> tuple[int, ...]:
        """The shape, for an array of the host.

        Raises ShapeError for more axes than NumPy and Python's buffers can have.
        """
        shape = self._bound_shape()
        if len(shape) > _MOST_AXES:
            raise ShapeError(
                f"{name}: {len(shape)} axes, and arrays of the host have at most {_MOST_AXES}",
                shape=f"{str(shape)[:60]}...",
                remedy="reshape it to fewer axes first, flatten() say; tolist() has no limit",
            )
        return shape

    def _bytes(self, read: Callable[[Buffer], memoryview] = engine.read) -> memoryview:
        """The values in row-major order, with symbolic sizes as they are bound."""
        if not self._has_elements():
            return memoryview(b"")
        call = self._call
        if call is not None and call.value is None and read is not engine.share:
            found = evaluated(self) if call.inputs is not None and not call.node else None
            if found is not None and found.shape == call.shape:
                call.pool.reads += 1
                return memoryview(found.tobytes())
        if read is not engine.share and self._is_view():
            picked = bytes_of_view(self)
            if picked is not None:
                return memoryview(picked)
        if self._call is not None:
            if read is engine.share:
                # Others may write to it: it is named by a node.
                segments.settle(self, realize_all)
            elif (found := segments.read(self, realize_all, read)) is not None:
                return found.toreadonly()
        this_thread.pool.reads += 1
        if is_transforming():
            needs_value("reading it", self.uop)
        if self.uop.op is Ops.CONST:
            return memoryview(host_memory.pack([self.uop.arg], self.dtype))
        if self.uop.is_constant and self.uop.shape == ():
            number = element_of(self)
            if number is not None:
                return memoryview(host_memory.pack([number], self.dtype))
        if is_file(self.device) and not memory.is_row_major(self.uop):
            if memory.stored_below(self.uop, self.device).op is not Ops.COPY:
                return self.to(None)._bytes(read)
        if isinstance(self.device, Group) and self._is_gathered_first():
            return self.to(self.device[0])._bytes(read)
        with exclusive():
            # No other thread writes between the run and the look at what it gave.
            node = memory.fixed(self._computed().uop, self._variables)
            if not memory.is_row_major(node):
                if self._variables:
                    # Cut here: a kernel would be another one for each bound value.
                    moves, base = memory.moves_of(node)
                    return host_memory.moved_bytes(
                        read(engine.looked_at(base)), self.dtype.itemsize, moves
                    ).toreadonly()
                (node,) = running.run([UOp(Ops.CONTIGUOUS, node.dtype, (node,))], NO_VARIABLES)
            return read(engine.looked_at(node)).toreadonly()

    def _is_gathered_first(self) -> bool:
        """Whether a value of several devices is brought to one before it is read: a view, and one
        that each device would compute, where one is enough.
        """
        if memory.is_row_major(self.uop):
            return False
        placement = engine.placement_of(self.uop)
        if placement is not None and placement.axis == 0:
            return memory.is_stored(self.uop)
        return True

    def _computed(self) -> Self:
        """This tensor, realized; where its graph is to stay one, another tensor of that graph."""
        if not is_transforming() or not is_open(self.uop):
            return self.realize()
        return self._of(closed(self.uop), self.device, self._variables).realize()

    def numpy(self) -> Any:
        """Values as a read-only NumPy array; bfloat16 becomes float32.

        Returns an array of this shape.

        Raises ShapeError for a symbolic size that is not bound.

        >>> Tensor([1.0, 2.0]).numpy().tolist()
        [1.0, 2.0]
        """
        shape = self._host_shape("numpy")
        return host_memory.array_from(self._bytes(engine.lend), self.dtype, shape)

    def apply(
        self,
        function: Callable[..., Any],
        *others: Self,
        shape: Sequence[int] | None = None,
        dtype: DType | str | None = None,
    ) -> Self:
        """Call a Python function with the values of this tensor and `others`, as one step among the
        kernels: it runs when its result is needed, and again wherever that is computed anew.

        It has no gradient, and no capture records it.

        Args:
            function: takes NumPy arrays and returns one.
            others: further tensors.
            shape: shape of the result, by default that of this tensor.
            dtype: dtype of the result, by default that of this tensor.

        Returns a tensor of `shape` and `dtype`.

        Raises ShapeError for a symbolic size; when it runs, ShapeError or DTypeError if the array
        has another shape or dtype.

        >>> Tensor([3.0, 1.0, 2.0]).apply(lambda x: x[x.argsort()]).tolist()
        [1.0, 2.0, 3.0]
        """
        inputs = [self, *others]
        if any(not isinstance(size, int) for each in inputs for size in each.shape):
            raise ShapeError(
                "apply: a Python function needs fixed sizes", tensor=describe(self.uop)
            )
        kind = self.dtype if dtype is None else as_dtype(dtype)
        sizes = tuple(self._bound_shape() if shape is None else shape)
        name = getattr(function, "__name__", type(function).__name__)
        kinds = [(each.dtype, each._host_shape("apply")) for each in inputs]

        def on_bytes(data: Sequence[memoryview]) -> memoryview:
            arrays = [host_memory.array_from(each, *what) for each, what in zip(data, kinds)]
            return host_memory.bytes_of_array(function(*arrays), kind, sizes, name)

        sources = [each.contiguous().uop if each.uop.is_constant else each.uop for each in inputs]
        node = compute(Ops.CUSTOM, kind, tuple(sources), CustomArg(name, sizes, on_bytes))
        return self._of(node, self.device, self._variables)

    def tolist(self) -> Any:
        """Values as nested lists of Python numbers; one number for no axes.

        Returns lists nested as deep as there are axes.

        Raises ShapeError for a symbolic size that is not bound.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        shape = self._bound_shape()
        count = 1
        for size in shape:
            count *= size
        return host_memory.nested(host_memory.unpack(self._bytes(), self.dtype, count), shape)

    def item(self) -> Any:
        """Value of a tensor with one element.

        Returns a Python bool, int or float.

        Raises ShapeError if there are more, or none.

        >>> Tensor([2.5]).item()
        2.5
        """
        call = self._call
        if call is None:
            number = memory.number_in(self._node)
            if number is None and self._at_once:
                number = constant_number(self._node)
            if number is not None:
                return number
        elif not call.shape:
            if call.value is not None:
                number = element_of(self)
                if number is not None:
                    return number
            elif (found := evaluated(self)) is not None:
                call.pool.reads += 1
                return found.item()
        if not self._symbols and prod(self.shape) == 1:
            number = element_of(self)
            if number is not None:
                return number
            # The read above may have computed this tensor: then it is memory and has no call.
            if self._call is not None:
                number = segments.read(self, realize_all, engine.read_number)
                if number is not None:
                    return number
        shape = self._bound_shape()
        if any(size != 1 for size in shape):
            raise ShapeError(
                f"item: one element is needed, the shape is {show_shape(shape)}",
                tensor=describe(self.uop),
                remedy=".tolist() and .numpy() give all; any(), all(), sum() and mean() give one",
            )
        return host_memory.unpack(self._bytes(), self.dtype, 1)[0]

    def _is_view(self) -> bool:
        """Whether this is a view whose call waits, or one of other than all of its memory in its
        order.
        """
        call = self._call
        if call is None:
            node = self._node
            return (node.op.is_movement or node.op is Ops.DETACH) and not memory.is_row_major(node)
        if call.value is not None:
            return any(op is not Ops.RESHAPE for op, *_ in call.moves)
        return call.template.is_view

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError(
                "len: a tensor without axes has no length",
                tensor=describe(self.uop),
                remedy=".numel() counts its elements: 1",
            )
        return memory.bound(self.shape[0], self._variables)

    def __bool__(self) -> bool:
        try:
            return bool(self.item())
        except ShapeError as error:
            raise ShapeError(
                f"bool: the truth of {self.numel()} values is ambiguous",
                tensor=describe(self.uop),
                remedy="any() or all() of it, or isinstance(x, Tensor), or x is not None",
            ) from error

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not (self.dtype.is_int or self.dtype is dtypes.bool):
            raise DTypeError(f"index: an integer is needed, not {self.dtype.name}")
        return int(self.item())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = self.clone()
        copied._is_leaf, copied._requires_grad = self._is_leaf, self._requires_grad
        memo[id(self)] = copied
        return copied


def _is_there(buffer: Buffer) -> bool:
    return True
