"""Writing PyTorch's three formats by hand: pickles assembled from instructions, storages as bytes.

What is written here need not be right: that is what the tests want.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"int": 4}}


class Code(bytes):
    """Instructions, to stand where a value does."""


def put(value: Any) -> bytes:
    """The instructions that make `value`."""
    if isinstance(value, Code):
        return bytes(value)
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return b"B" + struct.pack("<I", len(value)) + value
    if isinstance(value, tuple):
        return b"(" + b"".join(map(put, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(put, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(put(part) for item in value.items() for part in item) + b"u"
    raise TypeError(value)


def pickled(value: Any) -> bytes:
    return b"\x80\x02" + put(value) + b"."


def named(full: str) -> Code:
    module, _, name = full.rpartition(".")
    return Code(f"c{module}\n{name}\n".encode())


def call(full: str, *arguments: Any) -> Code:
    return Code(named(full) + put(arguments) + b"R")


def storage(kind: str, key: str, count: int, *view: Any) -> Code:
    """A persistent id; for the legacy format `view` is None or (name, offset, size)."""
    return Code(put(("storage", named(f"torch.{kind}"), key, "cpu", count, *view)) + b"Q")


def tensor(
    where: Code, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, **other: Any
) -> Code:
    hooks = call("collections.OrderedDict")
    return call("torch._utils._rebuild_tensor_v2", where, offset, size, stride, False, hooks)


def parameter(data: Code) -> Code:
    hooks = call("collections.OrderedDict")
    return call("torch._utils._rebuild_parameter", data, True, hooks)


def zipped(
    value: Any, storages: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, **more: bytes
) -> bytes:
    """The zip format; `more` are members by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(
            "m/data.pkl",
            value if isinstance(value, bytes) and not isinstance(value, Code) else pickled(value),
        )
        for key, raw in storages.items():
            archive.writestr(f"m/data/{key}", raw)
        for name, raw in {"version": b"3\n", **more}.items():
            archive.writestr(f"m/{name}", raw)
    return out.getvalue()


def legacy(
    value: Any, storages: Mapping[str, tuple[int, bytes]], system: Any = SYSTEM, magic: int = MAGIC
) -> bytes:
    """The legacy format; a storage is its number of elements and its bytes."""
    head = b"".join(pickled(part) for part in (magic, PROTOCOL, system, value, list(storages)))
    return head + b"".join(struct.pack("<q", count) + raw for count, raw in storages.values())


def tarred(
    value: Any,
    storages: Mapping[int, tuple[str, int, bytes]],
    tensors: Mapping[int, tuple[int, tuple[int, ...], tuple[int, ...], int]],
    views: Any = (),
) -> bytes:
    """The tar format; a storage is its type, number of elements and bytes, a tensor its storage,
    sizes, strides and offset.
    """
    parts = {"storages": pickled(len(storages)), "tensors": pickled(len(tensors))}
    for key, (kind, count, raw) in storages.items():
        parts["storages"] += pickled((key, "cpu", named(f"torch.{kind}")))
        parts["storages"] += struct.pack("<q", count) + raw
    parts["storages"] += pickled(list(views))
    for key, (owner, size, stride, offset) in tensors.items():
        parts["tensors"] += pickled((key, owner, named("torch.FloatTensor")))
        parts["tensors"] += struct.pack("<ii", len(size), 0)
        parts["tensors"] += struct.pack(f"<{2 * len(size) + 1}q", *size, *stride, offset)
    parts["pickle"] = pickled(value)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, raw in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return out.getvalue()
