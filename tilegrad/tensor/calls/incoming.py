"""Data that a user gives, as the leaf of a graph."""

from __future__ import annotations

import os
from typing import Any, Self, cast

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, ShapeError, article
from tilegrad.device.disk import is_file
from tilegrad.engine.realize.noted_writes import want_slice_writes
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.uploads import can_upload, is_at_once, upload, upload_bytes
from tilegrad.tensor.handle.aliases import hold, is_alone, set_apart
from tilegrad.tensor.handle.core import Core, as_dtype, cast_node, describe, number_dtype
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables
from tilegrad.tensor.handle.waiting import Call
from tilegrad.tensor.storage import file_tensors, host_memory, memory
from tilegrad.tensor.storage.writes import postpones_calls

__all__ = ["Incoming"]


class Incoming(Core):
    """The constructor, and whether a gradient is wanted."""

    __slots__ = ()
    # Whether small lists of numbers are copied to the device at once, as arrays are, and numbers
    # written to small tensors, or by a run.
    _at_once = False
    # Operators of NumPy arrays and scalars leave the work to those of the tensor beside them.
    __array_priority__ = 1000

    def __init__(
        self,
        data: Any = None,
        device: str | None = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ):
        if device is None:
            if isinstance(data, Core):
                device = data.device
            elif isinstance(data, os.PathLike):
                device = f"DISK:{os.fspath(data)}"
        name = canonical(device)
        wanted = None if dtype is None else as_dtype(dtype)
        if not requires_grad and _become_memory(self, data, name, wanted):
            self._requires_grad = requires_grad
            return
        node, variables = _node_of(type(self), data, name, wanted)
        self._set(node, name, variables, None, leaf=True)
        if requires_grad is not None:
            self.requires_grad = requires_grad

    def _operand(self, name: str, other: Any) -> Self:
        """`other` as a tensor on this one's terms: a number takes this tensor's dtype if it can
        hold its kind.
        """
        if isinstance(other, Core):
            return other  # type: ignore[return-value]  # every tensor is a Tensor
        dtype = self.dtype
        if hasattr(other, "__array__"):
            if getattr(other, "shape", None) != ():
                return type(self)(other, device=self.device)
            other = other.item()
        if isinstance(other, UOp):
            free, variables = other.unbound()
            if free.dtype is not dtypes.index:
                raise DTypeError(f"{name}: a {free.op} node is no operand; wrap it in a Tensor")
            wanted = dtype if dtype.is_float or dtype.itemsize >= 4 else dtypes.default_int
            return self._of(UOp(Ops.CAST, wanted, (free,)), self.device, variables)
        return self._of(UOp.const(number_dtype(name, dtype, other), other), self.device)

    def _as_tensor(self, value: Any) -> Self:
        """`value`, or what it makes on this tensor's device and in its dtype."""
        if isinstance(value, Core):
            return value  # type: ignore[return-value]  # every tensor is a Tensor
        # A file makes nothing: what is to be written there is made on the default device.
        device = None if is_file(self.device) else self.device
        return type(self)(value, device=device, dtype=self.dtype)

    def _has_elements(self) -> bool:
        return 0 not in self.shape

    @property
    def requires_grad(self) -> bool | None:
        """Whether `backward` adds up a gradient for this tensor; None means that it was not set.

        Returns a bool or None.

        Raises DTypeError for a dtype that has no derivative.

        >>> Tensor([1.0], requires_grad=True).requires_grad
        True
        """
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool | None) -> None:
        if wanted and not self._requires_grad:
            if not self.dtype.is_float:
                raise DTypeError(
                    f"requires_grad: {article(self.dtype.name)} tensor has no gradient",
                    tensor=describe(self.uop),
                )
            is_computed = self._call is not None or self._node.op is Ops.ASSIGN
            is_apart = is_alone(self) or _shows_what_waits(self)
            if is_computed and self._has_elements() and is_apart and postpones_calls():
                # Memory has no graph below, where the gradient might be taken for another's; and
                # the node that it had may be below another leaf.
                cast("Any", self).realize()
                self._previous = ()
            # Equal graphs are one node, so that their gradients could not be told apart.
            if self._has_elements() and memory.base_of(self.uop).op not in (Ops.BUFFER, Ops.COPY):
                hold(self, memory.owned(self.uop, self.device), is_computed=True)
            set_apart(self)
            want_slice_writes()
            self._is_leaf = True
        self._requires_grad = wanted


def _shows_what_waits(tensor: Any) -> bool:
    """Whether a tensor and one other share a storage, and it shows the result of a call, which may
    have been computed: both are memory once it is.
    """
    call = tensor._call
    if call is None or call.value is not None or not is_alone(tensor, 2):
        return False
    return all(isinstance(each, Call) for each in call.inputs or ())


def _become_memory(tensor: Any, data: Any, device: str, dtype: DType | None) -> bool:
    """Let `tensor` be memory with the values of an array or a small list of numbers; whether it
    is.
    """
    if data.__class__ is not list and data.__class__ is not tuple:
        return host_memory.is_plain_array(data) and upload(tensor, data, device, dtype)
    if not tensor._at_once or not can_upload(device):
        return False
    numbers = host_memory.few_numbers(data, dtype)
    if numbers is None:
        return False
    raw, kind, shape = numbers
    if not is_at_once(device, len(raw) // kind.itemsize, kind):
        return False
    return upload_bytes(tensor, raw, kind, shape, device)


def _node_of(cls: Any, data: Any, device: str, dtype: DType | None) -> tuple[UOp, Variables]:
    """The graph of a user's data, and the values of the variables in it."""
    if isinstance(data, Core):
        node = data.uop if dtype is None else cast_node(data.uop, dtype)
        return (
            node
            if data.device == device or node.is_constant
            else file_tensors.moved(node, data.device, device)
        ), data._variables
    if isinstance(data, os.PathLike):
        return _from_file(os.fspath(data), device, dtype), NO_VARIABLES
    if isinstance(data, UOp):
        free, variables = data.unbound()
        if free.dtype is dtypes.index:
            return UOp(Ops.CAST, dtype or dtypes.default_int, (free,)), variables
        return (free if dtype is None else cast_node(free, dtype)), variables
    if data is None:
        return _filled(UOp.const(dtype or dtypes.default_float, 0), (0,)), NO_VARIABLES
    if type(data) in (bool, int, float):
        kind = dtype or host_memory.dtype_of_numbers([data])
        host_memory.pack([data], kind)  # raises if it does not fit
        return UOp.const(kind, data), NO_VARIABLES
    if isinstance(data, (bytes, bytearray)) or _is_bytes(data):
        raw = bytes(data)
        if dtype is not None and len(raw) % dtype.itemsize:
            raise ShapeError(f"Tensor: {len(raw)} bytes are no whole number of {dtype.name}")
        kind = dtype or dtypes.uint8
        return _from_bytes(raw, kind, (len(raw) // kind.itemsize,), device), NO_VARIABLES
    if isinstance(data, (list, tuple, range)):
        return _from_list(cls, list(data), device, dtype)
    if host_memory.is_array(data):
        if getattr(data, "requires_grad", False):
            # Another library's tensor with a gradient hands its values over by no other way.
            data = data.detach()
        try:
            return _from_array(data, device, dtype), NO_VARIABLES
        except DTypeError:
            raise
        except TypeError:
            # PyTorch's bfloat16 is no array, but can be handed over.
            if not hasattr(data, "__dlpack__"):
                raise
    if hasattr(data, "__dlpack__"):
        return _node_of(cls, cls.from_dlpack(data, device, copy=True), device, dtype)
    found = host_memory.buffer_fields(data)
    if found is not None:
        raw, kind, shape = found
        node = _from_bytes(raw, kind, shape, device)
        return (node if dtype is None else cast_node(node, dtype)), NO_VARIABLES
    raise DTypeError(
        f"Tensor: cannot make a tensor of {article(type(data).__name__)}",
        rule="numbers, lists, bytes, an array, a picture or a path",
    )


def _is_bytes(data: Any) -> bool:
    """Whether `data` is a memoryview of plain bytes, which `dtype` says how to read."""
    return isinstance(data, memoryview) and data.format in ("B", "b", "c")


def _from_file(path: str, device: str, dtype: DType | None) -> UOp:
    """The file's bytes as a row of `dtype`, in the file or on their way to another device."""
    leaf = file_tensors.leaf_of(os.path.abspath(path))
    kind = dtype or dtypes.uint8
    if leaf is None:
        return _filled(UOp.const(kind, 0), (0,))
    if leaf.arg.size % kind.itemsize:
        raise ShapeError(
            f"Tensor: {leaf.arg.size} bytes are no whole number of {kind.name}", file=path
        )
    if kind is not dtypes.uint8:
        leaf = file_tensors.retyped(leaf, kind)
    return leaf if device == leaf.arg.device else file_tensors.moved(leaf, leaf.arg.device, device)


def _from_list(
    cls: Any, data: list[Any], device: str, dtype: DType | None
) -> tuple[UOp, Variables]:
    values, shape = host_memory.flatten(data)
    if any(isinstance(value, Core) for value in values):
        tensors: list[Any] = [cls(value, device=device) for value in values]
        whole = tensors[0].stack(*tensors[1:]).reshape(*shape, *tensors[0].shape)
        return (whole.uop if dtype is None else cast_node(whole.uop, dtype)), whole._variables
    if any(host_memory.is_array(value) for value in values):
        return _from_array(data, device, dtype), NO_VARIABLES
    kind = dtype or host_memory.dtype_of_numbers(values)
    return _from_bytes(host_memory.pack(values, kind), kind, shape, device), NO_VARIABLES


def _from_array(data: Any, device: str, dtype: DType | None) -> UOp:
    raw, kind, shape, number = host_memory.array_fields(data)
    if number is not None:
        return UOp.const(dtype or kind, number)
    node = _from_bytes(raw, kind, shape, device)
    return node if dtype is None else cast_node(node, dtype)


def _from_bytes(raw: bytes, dtype: DType, shape: tuple[int, ...], device: str) -> UOp:
    if not raw:
        return _filled(UOp.const(dtype, 0), shape)
    return memory.from_host(device, dtype, raw, shape)


def _filled(number: UOp, shape: tuple[int, ...]) -> UOp:
    return UOp(
        Ops.EXPAND,
        number.dtype,
        (UOp(Ops.RESHAPE, number.dtype, (number,), (1,) * len(shape)),),
        shape,
    )
