"""NumPy's files: each side reads what the other writes, and no text is evaluated."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.io.damage import damaged, refused_or_whole
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DataError, DTypeError
from tilegrad.io import npy_load, npy_save, npz_load, npz_save
from tilegrad.io.numpy_files import _CODES

CODES = list(_CODES)


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    found: dict[str, Any] = {code: rng.integers(0, 2, (2, 3)).astype(code) for code in CODES}
    grid = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return found | {
        "none": np.zeros((0, 3)),
        "number": np.float32(2.5),
        "columns": np.asfortranarray(grid),
        "big": np.arange(5, dtype=">i4"),
        "turned": grid.transpose(1, 2, 0),
        "strided": grid[::-1, :, ::2],
    }


@pytest.mark.parametrize("compressed", [False, True])
def test_what_numpy_writes(tmp_path: Path, compressed: bool) -> None:
    given = arrays()
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", **given)
    found = npz_load(tmp_path / "a.npz")
    assert list(found) == list(given)
    for name, array in given.items():
        assert found[name].shape == array.shape
        assert found[name].dtype.name == array.dtype.name
        assert np.array_equal(found[name].numpy(), array), name


@pytest.mark.parametrize("compressed", [False, True])
def test_what_numpy_reads(tmp_path: Path, compressed: bool) -> None:
    given = {f"layer.{name}": array for name, array in arrays().items()}
    tensors = {name: Tensor(array) for name, array in given.items()}
    npz_save(tensors, tmp_path / "a.npz", compressed)
    with np.load(tmp_path / "a.npz") as found:
        assert list(found) == list(given)
        for name, array in given.items():
            assert found[name].dtype.name == array.dtype.name
            assert found[name].shape == array.shape
            assert np.array_equal(found[name], array), name
    again = npz_load(tmp_path / "a.npz")
    assert all(np.array_equal(again[name].numpy(), array) for name, array in given.items())


def test_arrays_alone(tmp_path: Path) -> None:
    for name, array in arrays().items():
        np.save(tmp_path / "a.npy", array)
        assert np.array_equal(npy_load(tmp_path / "a.npy").numpy(), array), name
        npy_save(Tensor(array), tmp_path / "b.npy")
        assert np.array_equal(np.load(tmp_path / "b.npy"), array), name


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_header(tmp_path: Path, version: tuple[int, int]) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(3), version)
    assert npy_load(tmp_path / "a.npy").tolist() == [0, 1, 2]


def test_arrays_are_aligned_where_they_stand(tmp_path: Path) -> None:
    tensors = {name: Tensor.ones(5) for name in ("a", "bcd", "β")}
    npz_save(tensors, tmp_path / "a.npz")
    content = (tmp_path / "a.npz").read_bytes()
    places = [
        at for at in range(len(content)) if content[at:].startswith(np.ones(5, "f4").tobytes())
    ]
    assert len(places) == 3
    assert all(place % 64 == 0 for place in places)


def test_equal_tables_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        npz_save({"w": Tensor.arange(4)}, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_dtype_that_numpy_lacks(tmp_path: Path) -> None:
    for save in (lambda x, p: npz_save({"w": x}, p), npy_save):
        with pytest.raises(DTypeError, match="NumPy has no bfloat16") as caught:
            save(Tensor.ones(2, dtype=dtypes.bfloat16), tmp_path / "a")
        assert "safetensors" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    for save in (lambda x, p: npz_save({"w": x}, p), npy_save):
        with pytest.raises(DataError, match="cannot write the file"):
            save(Tensor.ones(2), tmp_path / "no" / "a")
    with pytest.raises(DTypeError, match="'w' is an int, not a Tensor"):
        npz_save({"w": 3}, tmp_path / "a")  # type: ignore[dict-item]


def npy(header: str | bytes, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    raw = header.encode() if isinstance(header, str) else header
    return b"\x93NUMPY" + version + struct.pack("<H", len(raw)) + raw + data


def header(descr: str = "'<f4'", order: str = "False", shape: str = "(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


EIGHT = bytes(8)
DAMAGED = {
    "empty": (b"", "not an array of NumPy"),
    "another file": (b"hello, world, hello", "not an array of NumPy"),
    "version": (npy(header(), EIGHT, b"\7\0"), "unknown version"),
    "header cut off": (npy(header())[:20], "too long, or truncated"),
    "objects": (npy(header("'|O'"), EIGHT), "what tensors do not hold"),
    "records": (npy(header("[('a', '<f4')]"), EIGHT), "no plain descr"),
    "texts": (npy(header("'<U4'"), EIGHT * 4), "what tensors do not hold"),
    "complex": (npy(header("'<c8'"), EIGHT * 2), "what tensors do not hold"),
    "code": (npy(header("__import__('os').system('true')"), EIGHT), "no plain descr"),
    "code in the shape": (npy(header(shape="(print(1),)"), EIGHT), "no plain shape"),
    "shape missing": (npy("{'descr': '<f4', 'fortran_order': False}", EIGHT), "no plain shape"),
    "shape twice": (npy(header() + header(), EIGHT), "no plain descr"),
    "shape absurd": (npy(header(shape="(" + "9" * 30 + ",)"), EIGHT), "shape is not a tuple"),
    "shape too large": (npy(header(shape="(4611686018427387904,)"), EIGHT), "shape is not a tuple"),
    "shape odd": (npy(header(shape="(2,,)"), EIGHT), "shape is not a tuple"),
    "shape empty": (npy(header(shape="( ,2)"), EIGHT), "shape is not a tuple"),
    "data cut off": (npy(header(), EIGHT[:7]), "the file is truncated"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_array_is_refused(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    file = tmp_path / "a.npy"
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"npy_load: .*{message}") as caught:
        npy_load(file)
    assert str(file) in str(caught.value)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("w.npy", content)
    with pytest.raises(DataError, match=f"npz_load: .*{message}") as caught:
        npz_load(tmp_path / "a.npz")
    assert "member:   'w.npy'" in str(caught.value)


def test_a_limit_of_what_is_inflated(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1000), b=np.zeros(1000))
    assert npz_load(tmp_path / "a.npz")["b"].shape == (1000,)
    assert len(npz_load(tmp_path / "a.npz", limit=20_000)) == 2
    with pytest.raises(DataError, match="inflates to more than is allowed") as caught:
        npz_load(tmp_path / "a.npz", limit=10_000)
    assert "at most 10000 bytes" in str(caught.value)


def good(compressed: bool) -> bytes:
    out = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(out, a=np.arange(6).reshape(2, 3), b=np.ones(2, ">f4"))
    return out.getvalue()


@given(content=damaged(good(False)) | damaged(good(True)))
def test_any_damage_is_a_data_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content)
    refused_or_whole(lambda: npz_load(path))
