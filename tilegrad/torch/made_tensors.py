"""`torch.tensor`, `torch.zeros`, `torch.arange`: integers are int64, floats float32."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import numpy

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.dtype_promotion import promote
from tilegrad.base.errors import ConfigError, KindError
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.calls.changing_constants import uploaded_constant
from tilegrad.tensor.calls.uploads import are_few
from tilegrad.tensor.handle.core import as_dtype
from tilegrad.tensor.handle.size_arguments import as_int, as_number
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage.host_memory import is_array
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.device_names import name_of
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "Making", "arange", "as_tensor", "asarray", "empty", "empty_like", "eye", "from_numpy",
    "frombuffer", "full", "full_like", "like", "linspace", "logspace", "ones", "ones_like",
    "options_of", "range_", "scalar_tensor", "sizes_of", "tensor", "tril_indices", "triu_indices",
    "zeros", "zeros_like",
]  # fmt: skip

# The classes of Python's numbers.
_NUMBERS = frozenset({bool, int, float})


class Making(TypedDict, total=False):
    """The keywords of functions that make a tensor. The last three have no effect here."""

    dtype: DType | None
    device: Any
    requires_grad: bool
    layout: Any
    pin_memory: bool
    memory_format: Any


def options_of(given: Making, dtype: DType | None = None) -> dict[str, Any]:
    """The keywords of tilegrad's creation methods; `dtype` where none is given."""
    wanted = given.get("dtype") or dtype
    options = {
        "device": name_of(given.get("device")),
        "dtype": None if wanted is None else as_dtype(wanted),
    }
    return options | ({"requires_grad": True} if given.get("requires_grad") else {})


def sizes_of(size: Sequence[Any]) -> tuple[Any, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        return tuple(size[0])
    return tuple(size)


def _dtype_of(data: Any) -> DType | None:
    """The dtype of a list, or of a number: int64 of integers; None where it has one."""
    if isinstance(data, (OurTensor, bytes, bytearray, memoryview)) or is_array(data):
        return None
    if isinstance(data, (list, tuple, range)):
        classes = set(map(type, _leaves(data)))
        if classes <= _NUMBERS:
            if float in classes or not classes:
                return dtypes.default_float
            return dtypes.int64 if int in classes else dtypes.bool
        kinds = {_dtype_of(each) for each in _leaves(data)}
        if None in kinds:
            return None
        order = (dtypes.default_float, dtypes.int64, dtypes.bool)
        return next(kind for kind in order if kind in kinds)
    if isinstance(data, bool):
        return dtypes.bool
    return dtypes.int64 if isinstance(data, int) else dtypes.default_float


def _dtype_beside_arrays(leaves: Sequence[Any]) -> DType | None:
    """The dtype in which numbers and arrays of NumPy meet in one list; None if that is NumPy's."""
    if not all(type(each) in _NUMBERS or _is_plain_array(each) for each in leaves):
        return None
    kinds = [as_dtype(each.dtype.name) if is_array(each) else _dtype_of(each) for each in leaves]
    return functools.reduce(promote, [kind for kind in kinds if kind is not None])


def _is_plain_array(value: Any) -> bool:
    """Whether a value is an array, or a scalar, of a dtype that has a name here as in NumPy."""
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        return False
    return value.dtype.kind in "biuf" and value.dtype.itemsize <= 8


def _leaves(data: Any) -> list[Any]:
    found, stack = [], list(data)
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple, range)):
            stack.extend(item)
        else:
            found.append(item)
    return found


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of a copy of `data`: a number, nested lists, an array, another tensor.

    >>> import tilegrad.torch as torch
    >>> torch.tensor([1, 2]).dtype.name, torch.tensor([1.0, 2.0]).dtype.name
    ('int64', 'float32')
    """
    if data is None:
        raise KindError("tensor: None has no dtype")
    if isinstance(data, OurTensor):
        target = data.device if device is None else device
        made: Tensor = as_ours(data).detach().clone().to(target)
        made = made if dtype is None else made.to(dtype)
    else:
        if isinstance(data, deque):
            data = list(data)
        if isinstance(data, (list, tuple)):
            leaves = _leaves(data)
            others = [each for each in leaves if type(each) not in _NUMBERS]
            if any(isinstance(each, OurTensor) for each in others):
                data = _without_tensors(data)
            elif any(map(is_array, others)):
                dtype = dtype or _dtype_beside_arrays(leaves)
                data = numpy.array(data)
        kind = _dtype_of(data) if dtype is None else as_dtype(dtype)
        made = Tensor(data, device=name_of(device), dtype=kind)
    made._is_leaf = True
    if requires_grad:
        made.requires_grad = True
    return made


def _without_tensors(data: Any) -> Any:
    if isinstance(data, OurTensor):
        return data.tolist()
    return [_without_tensors(each) for each in data] if isinstance(data, (list, tuple)) else data


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor; what is one with that dtype and device stays itself."""
    if isinstance(data, OurTensor):
        made: Tensor = as_ours(data)
        made = made if device is None else made.to(device)
        return made if dtype is None else made.to(dtype)
    return tensor(data, dtype=dtype, device=device)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """As `as_tensor`, or `tensor` with `copy`."""
    made = (tensor if copy else as_tensor)(obj, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def from_numpy(ndarray: Any) -> Tensor:
    """The values of an array, which are copied: what is written to the array later is not seen."""
    return Tensor(numpy.asarray(ndarray), device=name_of(None))


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """The values in a buffer of bytes."""
    raw = memoryview(buffer).cast("B")[offset:]
    raw = raw if count < 0 else raw[: count * as_dtype(dtype).itemsize]
    made = Tensor(bytes(raw), device=name_of(None), dtype=dtype)
    return made.requires_grad_() if requires_grad else made


def scalar_tensor(s: Any, **options: Unpack[Making]) -> Tensor:
    """A number as a tensor without axes."""
    kind = options.get("dtype") or dtypes.default_float
    wants = bool(options.get("requires_grad"))
    return tensor(s, dtype=kind, device=options.get("device"), requires_grad=wants)


# filled


def zeros(*size: Any, **options: Unpack[Making]) -> Tensor:
    """Zeros."""
    return Tensor.zeros(*sizes_of(size), **options_of(options))


def ones(*size: Any, **options: Unpack[Making]) -> Tensor:
    """Ones."""
    return Tensor.ones(*sizes_of(size), **options_of(options))


def empty(*size: Any, **options: Unpack[Making]) -> Tensor:
    """Memory of a shape, with whatever values it holds."""
    return Tensor.empty(*sizes_of(size), **options_of(options))


def full(size: Any, fill_value: Any, **options: Unpack[Making]) -> Tensor:
    """`fill_value` in every element."""
    value = fill_value.item() if isinstance(fill_value, OurTensor) else fill_value
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    made = Tensor.full(sizes, value, **options_of(options, _dtype_of(value)))
    return _in_memory(made) if isinstance(value, bool) and len(sizes) == 1 else made


def _in_memory(flags: Tensor) -> Tensor:
    """A truth value for each row, which comes from a condition of the program, in memory: as a
    constant, each of the two would shape another graph.
    """
    is_flag = flags.dtype is dtypes.bool and isinstance(flags.shape[0], int)
    made: Tensor | None = uploaded_constant(flags) if is_flag else None
    return flags if made is None else made


def like(other: OurTensor, given: Making) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The shape of `other`, and the keywords of tilegrad's creation methods."""
    if given.get("device") is None:
        given["device"] = other.device
    return tuple(other.shape), options_of(given, other.dtype)


def zeros_like(input: ours.Tensor, **options: Unpack[Making]) -> Tensor:
    """Zeros in the shape, dtype and device of another tensor."""
    sizes, made = like(input, options)
    return Tensor.zeros(*sizes, **made)


def ones_like(input: ours.Tensor, **options: Unpack[Making]) -> Tensor:
    """Ones in the shape, dtype and device of another tensor."""
    sizes, made = like(input, options)
    return Tensor.ones(*sizes, **made)


def empty_like(input: ours.Tensor, **options: Unpack[Making]) -> Tensor:
    """Memory in the shape, dtype and device of another tensor."""
    sizes, made = like(input, options)
    return Tensor.empty(*sizes, **made)


def full_like(input: ours.Tensor, fill_value: Any, **options: Unpack[Making]) -> Tensor:
    """`fill_value` in the shape, dtype and device of another tensor."""
    sizes, made = like(input, options)
    return Tensor.full(sizes, fill_value, **made)


# counted


def arange(start: Any, end: Any = None, step: Any = 1, **options: Unpack[Making]) -> Tensor:
    """start, start + step, ... below `end`; from 0 up to `start` without an end."""
    first, last = (0, start) if end is None else (start, end)
    numbers = [each.item() if isinstance(each, OurTensor) else each for each in (first, last, step)]
    is_whole = all(isinstance(each, int) or hasattr(each, "__index__") for each in numbers)
    kind = dtypes.int64 if is_whole else dtypes.default_float
    begin, stop, by = (as_number("arange", "a bound", each) for each in numbers)
    if by == 0 or (stop - begin) * by < 0:
        raise ConfigError(f"arange: no step of {by} leads from {begin} to {stop}")
    made = Tensor.arange(begin, stop, by, **options_of(options, kind))
    return _positions_in_memory(made) if begin else made


def _positions_in_memory(made: Tensor) -> Tensor:
    """Integers that begin at another number than 0, in memory if they are few: mostly positions of
    a loop, which would be another constant at each step.
    """
    size = made.shape[0]
    if not isinstance(size, int) or not made.dtype.is_int or not are_few(size, made.dtype):
        return made
    if this_thread.stand_ins:
        return made
    found: Tensor | None = uploaded_constant(made)
    return made if found is None else found


def range_(
    start: float, end: float, step: float = 1, *, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """start, start + step, ... up to and with `end`."""
    count = math.floor((end - start) / step) + 1
    return (arange(count, device=device) * step + start).to(dtype or dtypes.default_float)


def linspace(start: Any, end: Any, steps: int, **options: Unpack[Making]) -> Tensor:
    """`steps` numbers in equal distances, both ends among them: counted from the nearer end, so
    that each is PyTorch's to the last bit. Integers are counted from ends without fractions, and
    cut.
    """
    first, last, made = float(start), float(end), options_of(options, dtypes.default_float)
    steps = as_int("linspace", "steps", steps)
    if made["dtype"].is_int:
        whole = numpy.trunc(_between(int(first), int(last), steps)).astype(numpy.int64)
        return Tensor(whole.astype(made["dtype"].name), **made)
    if made["dtype"] is not dtypes.float32 or steps < 2:
        return Tensor.linspace(first, last, steps, **made)
    values = _between(numpy.float32(first), numpy.float32(last), steps)
    return Tensor(values.astype(numpy.float32), **made)


def _between(low: Any, high: Any, steps: int) -> Any:
    """`steps` numbers in float64, of a distance rounded as the two ends are."""
    step = numpy.float64((high - low) / type(low)(max(steps - 1, 1)))
    index = numpy.arange(steps)
    from_end = steps - 1 - index
    return numpy.where(
        (index < steps // 2) | (steps == 1), low + step * index, high - step * from_end
    )


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, **options: Unpack[Making]
) -> Tensor:
    """Powers of `base` whose exponents are those of `linspace`."""
    made = options_of(options, dtypes.default_float)
    if made["dtype"].is_int:
        start, end = int(start), int(end)
    exponents = numpy.linspace(float(start), float(end), steps)
    return tensor(base**exponents, **made)


def eye(n: int, m: int | None = None, **options: Unpack[Making]) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    return Tensor.eye(n, m, **options_of(options))


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType = dtypes.int64, device: Any = None
) -> Tensor:
    """Rows and columns of the elements on and below a diagonal."""
    return Tensor.tril_indices(row, col, offset).to(device, dtype)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType = dtypes.int64, device: Any = None
) -> Tensor:
    """Rows and columns of the elements on and above a diagonal."""
    return Tensor.triu_indices(row, col, offset).to(device, dtype)
