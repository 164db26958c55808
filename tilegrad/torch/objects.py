"""Files of whole objects: modules, and whatever Python can pickle, with their tensors beside them.

Such a file holds names of classes and functions, which reading it imports and calls. So
`torch.load` reads one only where a program says `weights_only=False`.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DataError
from tilegrad.tensor.handle.sizes import here
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.tensor import as_ours

__all__ = ["MEMBER", "RefusedObjects", "pickled", "unpickled"]

MEMBER = "archive/objects.pkl"
"""The member of the archive that holds the pickle; bytes of tensors are `archive/data/<number>`."""


class RefusedObjects(DataError, pickle.UnpicklingError):
    """A file of objects that is to be read as one of plain data."""


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=4)
        self.tensors: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """What stands for a tensor: its number, and what its bytes do not say."""
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
        raise DataError(f"torch.save: {error}", line=here()) from error
    return file.getvalue(), pickler.tensors


class _Unpickler(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, device: str | None):
        super().__init__(io.BytesIO(archive.read(MEMBER)))
        self._archive, self._device = archive, device
        self._tensors: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        """The tensor that a number stands for."""
        number, dtype, sizes, wanted, is_parameter = pid
        if number not in self._tensors:
            data = self._archive.read(f"archive/data/{number}")
            kind = dtypes.from_name(dtype)
            made = as_ours(OurTensor.from_blob(data, sizes, dtype=kind).clone())
            made = made if self._device is None else made.to(self._device)
            made._is_leaf, made._is_parameter = True, is_parameter
            made.requires_grad = wanted
            self._tensors[number] = made
        return self._tensors[number]


def unpickled(archive: zipfile.ZipFile, device: str | None) -> Any:
    """The object of an archive, whose classes are imported and made.

    Raises DataError where a class is absent.
    """
    try:
        return _Unpickler(archive, device).load()
    except (pickle.UnpicklingError, AttributeError, ImportError) as error:
        raise DataError(f"torch.load: {error}", line=here()) from error
