"""Checkpoints in several safetensors files, with an index that says which tensor is where.

The layout is the usual one: `model.safetensors.index.json` holds `weight_map`, a file name for each
tensor, and the files stand beside it as `model-00001-of-00003.safetensors`. The index is written
last: until then readers see the old checkpoint, and the files of a new one never take the names of
the old one's.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilegrad.base.errors import DataError
from tilegrad.io.atomic import atomic_write, not_written
from tilegrad.io.mapped import damaged, map_file
from tilegrad.io.safetensors import Entry, read_safetensors, write_safetensors

__all__ = ["INDEX", "read_shards", "write_shards"]

INDEX = ".index.json"
_READER = "read_shards"
_MAX_INDEX = 256 << 20
_SUFFIX = ".safetensors"


def read_shards(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """The tensors of all files that the index at `path` names, by name.

    Raises DataError if the index or a file is absent or damaged, names a file elsewhere, or a file
    lacks a tensor.
    """
    files_by_name = _file_of(path)
    folder = Path(path).parent
    every = dict.fromkeys(files_by_name.values())
    files = {file: read_safetensors(folder / file) for file in every}
    for name, file in files_by_name.items():
        if name not in files[file]:
            raise damaged(_READER, path, "a tensor is missing", f"{name!r} in {file}", "nothing")
    return {name: files[file][name] for name, file in files_by_name.items()}


def write_shards(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Entry],
    metadata: Mapping[str, str] | None,
    shard_bytes: int,
) -> None:
    """Write `tensors` to files of at most `shard_bytes` bytes of data each (a larger tensor has a
    file of its own), and their index to `path`, which ends in `.index.json`.

    Raises DataError if a file cannot be written; an older checkpoint is then as it was.
    """
    if not os.fspath(path).endswith(INDEX):
        raise DataError(
            "write_shards: this is no name of an index", file=os.fspath(path), expected=f"*{INDEX}"
        )
    folder = Path(path).parent
    stem = Path(path).name.removesuffix(INDEX).removesuffix(_SUFFIX)
    groups = _groups(tensors, shard_bytes)
    files = [f"{stem}-{at + 1:05d}-of-{len(groups):05d}{_SUFFIX}" for at in range(len(groups))]
    if any((folder / file).exists() for file in files):
        tag = secrets.token_hex(4)
        files = [file.replace(f"{stem}-", f"{stem}-{tag}-", 1) for file in files]
    old: set[str] = set()
    with suppress(DataError):
        old = set(_file_of(path).values())
    total = sum(entry.data.nbytes for entry in tensors.values())
    table = {name: file for file, group in zip(files, groups) for name in group}
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": table}, indent=2)
    try:
        for file, group in zip(files, groups):
            write_safetensors(folder / file, {name: tensors[name] for name in group}, metadata)
        try:
            with atomic_write(Path(path)) as opened:
                opened.write(text.encode())
        except OSError as error:
            raise not_written("write_shards", os.fspath(path), error, len(text)) from error
    except BaseException:
        # No shard is left without its index, whatever interrupts the writer.
        for file in files:
            with suppress(OSError):
                (folder / file).unlink()
        raise
    for file in old - set(files):
        with suppress(OSError):
            (folder / file).unlink()


def _groups(tensors: Mapping[str, Entry], shard_bytes: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    used = 0
    for name, entry in tensors.items():
        if groups[-1] and used + entry.data.nbytes > shard_bytes:
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += entry.data.nbytes
    return groups


def _file_of(path: str | os.PathLike[str]) -> dict[str, str]:
    """The file of each tensor, by name."""
    data = map_file(_READER, path)
    if data.nbytes > _MAX_INDEX:
        expected = f"at most {_MAX_INDEX} bytes"
        raise damaged(_READER, path, "the index is too long", expected, f"{data.nbytes} bytes")
    try:
        index: Any = json.loads(bytes(data).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(_READER, path, "the index is not JSON", "a JSON object", error) from error
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict):
        got = type(table).__name__
        raise damaged(_READER, path, "the index has no weight_map", "a file for each tensor", got)
    for name, file in table.items():
        is_name = isinstance(file, str) and Path(file).name == file and "\\" not in file
        if not is_name or not file.endswith(_SUFFIX) or "\0" in file:
            what = "the index names a file that is not beside it"
            raise damaged(_READER, path, what, f"NAME{_SUFFIX}", f"{file!r:.80}", tensor=repr(name))
    return table
