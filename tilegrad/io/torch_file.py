"""Reading PyTorch's files, without PyTorch and without running anything in them.

Three formats exist. The zip of today has a pickle (`data.pkl`) and a stored member for each storage
(`data/0`, ...). The legacy file is five pickles one after another, then the storages. The tar of
the first versions has storages, tensors and a pickle as members. All three speak of a tensor as a
storage, an offset, sizes and strides, and name constructors that PyTorch would call; here
`io.pickled` makes plain values of them, and only of those in the table below.

A storage is a window of the mapped file, and a tensor a view of it: two tensors that share a
storage share its bytes, and nothing is read before it is used.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.io.archive import Archive, is_archive, tar_members
from tilegrad.io.mapped import Source, damaged, dtype_called, is_sizes, source_of, tensor_over
from tilegrad.io.pickled import Global, Pickled, PickleError, Unknown, plain_key, read_pickle
from tilegrad.tensor.interchange import strided
from tilegrad.tensor.tensor import Tensor

__all__ = ["Unknown", "torch_load"]

_READER = "torch_load"
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MAX_DEPTH = 100

# The dtype of each storage class, and of each dtype by PyTorch's name, with its bytes.
_STORAGES = {
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


@dataclass(frozen=True)
class _Kind:
    """A dtype as the file names it; `bytes` is that of a storage without one."""

    name: str

    @property
    def itemsize(self) -> int:
        return 1 if self.name == _BYTES else _DTYPES[self.name]


@dataclass(eq=False)
class _Storage:
    """`count` elements of the file; `data` is not there while a legacy file is looked through."""

    kind: _Kind
    count: int
    data: memoryview | None


def torch_load(path: Source, device: str | None = None, keep_unknown: bool = False) -> Any:
    """What `torch.save` wrote to `path`, its tensors as tensors on `device`.

    All of PyTorch's formats are read: zip, legacy and tar; dicts, lists, tuples, sets, numbers,
    texts, NumPy arrays and numbers, parameters (as their tensors) and shared storages. The file is
    mapped and read as its values are needed.

    Nothing in it is run: a file that wants a class or a function beyond plain data is refused, and
    the message names it. With `keep_unknown`, an `Unknown` stands in its place, which holds the
    name and all that was given to it, tensors too: so the weights of a whole model that was saved,
    or of a file with the settings of some program, can be had without that program.

    Raises DataError if the file is absent, damaged, written by a big-endian machine, wants a name
    that is no data, or holds a dtype that tensors do not have.

    >>> torch_load("weights.pth")["weight"].shape
    (3, 4)
    """
    file, data = source_of(_READER, path)
    try:
        if is_archive(data):
            return _Zip(file, data, _Values(device, keep_unknown)).value()
        if _is_tar(data):
            return _tar(file, data, _Values(device, keep_unknown))
        return _legacy(file, data, device, keep_unknown)
    except PickleError as error:
        what = "the file is not plain data, or damaged"
        raise damaged(_READER, file, what, "a pickle of data", error) from error


def _is_tar(data: memoryview) -> bool:
    return bytes(data[257:262]) == b"ustar"


# the values that a file can name


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


def _members(given: Any = ()) -> list[Any]:
    if type(given) not in (list, tuple, set, frozenset):
        raise PickleError(f"members in a {type(given).__name__}")
    return list(given)


def _plain_members(given: Any = ()) -> list[Any]:
    found = _members(given)
    if not all(plain_key(item) for item in found):
        raise PickleError("a set of what is no plain value")
    return found


def _ordered(given: Any = ()) -> OrderedDict[Any, Any]:
    pairs = [_members(pair) for pair in _members(given)]
    if any(len(pair) != 2 or not plain_key(pair[0]) for pair in pairs):
        raise PickleError("an OrderedDict of what are no pairs")
    return OrderedDict((key, value) for key, value in pairs)


def _counted(given: Any = None) -> dict[Any, Any]:
    """A Counter or a defaultdict: a dict, whatever it would have made of an absent key."""
    return dict(given) if type(given) is dict else {}


def _device(kind: Any, index: Any = None) -> str:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise PickleError("a device without a name")
    return kind if index is None else f"{kind}:{index}"


def _refuse_type(*unused: Any) -> Any:
    raise PickleError("a call of a type that is only a name here")


_PLAIN: dict[str, Any] = {
    "collections.OrderedDict": _ordered,
    "collections.defaultdict": _counted,
    "collections.Counter": _counted,
    "_codecs.encode": _encoded,
    "torch.Size": lambda sizes=(): tuple(_members(sizes)),
    "torch.device": _device,
    "numpy.ndarray": _refuse_type,
    "numpy.dtype": lambda code, *unused: _NumpyType(code),
    "torch.Tensor": _refuse_type,
    "torch.nn.parameter.Parameter": _refuse_type,
}
for _module in ("builtins", "__builtin__"):
    _PLAIN |= {
        f"{_module}.set": lambda items=(): set(_plain_members(items)),
        f"{_module}.frozenset": lambda items=(): frozenset(_plain_members(items)),
        f"{_module}.bytearray": _byte_array,
        f"{_module}.complex": lambda real, imag=0.0: complex(float(real), float(imag)),
        f"{_module}.slice": lambda *parts: slice(*parts),
        **{f"{_module}.{name}": _refuse_type for name in ("dict", "list", "int", "float", "str")},
    }
for _core in ("core", "_core"):
    _PLAIN |= {
        f"numpy.{_core}.multiarray._reconstruct": _numpy_array,
        f"numpy.{_core}.multiarray.scalar": _numpy_number,
        f"numpy.{_core}.numeric._frombuffer": _numpy_buffer,
    }
_PLAIN |= {f"torch.{name}": _Kind(name) for name in _DTYPES}
_PLAIN |= {
    f"{module}.{name}": _Kind(kind)
    for module in ("torch", "torch.cuda")
    for name, kind in _STORAGES.items()
}
_PLAIN |= {
    "torch.storage.UntypedStorage": _Kind(_BYTES),
    "torch.UntypedStorage": _Kind(_BYTES),
    "torch.strided": "strided",
}


def _check_bits(more: tuple[Any, ...]) -> None:
    """Refuse a tensor that PyTorch turns or negates when it reads it: the bytes are others."""
    for each in more:
        if type(each) is dict and any(type(on) is bool and on for on in each.values()):
            raise PickleError(f"a tensor with {', '.join(map(str, each)):.60} to be applied")


class _Values:
    """Makes tensors of what a pickle says of them. A legacy file is read twice: the first time, to
    find its storages, `is_blind` leaves the tensors out.
    """

    def __init__(self, device: str | None, keep_unknown: bool = False, is_blind: bool = False):
        self.device, self.keep_unknown, self.is_blind = device, keep_unknown, is_blind
        self.table: Mapping[str, Any] = _PLAIN | {
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
        """The value, with arrays and storages in the place of what made them."""
        root = self._final(root)
        stack, seen = [root], set()
        while stack:
            item = stack.pop()
            if id(item) in seen:
                continue
            if type(item) in (list, tuple) or isinstance(item, (dict, Unknown)):
                seen.add(id(item))
            if type(item) is list:
                item[:] = [self._final(part) for part in item]
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

    def _final(self, part: Any) -> Any:
        if isinstance(part, _Array):
            return part.value
        if isinstance(part, _Storage):
            return self.tensor(part, 0, (part.count,), (1,))
        if isinstance(part, _Kind):
            return dtype_called(part.name) or part.name
        if isinstance(part, Global):
            return Unknown(part.name) if part.name not in self.table else part.name
        if type(part) is tuple:
            return self._final_tuple(part, 0)
        return part

    def _final_tuple(self, items: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
        """A tuple is made anew if something inside is; each once, however often it is held."""
        found = self._tuples.get(id(items))
        if found is None:
            if depth > _MAX_DEPTH:
                raise PickleError(f"tuples {_MAX_DEPTH} deep in each other")
            parts = [
                self._final_tuple(item, depth + 1) if type(item) is tuple else self._final(item)
                for item in items
            ]
            is_same = all(new is old for new, old in zip(parts, items, strict=True))
            # Both are kept, so that no other tuple takes the number of this one.
            found = self._tuples[id(items)] = (items, items if is_same else tuple(parts))
            self._tuples.setdefault(id(found[1]), (found[1], found[1]))
        return found[1]

    # constructors

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> Any:
        _check_bits(more[2:])
        if not isinstance(storage, _Storage):
            raise PickleError(f"a tensor without a storage: {type(storage).__name__}")
        return self._view(storage, storage.kind, offset, size, stride)

    def tensor_of_kind(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, kind: Any,
        *more: Any,
    ) -> Any:  # fmt: skip
        _check_bits(more)
        if not isinstance(storage, _Storage) or not isinstance(kind, _Kind):
            raise PickleError("a tensor without a storage or a dtype")
        return self._view(storage, kind, offset, size, stride)

    def parameter(self, data: Any, *unused: Any) -> Any:
        if not isinstance(data, Tensor):
            raise PickleError(f"a parameter of a {type(data).__name__}")
        return data

    def subclass(self, maker: Any, kind: Any, arguments: Any, state: Any) -> Any:
        """A tensor with attributes, which are left out, or of a subclass, which is refused."""
        if not isinstance(maker, Global) or maker.name not in self.table:
            raise PickleError("a tensor made in an unknown way")
        if not isinstance(kind, Global) or type(arguments) is not tuple:
            raise PickleError("a tensor of an unknown class")
        return maker.make(*arguments)

    def _view(self, storage: _Storage, kind: _Kind, offset: Any, size: Any, stride: Any) -> Tensor:
        """The tensor of `size` whose element i lies `offset` + i * `stride` elements inside."""
        if kind.name == _BYTES:
            kind = _Kind("uint8")
        if not is_sizes(size) or not is_sizes(stride) or len(size) != len(stride):
            raise PickleError(f"a tensor of sizes {size!r:.60} and strides {stride!r:.60}")
        if type(offset) is not int or offset < 0:
            raise PickleError(f"a tensor at offset {offset!r:.40}")
        dtype = dtype_called(kind.name)
        if dtype is None:
            raise PickleError(
                f"a {kind.name} tensor; the dtypes of tensors are "
                + ", ".join(known.name for known in dtypes.all)
            )
        size, stride = tuple(size), tuple(stride)
        span = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if 0 not in size else 0
        needed = (offset + span) * kind.itemsize
        held = storage.count * storage.kind.itemsize
        if span and needed > held:
            raise PickleError(
                f"a tensor of sizes {size} that needs {needed} bytes of a storage of {held}"
            )
        if not span or self.is_blind:
            return Tensor.full(size, 0, device=self.device, dtype=dtype)
        assert storage.data is not None
        begin = offset * kind.itemsize
        data = storage.data[begin : begin + span * kind.itemsize]
        found: Tensor = strided(
            lambda shape: self._leaf(data, dtype, shape, begin, storage), size, stride, span
        )
        return found

    def _leaf(
        self, data: memoryview, dtype: DType, shape: tuple[int, ...], begin: int, storage: _Storage
    ) -> Tensor:
        """The tensor over these bytes, one and the same for all who ask for them."""
        key = (id(storage.data), dtype.name, begin, shape)
        found = self._leaves.get(key)
        if found is None:
            found = self._leaves[key] = tensor_over(data, dtype, shape, self.device)
            return found
        return Tensor._of(found.uop, found.device)._wanting(None)


# the three formats


class _Zip:
    """The zip format."""

    def __init__(self, file: str, data: memoryview, values: _Values):
        self.file = file
        self.archive = Archive(_READER, file, data)
        self.values = values
        self._storages: dict[str, _Storage] = {}
        names = [name for name in self.archive.members if name.split("/")[1:] == ["data.pkl"]]
        if len(names) != 1:
            what = "an archive without PyTorch's data"
            expected = "one member NAME/data.pkl"
            raise damaged(_READER, file, what, expected, ", ".join(names) or "none")
        self.pickle = names[0]
        self.folder = names[0].removesuffix("data.pkl")

    def value(self) -> Any:
        order = self.folder + "byteorder"
        if order in self.archive.members and bytes(self.archive.bytes_of(order)) != b"little":
            got = bytes(self.archive.bytes_of(order)[:8])
            raise damaged(_READER, self.file, "the file's byte order is not little", "little", got)
        return self.values.read(self.archive.bytes_of(self.pickle), self.storage)[0]

    def storage(self, given: Any) -> _Storage:
        kind, key, count, _ = _storage_id(given)
        found = self._storages.get(key)
        if found is None:
            name = f"{self.folder}data/{key}"
            if name not in self.archive.members:
                raise damaged(
                    _READER, self.file, "a storage is missing", repr(name)[:80], "nothing"
                )
            data = self.archive.bytes_of(name)
            found = _Storage(kind, count, data)
            if data.nbytes != count * kind.itemsize:
                expected = f"{count * kind.itemsize} bytes for {count} of {kind.name}"
                got = f"{data.nbytes} bytes"
                raise damaged(_READER, self.file, "a storage has another size", expected, got)
            self._storages[key] = found
        if found.kind != kind or found.count != count:
            raise PickleError(f"storage {key!r:.40} with two dtypes or sizes")
        return found


def _storage_id(given: Any) -> tuple[_Kind, str, int, Any]:
    """(dtype, key, elements, the view if it is one) of a persistent id."""
    if type(given) is not tuple or len(given) not in (5, 6) or type(given[0]) is not str:
        raise PickleError("a persistent id that is no storage")
    if given[0] != "storage":
        raise PickleError(f"a persistent id of kind {given[0]!r:.40}, known is 'storage'")
    kind, key, _, count = given[1:5]
    if not isinstance(kind, _Kind) or type(key) is not str or type(count) is not int or count < 0:
        raise PickleError("a storage without a type, a name or a size")
    return kind, key, count, given[5] if len(given) == 6 else None


def _legacy(file: str, data: memoryview, device: str | None, keep_unknown: bool) -> Any:
    """The legacy format: magic number, version, system, the value, the names of the storages, and
    for each its number of elements and its bytes.
    """

    def refuse(given: Any) -> Any:
        raise PickleError("a persistent id in the head of the file")

    try:
        magic, at = read_pickle(data, {}, None)
        if type(magic) is not int or magic != _MAGIC:
            raise PickleError("another magic number")
    except PickleError as error:
        what = "not a PyTorch file"
        raise damaged(
            _READER, file, what, "a zip, a tar or PyTorch's number first", error
        ) from error
    version, at = read_pickle(data, {}, refuse, at)
    if type(version) is not int or version != _PROTOCOL:
        raise damaged(_READER, file, "unknown version of the format", _PROTOCOL, _short(version))
    system, at = read_pickle(data, {}, refuse, at)
    if type(system) is not dict or system.get("little_endian") is not True:
        got = _short(system.get("little_endian") if type(system) is dict else system)
        raise damaged(
            _READER, file, "the file's byte order is not little", "little_endian: True", got
        )
    start = at
    found: dict[str, _Storage] = {}

    def seen(given: Any) -> _Storage:
        kind, key, count, view = _storage_id(given)
        known = found.setdefault(key, _Storage(kind, count, None))
        if known.kind != kind or known.count != count:
            raise PickleError(f"storage {key!r:.40} with two dtypes or sizes")
        return _part(known, view)

    _, at = _Values(device, keep_unknown, is_blind=True).read(data, seen, start)
    keys, at = read_pickle(data, {}, refuse, at)
    if type(keys) is not list or any(type(key) is not str or key not in found for key in keys):
        what = "the list of storages is damaged"
        raise damaged(_READER, file, what, "the names of storages", _short(keys))
    if len(set(keys)) != len(keys) or len(keys) != len(found):
        raise damaged(_READER, file, "storages are missing", f"{len(found)} names", f"{len(keys)}")
    for key in keys:
        at = _fill(file, data, found[key], at)
    return _Values(device, keep_unknown).read(data, seen, start)[0]


def _part(storage: _Storage, view: Any) -> _Storage:
    """The window of a storage that the last item of its id asks for."""
    if view is None:
        return storage
    if type(view) is not tuple or len(view) != 3 or any(type(part) is not int for part in view[1:]):
        raise PickleError("a view of a storage that is no name, offset and size")
    _, offset, count = view
    if offset < 0 or count < 0 or offset + count > storage.count:
        raise PickleError(f"a view of {count} elements at {offset} of a storage of {storage.count}")
    size = storage.kind.itemsize
    data = storage.data
    part = None if data is None else data[offset * size : (offset + count) * size]
    return _Storage(storage.kind, count, part)


def _fill(file: str, data: memoryview, storage: _Storage, at: int) -> int:
    """Give `storage` its bytes, which begin with their number at byte `at`; where they end."""
    needed = storage.count * storage.kind.itemsize
    if at + 8 + needed > data.nbytes:
        expected = f"{at + 8 + needed} bytes or more"
        raise damaged(_READER, file, "the file is truncated", expected, f"{data.nbytes} bytes")
    (count,) = struct.unpack("<q", data[at : at + 8])
    if count != storage.count:
        expected = f"{storage.count} elements"
        raise damaged(_READER, file, "a storage has another size", expected, count)
    storage.data = data[at + 8 : at + 8 + needed]
    return at + 8 + needed


def _tar(file: str, data: memoryview, values: _Values) -> Any:
    """The tar format of the first versions; its members are read, never written to disk."""
    members = _tar_members(file, data)
    storages = _tar_storages(file, members["storages"])
    objects: dict[str, Any] = {}

    def known(given: Any) -> Any:
        if type(given) is tuple and given:
            # A container with its source text; the value is what counts.
            return given[0]
        if type(given) not in (str, int) or str(given) not in objects:
            raise PickleError("a tensor or storage that the file does not hold")
        return objects[str(given)]

    part = members["tensors"]
    names = _PLAIN | {f"torch.{name.removesuffix('Storage')}Tensor": name for name in _STORAGES}
    count, at = read_pickle(part, names)
    for _ in range(_count(file, count, part)):
        entry, at = read_pickle(part, names, None, at)
        if type(entry) is not tuple or len(entry) != 3:
            raise PickleError("a tensor that is not three values")
        key, owner, _ = entry
        storage = storages.get(_name(owner))
        head = bytes(part[at : at + 8])
        if storage is None or len(head) < 8:
            raise PickleError("a tensor without its storage")
        (axes,) = struct.unpack("<i", head[:4])
        if not 0 <= axes <= 32 or at + 16 + 16 * axes > part.nbytes:
            raise PickleError(f"a tensor with {axes} axes, or truncated")
        numbers = struct.unpack(f"<{2 * axes + 1}q", part[at + 8 : at + 16 + 16 * axes])
        at += 16 + 16 * axes
        objects[_name(key)] = values.tensor(
            storage, numbers[-1], numbers[:axes], numbers[axes : 2 * axes]
        )
    objects = {**storages, **objects}
    return values.read(members["pickle"], known)[0]


def _tar_members(file: str, data: memoryview) -> dict[str, memoryview]:
    wanted = ("storages", "tensors", "pickle")
    members = tar_members(_READER, file, data)
    found = {name: members[name] for name in wanted if name in members}
    if len(found) != len(wanted):
        got = ", ".join(found) or "none"
        raise damaged(_READER, file, "a tar without PyTorch's data", ", ".join(wanted), got)
    return found


def _tar_storages(file: str, part: memoryview) -> dict[str, _Storage]:
    """The storages of the tar format by name, with the views of them."""
    storages: dict[str, _Storage] = {}
    count, at = read_pickle(part, _PLAIN)
    for _ in range(_count(file, count, part)):
        entry, at = read_pickle(part, _PLAIN, None, at)
        if type(entry) is not tuple or len(entry) != 3 or not isinstance(entry[2], _Kind):
            raise PickleError("a storage that is not a name, a place and a type")
        if at + 8 > part.nbytes:
            raise damaged(_READER, file, "the file is truncated", at + 8, f"{part.nbytes} bytes")
        (number,) = struct.unpack("<q", part[at : at + 8])
        if number < 0:
            raise PickleError(f"a storage of {number} elements")
        storage = storages[_name(entry[0])] = _Storage(entry[2], number, None)
        at = _fill(file, part, storage, at)
    views, _ = read_pickle(part, _PLAIN, None, at)
    for view in _members(views):
        if type(view) is not tuple or len(view) != 4 or _name(view[1]) not in storages:
            raise PickleError("a view of a storage that is not there")
        target, owner, offset, number = view
        storages[_name(target)] = _part(storages[_name(owner)], (None, offset, number))
    return storages


def _count(file: str, count: Any, part: memoryview) -> int:
    if type(count) is not int or not 0 <= count <= part.nbytes:
        raise damaged(_READER, file, "a number of items that cannot be", "a count", _short(count))
    return count


def _name(key: Any) -> str:
    if type(key) not in (str, int):
        raise PickleError(f"a {type(key).__name__} as a name")
    return str(key)


def _short(value: Any) -> str:
    """A value for a message, whatever it is: texts and numbers as they are, else the kind."""
    plain = type(value) in (str, int, float, bool, type(None))
    return f"{value!r:.60}" if plain else type(value).__name__
