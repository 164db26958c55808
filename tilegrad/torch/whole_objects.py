"""Files of whole objects: modules, and whatever Python can pickle, with their tensors beside them.

Such a file holds names of classes and functions, which reading it imports and calls. So
`torch.load` reads one only where a program says `weights_only=False`.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DataError
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.shared_storages import Layout, Storages
from tilegrad.torch.tensor import as_ours

__all__ = [
    "LAYOUTS",
    "MEMBER",
    "RefusedObjects",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "pickled",
    "safe_globals",
    "unpickled",
]  # fmt: skip

MEMBER = "archive/objects.pkl"
"""The member of the archive that holds the pickle; storages are `archive/data/<number>`."""
LAYOUTS = "archive/layouts.json"
"""The member that says for each tensor of the pickle, by its number, where it is in which storage:
a `Layout`. Older files lack it: there, each tensor is a storage.
"""


class RefusedObjects(DataError, pickle.UnpicklingError):
    """A file of objects that is to be read as one of plain data."""


# Classes and functions that a program lets files of objects name, without `weights_only=False`.
_safe: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files name these classes and functions, whatever else they need is refused; one that is
    written otherwise there is given as a pair with its name.
    """
    _safe.extend(each for each in safe_globals if each not in _safe)


def get_safe_globals() -> list[Any]:
    """The classes and functions that files may name."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Let files name none."""
    _safe.clear()


class safe_globals:  # a name of PyTorch
    """A block in which files may name these classes and functions, too."""

    def __init__(self, safe_globals: list[Any]):
        self._given = safe_globals

    def __enter__(self) -> None:
        self._before = list(_safe)
        add_safe_globals(self._given)

    def __exit__(self, *error: object) -> None:
        _safe[:] = self._before


def _by_name() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {("collections", "OrderedDict"): OrderedDict}
    for each in _safe:
        if isinstance(each, tuple):
            module, _, name = each[1].rpartition(".")
            found[module, name] = each[0]
        else:
            found[each.__module__, each.__qualname__] = each
    return found


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=4)
        self.tensors: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """Stands for a tensor: its number, and the facts that its bytes do not say."""
        if not isinstance(obj, OurTensor):
            return None
        number = self._numbers.setdefault(id(obj), len(self._numbers))
        if number == len(self.tensors):
            self.tensors.append(obj)
        is_parameter = bool(obj.__dict__.get("_is_parameter", False))
        wanted = bool(obj.requires_grad) and obj.is_leaf
        return number, obj.dtype.name, tuple(obj._sizes), wanted, is_parameter


def pickled(obj: Any) -> tuple[bytes, list[Any]]:
    """The pickle of an object, and the tensors that it names.

    Raises DataError for what cannot be pickled.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError(f"torch.save: {error}") from error
    return file.getvalue(), pickler.tensors


class _Unpickler(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, device: str | None, is_trusted: bool):
        super().__init__(io.BytesIO(archive.read(MEMBER)))
        self._allowed = None if is_trusted else _by_name()
        self._archive, self._device = archive, device
        self._tensors: dict[int, Any] = {}
        listed = json.loads(archive.read(LAYOUTS)) if LAYOUTS in archive.namelist() else []
        self._layouts = [Layout(*each) for each in listed]
        self._storages = Storages(layout.storage for layout in self._layouts)

    def find_class(self, module_name: str, global_name: str) -> Any:
        """A class or function that the file names.

        Raises RefusedObjects for one that no program has let through.
        """
        if self._allowed is None:
            return super().find_class(module_name, global_name)
        found = self._allowed.get((module_name, global_name))
        if found is None:
            raise RefusedObjects(
                f"torch.load: the file holds more than tensors and plain data: "
                f"{module_name}.{global_name}, and reading it runs what it says",
                remedy="weights_only=False, for a file that you trust, or "
                f"torch.serialization.add_safe_globals([{global_name}])",
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        """The tensor that a number stands for."""
        number, dtype, sizes, wanted, is_parameter = pid
        if number not in self._tensors:
            kind = dtypes.from_name(dtype)
            layout = self._layouts[number] if self._layouts else Layout(number, 0, 0, ())
            storage = layout.storage
            if self._storages.is_shared(storage):
                read = partial(self._read, storage, kind, (layout.length,))
                made = self._storages.view(storage, read, sizes, layout.strides, layout.offset)
            else:
                made = self._read(storage, kind, sizes)
            made._is_leaf, made._is_parameter = True, is_parameter
            made.requires_grad = wanted
            self._tensors[number] = made
        return self._tensors[number]

    def _read(self, storage: int, dtype: DType, sizes: Sequence[int]) -> Any:
        data = self._archive.read(f"archive/data/{storage}")
        made = as_ours(OurTensor.from_blob(data, sizes, dtype=dtype).clone())
        return made if self._device is None else made.to(self._device)


def unpickled(archive: zipfile.ZipFile, device: str | None, is_trusted: bool) -> Any:
    """The object of an archive, whose classes are imported and made; unless it is trusted, only
    those that a program lets through.

    Raises DataError where a class is absent, RefusedObjects for one that is not let through.
    """
    try:
        return _Unpickler(archive, device, is_trusted).load()
    except RefusedObjects:
        raise
    except (pickle.UnpicklingError, AttributeError, ImportError) as error:
        raise DataError(f"torch.load: {error}") from error
