"""Reading PyTorch's files, without PyTorch and without running anything in them.

Three formats exist. The zip of today has a pickle (`data.pkl`) and a stored member for each storage
(`data/0`, ...). The legacy file is five pickles one after another, then the storages. The tar of
the first versions has storages, tensors and a pickle as members. All three speak of a tensor as a
storage, an offset, sizes and strides, and name constructors that PyTorch would call; here
`io.pickled` makes plain values of them, and only of those that `io.torch_values` lists.

A storage is a slice of the mapped file, and a tensor a view of it: two tensors that share a
storage share its bytes, and nothing is read before it is used.
"""

from __future__ import annotations

import struct
from typing import Any

from tilegrad.io.archive import Archive, is_archive, tar_members
from tilegrad.io.mapped import Source, damaged, source_of
from tilegrad.io.pickled import PickleError, read_pickle
from tilegrad.io.torch_values import (
    PLAIN,
    STORAGES,
    Kind,
    Marks,
    Storage,
    Values,
    items_of,
    storage_id,
    view_of,
)

__all__ = ["torch_load"]

_READER = "torch_load"
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


def torch_load(
    path: Source,
    device: str | None = None,
    keep_unknown: bool = False,
    marks: Marks | None = None,
) -> Any:
    """Read what `torch.save` wrote: its tensors as tensors on `device`.

    All of PyTorch's formats are read: zip, legacy and tar; dicts, lists, tuples, sets, numbers,
    texts, NumPy arrays and numbers, parameters (as their tensors) and shared storages. The file is
    mapped and read as its values are needed.

    Nothing in it is run: a file that wants a class or a function beyond plain data is refused, and
    the message names it. With `keep_unknown`, an `Unknown` stands there instead, which holds the
    name and all that was given to it, tensors too: so the weights of a whole model that was saved,
    or of a file with the settings of some program, can be had without that program.

    Args:
        path: a path, a file, bytes, or a uint8 tensor.
        device: name of the device, by default `Device.DEFAULT`.
        keep_unknown: put an `Unknown` where something is refused.
        marks: takes, by `id`, the tensors that were saved as requiring a gradient, and whether as
            parameters (tensors that are read require none), and those that are complex numbers.

    Returns the object that was saved; tensors have their shapes and dtypes, but for complex
    numbers, which are pairs of floats along a last axis.

    Raises DataError if the file is absent, damaged, written by a big-endian machine, wants a name
    that is no data, or holds a dtype that tensors do not have.

    >>> torch_load("weights.pth")["weight"].shape
    (3, 4)
    """
    file, data = source_of(_READER, path)
    try:
        if is_archive(data):
            return _Zip(file, data, Values(device, keep_unknown, marks=marks)).value()
        if _is_tar(data):
            return _tar(file, data, Values(device, keep_unknown, marks=marks))
        return _legacy(file, data, device, keep_unknown, marks)
    except PickleError as error:
        what = "the file is not plain data, or damaged"
        raise damaged(_READER, file, what, "a pickle of data", error) from error


def _is_tar(data: memoryview) -> bool:
    return bytes(data[257:262]) == b"ustar"


class _Zip:
    """The zip format."""

    def __init__(self, file: str, data: memoryview, values: Values):
        self.file = file
        self.archive = Archive(_READER, file, data)
        self.values = values
        self._storages: dict[str, Storage] = {}
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

    def storage(self, given: Any) -> Storage:
        kind, key, count, _ = storage_id(given)
        found = self._storages.get(key)
        if found is None:
            name = f"{self.folder}data/{key}"
            if name not in self.archive.members:
                raise damaged(
                    _READER, self.file, "a storage is missing", repr(name)[:80], "nothing"
                )
            data = self.archive.bytes_of(name)
            found = Storage(kind, count, data)
            if data.nbytes != count * kind.itemsize:
                expected = f"{count * kind.itemsize} bytes for {count} of {kind.name}"
                got = f"{data.nbytes} bytes"
                raise damaged(_READER, self.file, "a storage has another size", expected, got)
            self._storages[key] = found
        if found.kind != kind or found.count != count:
            raise PickleError(f"storage {key!r:.40} with two dtypes or sizes")
        return found


def _legacy(
    file: str,
    data: memoryview,
    device: str | None,
    keep_unknown: bool,
    marks: Marks | None = None,
) -> Any:
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
    found: dict[str, Storage] = {}

    def seen(given: Any) -> Storage:
        kind, key, count, view = storage_id(given)
        known = found.setdefault(key, Storage(kind, count, None))
        if known.kind != kind or known.count != count:
            raise PickleError(f"storage {key!r:.40} with two dtypes or sizes")
        return view_of(known, view)

    _, at = Values(device, keep_unknown, is_blind=True).read(data, seen, start)
    keys, at = read_pickle(data, {}, refuse, at)
    if type(keys) is not list or any(type(key) is not str or key not in found for key in keys):
        what = "the list of storages is damaged"
        raise damaged(_READER, file, what, "the names of storages", _short(keys))
    if len(set(keys)) != len(keys) or len(keys) != len(found):
        raise damaged(_READER, file, "storages are missing", f"{len(found)} names", f"{len(keys)}")
    for key in keys:
        at = _fill(file, data, found[key], at)
    return Values(device, keep_unknown, marks=marks).read(data, seen, start)[0]


def _fill(file: str, data: memoryview, storage: Storage, at: int) -> int:
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


def _tar(file: str, data: memoryview, values: Values) -> Any:
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

    content = members["tensors"]
    names = PLAIN | {f"torch.{name.removesuffix('Storage')}Tensor": name for name in STORAGES}
    count, at = read_pickle(content, names)
    for _ in range(_count(file, count, content)):
        entry, at = read_pickle(content, names, None, at)
        if type(entry) is not tuple or len(entry) != 3:
            raise PickleError("a tensor that is not three values")
        key, owner, _ = entry
        storage = storages.get(_name(owner))
        head = bytes(content[at : at + 8])
        if storage is None or len(head) < 8:
            raise PickleError("a tensor without its storage")
        (axes,) = struct.unpack("<i", head[:4])
        if not 0 <= axes <= 32 or at + 16 + 16 * axes > content.nbytes:
            raise PickleError(f"a tensor with {axes} axes, or truncated")
        numbers = struct.unpack(f"<{2 * axes + 1}q", content[at + 8 : at + 16 + 16 * axes])
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


def _tar_storages(file: str, content: memoryview) -> dict[str, Storage]:
    """The storages of the tar format by name, with the views of them."""
    storages: dict[str, Storage] = {}
    count, at = read_pickle(content, PLAIN)
    for _ in range(_count(file, count, content)):
        entry, at = read_pickle(content, PLAIN, None, at)
        if type(entry) is not tuple or len(entry) != 3 or not isinstance(entry[2], Kind):
            raise PickleError("a storage that is not a name, a place and a type")
        if at + 8 > content.nbytes:
            raise damaged(_READER, file, "the file is truncated", at + 8, f"{content.nbytes} bytes")
        (number,) = struct.unpack("<q", content[at : at + 8])
        if number < 0:
            raise PickleError(f"a storage of {number} elements")
        storage = storages[_name(entry[0])] = Storage(entry[2], number, None)
        at = _fill(file, content, storage, at)
    views, _ = read_pickle(content, PLAIN, None, at)
    for view in items_of(views):
        if type(view) is not tuple or len(view) != 4 or _name(view[1]) not in storages:
            raise PickleError("a view of a storage that is not there")
        target, owner, offset, number = view
        storages[_name(target)] = view_of(storages[_name(owner)], (None, offset, number))
    return storages


def _count(file: str, count: Any, content: memoryview) -> int:
    if type(count) is not int or not 0 <= count <= content.nbytes:
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
