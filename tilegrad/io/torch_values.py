"""Objects that a PyTorch file can name, as plain values: storages, tensors, NumPy arrays,
containers.

`PLAIN` says for each name what stands for it; a name outside it is refused, or becomes an `Unknown`
(`io.pickled`). `Values` makes tensors as views of their storages.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tilegrad.base.dtype import DType, dtypes
from tilegrad.io.mapped import dtype_called, is_sizes, tensor_over
from tilegrad.io.pickled import Global, Pickled, PickleError, Unknown, plain_key, read_pickle
from tilegrad.tensor.exchange.interchange import strided
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "PLAIN", "STORAGES", "DeviceName", "Kind", "Location", "Marks", "Storage", "Values", "items_of",
    "storage_id", "view_of",
]  # fmt: skip

_MAX_DEPTH = 100

# The dtype of each storage class, and of each dtype by PyTorch's name, with its bytes.
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_DTYPES = {
    "float64": 8, "double": 8, "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2,
    "int64": 8, "long": 8, "int32": 4, "int": 4, "int16": 2, "short": 2, "int8": 1, "uint8": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
_BYTES = "bytes"
_COMPONENTS = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Kind:
    """A dtype as the file names it; `bytes` is that of a storage without one."""

    name: str

    @property
    def itemsize(self) -> int:
        return 1 if self.name == _BYTES else _DTYPES[self.name]


@dataclass(eq=False)
class Storage:
    """`count` elements of the file; `data` is not there while a legacy file is looked through."""

    kind: Kind
    count: int
    data: memoryview | None


class Location(NamedTuple):
    """A tensor's storage as elements of its dtype, and which of them it has; the tensor itself, so
    that no other one takes its `id`.
    """

    tensor: Tensor
    storage: Storage
    dtype: DType
    offset: int
    strides: tuple[int, ...]


@dataclass(eq=False)
class Marks:
    """Facts about tensors in a file beside their values, by `id`: whether those that were `trained`
    are parameters, which are `pairs` (real and imaginary parts along a last axis), and the
    locations of all.
    """

    trained: dict[int, bool] = field(default_factory=dict)
    pairs: set[int] = field(default_factory=set)
    locations: dict[int, Location] = field(default_factory=dict)


def storage_id(given: Any) -> tuple[Kind, str, int, Any]:
    """(dtype, key, elements, the view if it is one) of a persistent id."""
    if type(given) is not tuple or len(given) not in (5, 6) or type(given[0]) is not str:
        raise PickleError("a persistent id that is no storage")
    if given[0] != "storage":
        raise PickleError(f"a persistent id of kind {given[0]!r:.40}, known is 'storage'")
    kind, key, _, count = given[1:5]
    if not isinstance(kind, Kind) or type(key) is not str or type(count) is not int or count < 0:
        raise PickleError("a storage without a type, a name or a size")
    return kind, key, count, given[5] if len(given) == 6 else None


def view_of(storage: Storage, view: Any) -> Storage:
    """The slice of a storage that the last item of its id asks for."""
    if view is None:
        return storage
    if type(view) is not tuple or len(view) != 3 or any(type(each) is not int for each in view[1:]):
        raise PickleError("a view of a storage that is no name, offset and size")
    _, offset, count = view
    if offset < 0 or count < 0 or offset + count > storage.count:
        raise PickleError(f"a view of {count} elements at {offset} of a storage of {storage.count}")
    size = storage.kind.itemsize
    data = storage.data
    found = None if data is None else data[offset * size : (offset + count) * size]
    return Storage(storage.kind, count, found)


class _Array(Pickled):
    """A NumPy array or scalar type on its way: what `_reconstruct` makes, filled by its state."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def take_state(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 5:
            raise PickleError("an array with another state than five values")
        _, shape, kind, is_fortran, raw = state
        if type(raw) is str:
            raw = raw.encode("latin-1", "replace")
        self.value = _array_of(kind, shape, raw, bool(is_fortran))


class _NumpyType(Pickled):
    """A `numpy.dtype` of numbers: its code, and its byte order once the state has come."""

    __slots__ = ("code",)

    def __init__(self, code: str):
        if type(code) is not str or len(code) > 3 or code[:1] not in "biufc":
            raise PickleError(f"a NumPy dtype that is no number: {code!r:.40}")
        self.code = code

    def take_state(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise PickleError("a NumPy dtype with an unknown state")
        if not self.code.startswith(("<", ">", "|", "=")):
            self.code = state[1] + self.code


def _array_of(kind: Any, shape: Any, raw: Any, is_fortran: bool) -> Any:
    import numpy

    if not isinstance(kind, _NumpyType) or type(raw) not in (bytes, bytearray):
        raise PickleError("an array without a dtype or without bytes")
    try:
        dtype = numpy.dtype(kind.code)
    except TypeError as error:
        raise PickleError(f"an unknown NumPy dtype {kind.code!r}") from error
    if not is_sizes(shape) or math.prod(shape) * dtype.itemsize != len(raw):
        raise PickleError(f"an array whose shape does not fit its {len(raw)} bytes")
    return numpy.frombuffer(raw, dtype).reshape(shape, order="F" if is_fortran else "C")


def _numpy_array(*unused: Any) -> _Array:
    return _Array()


def _numpy_number(kind: Any, raw: Any = b"") -> Any:
    if type(raw) is str:
        raw = raw.encode("latin-1", "replace")
    return _array_of(kind, (), raw, False)[()]


def _numpy_buffer(raw: Any, kind: Any, shape: Any, order: Any = "C") -> Any:
    return _array_of(kind, shape, raw, order == "F")


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise PickleError(f"an unknown encoding {encoding!r:.40}")
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise PickleError(f"a text that is not {encoding}") from error


def _byte_array(*given: Any) -> bytearray:
    if not given:
        return bytearray()
    if len(given) == 1 and type(given[0]) is bytes:
        return bytearray(given[0])
    return bytearray(_encoded(*given))


def items_of(given: Any = ()) -> list[Any]:
    """Members of a list, tuple or set; PickleError for another object."""
    if type(given) not in (list, tuple, set, frozenset):
        raise PickleError(f"members in a {type(given).__name__}")
    return list(given)


def _plain_items(given: Any = ()) -> list[Any]:
    found = items_of(given)
    if not all(plain_key(item) for item in found):
        raise PickleError("a set of what is no plain value")
    return found


def _ordered(given: Any = ()) -> OrderedDict[Any, Any]:
    pairs = [items_of(pair) for pair in items_of(given)]
    if any(len(pair) != 2 or not plain_key(pair[0]) for pair in pairs):
        raise PickleError("an OrderedDict of what are no pairs")
    return OrderedDict((key, value) for key, value in pairs)


def _counted(given: Any = None) -> dict[Any, Any]:
    """A Counter or a defaultdict: a dict, whatever it would have made of an absent key."""
    return dict(given) if type(given) is dict else {}


class DeviceName(str):
    """The name of a device that a file holds as one, no text."""

    __slots__ = ()


def _device(kind: Any, index: Any = None) -> DeviceName:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise PickleError("a device without a name")
    return DeviceName(kind if index is None else f"{kind}:{index}")


def _refuse_type(*unused: Any) -> Any:
    raise PickleError("a call of a type that is only a name here")


PLAIN: dict[str, Any] = {
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": _counted,
    "collections.Counter": _counted,
    "_codecs.encode": _encoded,
    "torch.Size": lambda sizes=(): tuple(items_of(sizes)),
    "torch.device": _device,
    "numpy.ndarray": _refuse_type,
    "numpy.dtype": lambda code, *unused: _NumpyType(code),
    "torch.Tensor": _refuse_type,
    "torch.nn.parameter.Parameter": _refuse_type,
}
for _module in ("builtins", "__builtin__"):
    PLAIN |= {
        f"{_module}.set": lambda items=(): set(_plain_items(items)),
        f"{_module}.frozenset": lambda items=(): frozenset(_plain_items(items)),
        f"{_module}.bytearray": _byte_array,
        f"{_module}.complex": lambda real, imag=0.0: complex(float(real), float(imag)),
        f"{_module}.slice": lambda *finals: slice(*finals),
        **{f"{_module}.{name}": _refuse_type for name in ("dict", "list", "int", "float", "str")},
    }
for _core in ("core", "_core"):
    PLAIN |= {
        f"numpy.{_core}.multiarray._reconstruct": _numpy_array,
        f"numpy.{_core}.multiarray.scalar": _numpy_number,
        f"numpy.{_core}.numeric._frombuffer": _numpy_buffer,
    }
PLAIN |= {f"torch.{name}": Kind(name) for name in _DTYPES}
PLAIN |= {
    f"{module}.{name}": Kind(kind)
    for module in ("torch", "torch.cuda")
    for name, kind in STORAGES.items()
}
PLAIN |= {
    "torch.storage.UntypedStorage": Kind(_BYTES),
    "torch.UntypedStorage": Kind(_BYTES),
    "torch.strided": "strided",
}


def _check_bits(more: tuple[Any, ...]) -> None:
    """Refuse a tensor that PyTorch conjugates or negates when it reads it: the bytes are others."""
    for each in more:
        if type(each) is dict and any(type(on) is bool and on for on in each.values()):
            raise PickleError(f"a tensor with {', '.join(map(str, each)):.60} to be applied")


class Values:
    """Makes tensors from their descriptions in a pickle. A legacy file is read twice: the first
    time, to find its storages, `is_blind` leaves the tensors out.
    """

    def __init__(
        self,
        device: str | None,
        keep_unknown: bool = False,
        is_blind: bool = False,
        marks: Marks | None = None,
    ):
        self.device, self.keep_unknown, self.is_blind = device, keep_unknown, is_blind
        self.marks = marks
        self.table: Mapping[str, Any] = PLAIN | {
            "torch._utils._rebuild_tensor": self.tensor,
            "torch._utils._rebuild_tensor_v2": self.tensor,
            "torch._utils._rebuild_tensor_v3": self.tensor_of_kind,
            "torch._utils._rebuild_parameter": self.parameter,
            "torch._utils._rebuild_parameter_with_state": self.parameter,
            "torch._tensor._rebuild_from_type_v2": self.subclass,
        }
        self._leaves: dict[tuple[int, str, int, tuple[int, ...]], Tensor] = {}
        self._tuples: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}

    def read(
        self, data: memoryview, persistent: Callable[[Any], Any], start: int = 0
    ) -> tuple[Any, int]:
        value, end = read_pickle(data, self.table, persistent, start, self.keep_unknown)
        return self.finished(value), end

    def finished(self, root: Any) -> Any:
        """The value, with arrays and storages instead of the objects that stand for them."""
        root = self._final(root)
        stack, seen = [root], set()
        while stack:
            item = stack.pop()
            if id(item) in seen:
                continue
            if type(item) in (list, tuple) or isinstance(item, (dict, Unknown)):
                seen.add(id(item))
            if type(item) is list:
                item[:] = [self._final(each) for each in item]
                stack.extend(item)
            elif isinstance(item, dict):
                for key in item:
                    item[key] = self._final(item[key])
                stack.extend(item.values())
            elif isinstance(item, Unknown):
                item.arguments, item.state = self._final(item.arguments), self._final(item.state)
                stack += [item.arguments, item.state, item.items, item.pairs]
            elif type(item) is tuple:
                stack.extend(item)
        return root

    def _final(self, value: Any) -> Any:
        if isinstance(value, _Array):
            return value.value
        if isinstance(value, Storage):
            return self.tensor(value, 0, (value.count,), (1,))
        if isinstance(value, Kind):
            return dtype_called(value.name) or value.name
        if isinstance(value, Global):
            return Unknown(value.name) if value.name not in self.table else value.name
        if type(value) is tuple:
            return self._final_tuple(value, 0)
        return value

    def _final_tuple(self, items: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
        """A tuple is made anew if something inside is; each once, however often it is held."""
        found = self._tuples.get(id(items))
        if found is None:
            if depth > _MAX_DEPTH:
                raise PickleError(f"tuples {_MAX_DEPTH} deep in each other")
            finals = [
                self._final_tuple(item, depth + 1) if type(item) is tuple else self._final(item)
                for item in items
            ]
            is_same = all(new is old for new, old in zip(finals, items, strict=True))
            # Both are kept, so that no other tuple takes the number of this one.
            found = self._tuples[id(items)] = (items, items if is_same else tuple(finals))
            self._tuples.setdefault(id(found[1]), (found[1], found[1]))
        return found[1]

    # constructors

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> Any:
        _check_bits(more[2:])
        if not isinstance(storage, Storage):
            raise PickleError(f"a tensor without a storage: {type(storage).__name__}")
        found = self._view(storage, storage.kind, offset, size, stride)
        if self.marks is not None and more[:1] == (True,):
            self.marks.trained[id(found)] = False
        return found

    def tensor_of_kind(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, kind: Any,
        *more: Any,
    ) -> Any:  # fmt: skip
        _check_bits(more)
        if not isinstance(storage, Storage) or not isinstance(kind, Kind):
            raise PickleError("a tensor without a storage or a dtype")
        return self._view(storage, kind, offset, size, stride)

    def parameter(self, data: Any, *unused: Any) -> Any:
        if not isinstance(data, Tensor):
            raise PickleError(f"a parameter of a {type(data).__name__}")
        if self.marks is not None:
            self.marks.trained[id(data)] = True
        return data

    def subclass(self, maker: Any, kind: Any, arguments: Any, state: Any) -> Any:
        """A tensor with attributes, which are left out, or of a subclass, which is refused."""
        if not isinstance(maker, Global) or maker.name not in self.table:
            raise PickleError("a tensor made in an unknown way")
        if not isinstance(kind, Global) or type(arguments) is not tuple:
            raise PickleError("a tensor of an unknown class")
        return maker.make(*arguments)

    def _view(self, storage: Storage, kind: Kind, offset: Any, size: Any, stride: Any) -> Tensor:
        """The tensor of `size` whose element i lies `offset` + i * `stride` elements inside."""
        if kind.name == _BYTES:
            kind = Kind("uint8")
        if not is_sizes(size) or not is_sizes(stride) or len(size) != len(stride):
            raise PickleError(f"a tensor of sizes {size!r:.60} and strides {stride!r:.60}")
        if type(offset) is not int or offset < 0:
            raise PickleError(f"a tensor at offset {offset!r:.40}")
        if kind.name in _COMPONENTS:
            return self._pairs(storage, Kind(_COMPONENTS[kind.name]), offset, size, stride)
        dtype = dtype_called(kind.name)
        if dtype is None:
            raise PickleError(
                f"a {kind.name} tensor; the dtypes of tensors are "
                + ", ".join(known.name for known in dtypes.all)
            )
        size, stride = tuple(size), tuple(stride)
        span = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if 0 not in size else 0
        needed = (offset + span) * kind.itemsize
        available = storage.count * storage.kind.itemsize
        if span and needed > available:
            raise PickleError(
                f"a tensor of sizes {size} that needs {needed} bytes of a storage of {available}"
            )
        if not span or self.is_blind:
            return Tensor.full(size, 0, device=self.device, dtype=dtype)
        assert storage.data is not None
        begin = offset * kind.itemsize
        data = storage.data[begin : begin + span * kind.itemsize]
        found: Tensor = strided(
            lambda shape: self._leaf(data, dtype, shape, begin, storage), size, stride, span
        )
        if self.marks is not None:
            self.marks.locations[id(found)] = Location(found, storage, dtype, offset, stride)
        return found

    def _pairs(
        self, storage: Storage, component: Kind, offset: int, size: Any, stride: Any
    ) -> Tensor:
        """Complex numbers, as their parts along a last axis."""
        steps = (*[2 * step for step in stride], 1)
        found = self._view(storage, component, 2 * offset, (*size, 2), steps)
        if self.marks is not None:
            self.marks.pairs.add(id(found))
        return found

    def _leaf(
        self, data: memoryview, dtype: DType, shape: tuple[int, ...], begin: int, storage: Storage
    ) -> Tensor:
        """The tensor over these bytes, one and the same for all who ask for them."""
        key = (id(storage.data), dtype.name, begin, shape)
        found = self._leaves.get(key)
        if found is None:
            found = self._leaves[key] = tensor_over(data, dtype, shape, self.device)
            return found
        return Tensor._of(found.uop, found.device)._wanting(None)
