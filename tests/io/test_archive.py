"""Archives: members as bytes, and loaders that read from memory."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.io.damage import damaged, refused_or_whole
from tests.io.torch_files import storage, tensor, zipped
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DataError, DTypeError
from tilegrad.io import (
    TensorIO,
    npy_load,
    npy_save,
    npz_load,
    npz_save,
    safe_load,
    safe_load_metadata,
    safe_save,
    tar_extract,
    torch_load,
    zip_extract,
)


def tarred(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_members_of_a_zip(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
            archive.writestr("folder/", b"")
            archive.writestr("folder/β.txt", b"hello")
            archive.writestr("empty", b"")
        found = zip_extract(tmp_path / "a.zip")
        assert list(found) == ["folder/β.txt", "empty"]
        assert (found["empty"].shape, found["empty"].dtype) == ((0,), dtypes.uint8)
        assert bytes(found["folder/β.txt"].data()) == b"hello"


def test_members_of_a_tar(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tarred(a=b"hello", b=b"", **{"n" * 150: b"long"}))
    found = tar_extract(tmp_path / "a.tar")
    assert {name: bytes(part.data()) for name, part in found.items()} == {
        "a": b"hello",
        "b": b"",
        "n" * 150: b"long",
    }
    with pytest.raises(DataError, match="tar_extract: the tar is damaged"):
        tar_extract(b"no tar at all" * 100)


def test_links_out_of_a_tar_are_no_files() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("passwords")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    assert tar_extract(out.getvalue()) == {}


def test_headers_of_headers_end() -> None:
    """Each long name is a header for the next; Python's reader calls itself for each."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    block = info.tobuf() + b"x".ljust(512, b"\0")
    with pytest.raises(DataError, match="the tar is damaged"):
        tar_extract(block * 3000)


GOOD = tarred(a=b"hello", b=b"x" * 600).rstrip(b"\0")


@given(content=damaged(GOOD))
def test_any_damage_to_a_tar_is_a_data_error(content: bytes) -> None:
    refused_or_whole(lambda: tar_extract(content))


def test_a_tensor_as_a_file() -> None:
    found = TensorIO(Tensor(b"hello, world"))
    assert (found.read(5), found.tell(), found.seek(-5, 2), found.read()) == (
        b"hello",
        5,
        7,
        b"world",
    )
    assert (found.seek(1), found.seek(1, 1), found.read(2), found.seek(99)) == (1, 2, b"ll", 99)
    assert found.read(3) == b""
    with pytest.raises(ValueError, match="no place -1 from 0"):
        found.seek(-1)
    with pytest.raises(DTypeError, match="one axis of uint8 is needed"):
        TensorIO(Tensor([1, 2]))
    content = tarred(a=b"hello")
    with tarfile.open(fileobj=io.BufferedReader(TensorIO(Tensor(content)))) as tar:
        assert tar.getnames() == ["a"]


def test_loaders_read_from_memory(tmp_path: Path) -> None:
    """From bytes, from a tensor that holds them, and from a file as a tensor."""
    values = Tensor([1.0, 2.0])
    safe_save({"w": values}, tmp_path / "safe", {"k": "v"})
    npy_save(values, tmp_path / "npy")
    npz_save({"w": values}, tmp_path / "npz")
    where = storage("FloatStorage", "0", 2)
    raw = zipped({"w": tensor(where, (2,), (1,))}, {"0": np.float32([1, 2]).tobytes()})
    (tmp_path / "torch").write_bytes(raw)
    loaders: dict[str, Any] = {
        "safe": safe_load,
        "npy": lambda source: {"w": npy_load(source)},
        "npz": npz_load,
        "torch": torch_load,
    }
    for name, load in loaders.items():
        content = (tmp_path / name).read_bytes()
        for source in (content, bytearray(content), Tensor(content), Tensor(tmp_path / name)):
            found = load(source)
            assert found["w"].device == "CPU"
            assert found["w"].tolist() == [1, 2]
    assert safe_load_metadata(Tensor(tmp_path / "safe")) == {"k": "v"}
    with pytest.raises(DataError, match=r"read_safetensors: .*\n  file: +5 bytes"):
        safe_load(b"short")
