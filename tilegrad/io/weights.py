"""Tensors to safetensors files and back: one file, or several with an index.

Loaded tensors are views of the mapped files: nothing is read before it is used, and a device that
reaches the host's memory computes with the file's own pages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import DTypeError, article
from tilegrad.io.mapped import Source, dtype_called, source_of, tensor_over
from tilegrad.io.safetensors import (
    Entry,
    read_metadata,
    read_safetensors,
    storage_of,
    write_safetensors,
)
from tilegrad.io.shards import INDEX, read_shards, write_shards
from tilegrad.tensor.tensor import Tensor

__all__ = ["safe_load", "safe_load_metadata", "safe_save"]


def safe_save(
    tensors: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Write tensors to a safetensors file, which appears whole or not at all.

    With `shard_bytes`, `path` is an index, `model.safetensors.index.json`, and files of at most
    that size beside it hold the tensors; the index is written last.

    Args:
        tensors: tensors by name, of any shapes.
        path: the file, or with `shard_bytes` the index.
        metadata: texts to add.
        shard_bytes: most bytes of one file.

    Returns None.

    Raises DataError if it cannot be written (an older file is then as it was), DTypeError for what
    is no tensor or of a dtype that the format lacks.

    >>> safe_save({"weight": Tensor.ones(2, 3)}, "model.safetensors", {"made by": "hand"})
    """
    if not isinstance(tensors, Mapping):
        raise DTypeError(
            f"safe_save: cannot save {article(type(tensors).__name__)}",
            rule="a dict of names and tensors",
            remedy="pass nn.state.get_state_dict(model)",
        )
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise DTypeError(
                f"safe_save: {name!r} is {article(type(tensor).__name__)}, not a Tensor",
                remedy="pass nn.state.get_state_dict(model)",
            )
    if tensors:
        Tensor.realize(*tensors.values())
    entries = {name: _entry(tensor) for name, tensor in tensors.items()}
    if shard_bytes is None:
        write_safetensors(path, entries, metadata)
    else:
        write_shards(path, entries, metadata, shard_bytes)


def _entry(tensor: Tensor) -> Entry:
    """The tensor's bytes, as the array that the format's writer takes."""
    import numpy

    name, shape = tensor.dtype.name, tensor._bound_shape()
    storage = storage_of(name) or f"u{tensor.dtype.itemsize}"
    return Entry(name, shape, numpy.frombuffer(tensor.data().cast("B"), storage).reshape(shape))


def safe_load(path: Source, device: str | None = None) -> dict[str, Tensor]:
    """Tensors of a safetensors file by name. The files are mapped, and read as values are needed.

    Args:
        path: a path, a file, bytes, a uint8 tensor, or the index of a checkpoint in several files
            (`*.index.json`).
        device: name of the device, by default `Device.DEFAULT`.

    Returns a dict of tensors, in their shapes and dtypes.

    Raises DataError if a file is absent or damaged, DTypeError for a dtype that tensors do not
    have.

    >>> safe_save({"weight": Tensor.ones(2, 3)}, "model.safetensors")
    >>> safe_load("model.safetensors")["weight"].shape
    (2, 3)
    """
    if isinstance(path, (str, os.PathLike)):
        file = os.fspath(path)
        entries = read_shards(file) if file.endswith(INDEX) else read_safetensors(file)
    else:
        file, data = source_of("safe_load", path)
        entries = read_safetensors(data)
    unknown = [
        f"{name}: {entry.dtype_name}"
        for name, entry in entries.items()
        if dtype_called(entry.dtype_name) is None
    ]
    if unknown:
        shown = ", ".join(unknown[:8])
        raise DTypeError(
            "safe_load: the file holds dtypes that tensors do not have",
            file=file,
            tensors=shown if len(unknown) <= 8 else f"{shown}, and {len(unknown) - 8} more",
            known=", ".join(dtype.name for dtype in dtypes.all),
        )
    return {name: _tensor(entry, device) for name, entry in entries.items()}


def _tensor(entry: Entry, device: str | None) -> Tensor:
    dtype = dtype_called(entry.dtype_name)
    assert dtype is not None
    raw = entry.data.reshape(-1).view("u1").data
    return tensor_over(raw, dtype, entry.shape, device)


def safe_load_metadata(path: Source) -> dict[str, str]:
    """Texts that the writer of a safetensors file added to it.

    Args:
        path: a path, a file, bytes, or a uint8 tensor.

    Returns a dict of texts; the tensors are not read.

    Raises DataError if the file is damaged.

    >>> safe_save({"weight": Tensor.ones(2)}, "model.safetensors", {"made by": "hand"})
    >>> safe_load_metadata("model.safetensors")
    {'made by': 'hand'}
    """
    if isinstance(path, (str, os.PathLike)):
        return read_metadata(path)
    return read_metadata(source_of("safe_load_metadata", path)[1])
