"""PyTorch's files: each format comes back, and nothing in a file is ever run."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.io.torch_files import (
    Code,
    call,
    legacy,
    named,
    parameter,
    put,
    storage,
    tarred,
    tensor,
    zipped,
)
from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DataError
from tilegrad.io import torch_load

ROW = np.arange(12, dtype=np.float32)
RAW = ROW.tobytes()
FLOATS = storage("FloatStorage", "0", 12)
OLD_FLOATS = storage("FloatStorage", "0", 12, None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


def load(file: Path, content: bytes) -> Any:
    file.write_bytes(content)
    return torch_load(file)


# what comes back

VIEWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "whole": ((3, 4), (4, 1), 0),
    "offset": ((2, 4), (4, 1), 4),
    "transposed": ((4, 3), (1, 4), 0),
    "three axes, turned": ((2, 2, 3), (1, 6, 2), 0),
    "stretched": ((2, 3), (0, 1), 5),
    "one number": ((), (), 7),
    "size 1, any stride": ((1, 4, 1), (99, 1, 0), 2),
    "window": ((2, 2), (4, 1), 5),
    "every second": ((2, 3), (6, 2), 1),
    "overlapping": ((4, 4), (1, 1), 0),
    "empty": ((0, 3), (3, 1), 12),
}


def expected_view(name: str) -> Any:
    size, stride, offset = VIEWS[name]
    return np.lib.stride_tricks.as_strided(ROW[offset:], size, [4 * step for step in stride])


def check_views(found: dict[str, Tensor]) -> None:
    assert list(found) == list(VIEWS)
    for name, view in found.items():
        assert view.shape == VIEWS[name][0]
        assert view.dtype is dtypes.float32
        assert np.array_equal(view.numpy(), expected_view(name)), name


def test_views_of_one_storage_in_a_zip(file: Path) -> None:
    value = {name: tensor(FLOATS, *view) for name, view in VIEWS.items()}
    check_views(load(file, zipped(value, {"0": RAW})))


def test_views_of_one_storage_in_a_legacy_file(file: Path) -> None:
    value = {name: tensor(OLD_FLOATS, *view) for name, view in VIEWS.items()}
    check_views(load(file, legacy(value, {"0": (12, RAW)})))


def test_views_of_one_storage_in_a_tar(file: Path) -> None:
    tensors = {at: (99, *view) for at, view in enumerate(VIEWS.values())}
    value = {name: Code(put(str(at)) + b"Q") for at, name in enumerate(VIEWS)}
    check_views(load(file, tarred(value, {99: ("FloatStorage", 12, RAW)}, tensors)))


def test_views_of_storages(file: Path) -> None:
    """The legacy and the tar format can cut a storage out of another one."""
    part = storage("FloatStorage", "0", 12, ("v", 4, 3))
    found = load(file, legacy(tensor(part, (2,), (1,), 1), {"0": (12, RAW)}))
    assert found.tolist() == [5, 6]
    whole = {99: ("FloatStorage", 12, RAW)}
    value = Code(put("1") + b"Q")
    found = load(file, tarred(value, whole, {1: (98, (2,), (1,), 1)}, [(98, 99, 4, 3)]))
    assert found.tolist() == [5, 6]


KINDS = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip


def test_every_dtype(file: Path) -> None:
    arrays = {kind: np.array([1, 0, 3]).astype(name) for kind, name in KINDS.items()}
    value: dict[str, Any] = {kind: tensor(storage(kind, kind, 3), (3,), (1,)) for kind in arrays}
    value["bf16"] = tensor(storage("BFloat16Storage", "bf16", 2), (2,), (1,))
    raws = {kind: array.tobytes() for kind, array in arrays.items()}
    raws["bf16"] = struct.pack("<2H", 0x3FC0, 0xC000)
    for name in ("uint16", "uint32", "uint64"):
        size = np.dtype(name).itemsize
        where = storage("storage.UntypedStorage", name, 2 * size)
        hooks = call("collections.OrderedDict")
        kind = named(f"torch.{name}")
        maker = "torch._utils._rebuild_tensor_v3"
        value[name] = call(maker, where, 1, (1,), (1,), False, hooks, kind)
        raws[name] = np.array([5, 6], name).tobytes()
    found = load(file, zipped(value, raws))
    for kind, array in arrays.items():
        assert found[kind].dtype.name == array.dtype.name
        assert found[kind].tolist() == array.tolist()
    assert (found["bf16"].dtype, found["bf16"].tolist()) == (dtypes.bfloat16, [1.5, -2.0])
    for name in ("uint16", "uint32", "uint64"):
        assert (found[name].dtype.name, found[name].tolist()) == (name, [6])


def test_complex_numbers_are_pairs(file: Path) -> None:
    given = tensor(storage("ComplexFloatStorage", "0", 6), (2, 2), (3, 1), 1)
    found = load(file, zipped(given, {"0": RAW}))
    assert found.tolist() == [[[2.0, 3.0], [4.0, 5.0]], [[8.0, 9.0], [10.0, 11.0]]]


def test_plain_values_come_back(file: Path) -> None:
    order = "collections.OrderedDict"
    value = {
        "list": [1, 2.5, None, True, "β", b"raw", (1, (2,)), -(1 << 70)],
        "ordered": call(order, [["a", 1], ["b", 2]]),
        "size": call("torch.Size", [2, 3]),
        "device": call("torch.device", "cuda", 1),
        "dtype": named("torch.float16"),
        "set": call("builtins.set", [1, 2]),
        "bytes": call("_codecs.encode", "\xe9", "latin1"),
        "parameter": parameter(tensor(FLOATS, (2,), (1,))),
        "storage": FLOATS,
        3: "an integer is a key",
    }
    found = load(file, zipped(value, {"0": RAW}))
    assert found["list"] == value["list"]
    assert list(found["ordered"].items()) == [("a", 1), ("b", 2)]
    assert (found["size"], found["device"]) == ((2, 3), "cuda:1")
    assert (found["dtype"], found["set"], found["bytes"]) == (dtypes.float16, {1, 2}, b"\xe9")
    assert found["parameter"].tolist() == [0, 1]
    assert found["storage"].tolist() == ROW.tolist()
    assert found[3] == "an integer is a key"


@pytest.mark.parametrize("core", ["core", "_core"])
def test_numpy_values_come_back(file: Path, core: str) -> None:
    kind = Code(
        call("numpy.dtype", "f8", False, True) + put((3, "<", None, None, None, -1, -1, 0)) + b"b"
    )
    empty = call(f"numpy.{core}.multiarray._reconstruct", named("numpy.ndarray"), (0,), b"b")
    state = (1, (2, 3), kind, True, np.arange(6.0).tobytes())
    array = Code(empty + put(state) + b"b")
    number = call(f"numpy.{core}.multiarray.scalar", kind, struct.pack("<d", 2.5))
    found = load(file, zipped({"array": array, "deep": (1, (array,)), "number": number}, {}))
    assert np.array_equal(found["array"], np.arange(6.0).reshape((2, 3), order="F"))
    assert np.array_equal(found["deep"][1][0], found["array"])
    assert found["number"] == 2.5


def test_old_instructions(file: Path) -> None:
    """Protocols 0 and 1, as Python 2 wrote them."""
    text = b"(dp0\nS'a'\np1\n(lp2\nI1\naL2L\naF2.5\nasS'\\xe9'\nV\\u03b2\ns."
    assert load(file, zipped(text, {})) == {"a": [1, 2, 2.5], "\xe9": "β"}


def test_shared_tensors_are_one_node(file: Path) -> None:
    value = {"a": tensor(FLOATS, (3, 4), (4, 1)), "b": tensor(FLOATS, (3, 4), (4, 1))}
    found = load(file, zipped(value, {"0": RAW}))
    assert found["a"].uop is found["b"].uop


def test_a_compressed_archive_is_read(file: Path) -> None:
    found = load(file, zipped(tensor(FLOATS, (12,), (1,)), {"0": RAW}, zipfile.ZIP_DEFLATED))
    assert found.tolist() == ROW.tolist()


def test_a_stored_tensor_is_the_file(file: Path) -> None:
    """Nothing is copied; and a write goes to other memory, not to the file."""
    content = zipped(tensor(FLOATS, (12,), (1,)), {"0": bytes(1) * 3 + RAW[3:]})
    file.write_bytes(content)
    found = torch_load(file)
    before = found.numpy().copy()
    found[0:2] = 9.0
    assert found.tolist()[:3] == [9, 9, 2]
    assert file.read_bytes() == content
    assert torch_load(file).tolist() == before.tolist()


def test_a_large_archive(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past 4 GiB sizes and places stand elsewhere; zipfile is made to believe to be there."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    assert load(file, zipped(tensor(FLOATS, (12,), (1,)), {"0": RAW})).tolist() == ROW.tolist()


def test_unknown_names_are_kept_as_names(file: Path) -> None:
    """A whole model, settings of a program, a kind of dict: all that was given is there."""
    weight = tensor(FLOATS, (2,), (1,))
    layer = Code(named("shop.Layer") + b")\x81" + put({"_parameters": {"w": weight}}) + b"b")
    settings = Code(named("argparse.Namespace") + b")\x81" + put({"lr": 0.1}) + b"b")
    table = Code(call("shop.Table", 1) + b"(" + put("k") + put(FLOATS) + b"u")
    row = Code(call("shop.Row") + b"(" + put(1) + put(2) + b"e")
    made = Code(named("shop.Made") + put((5,)) + put({"x": 6}) + b"\x92")
    value = {"layer": layer, "deep": (1, [settings]), "table": table, "row": row, "made": made}
    value["name"] = named("os.system")
    for content in (zipped(value, {"0": RAW}), legacy(value, {"0": (12, RAW)})):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"it wants shop\.Layer"):
            torch_load(file)
        found = torch_load(file, keep_unknown=True)
        assert (found["layer"].name, repr(found["layer"])) == (
            "shop.Layer",
            "<shop.Layer, not made>",
        )
        assert found["layer"].state["_parameters"]["w"].tolist() == [0, 1]
        assert found["deep"][1][0].state == {"lr": 0.1}
        assert (found["table"].arguments, found["row"].items) == ((1,), [1, 2])
        assert found["table"].pairs["k"].tolist() == ROW.tolist()
        assert (found["made"].arguments, found["made"].pairs) == ((5,), {"x": 6})
        assert (found["name"].name, found["name"].arguments) == ("os.system", None)


# against PyTorch itself


def test_what_pytorch_writes(file: Path) -> None:
    torch = pytest.importorskip("torch")
    row = torch.arange(12.0)
    value = {"model": torch.nn.Linear(3, 2).state_dict(), "views": {}, "half": row.half()}
    for name, (size, stride, offset) in VIEWS.items():
        value["views"][name] = row.as_strided(size, stride, offset)
    for is_zip in (True, False):
        torch.save(value, file, _use_new_zipfile_serialization=is_zip)
        found = torch_load(os.fspath(file))
        check_views(found["views"])
        assert found["half"].tolist() == row.tolist()
        assert found["model"]["weight"].tolist() == value["model"]["weight"].tolist()


def test_pytorch_reads_what_the_tests_write(file: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {at: (99, *view) for at, view in enumerate(VIEWS.values())}
    value = {name: Code(put(str(at)) + b"Q") for at, name in enumerate(VIEWS)}
    row = {99: ("FloatStorage", 12, RAW)}
    views = {name: tensor(FLOATS, *view) for name, view in VIEWS.items()}
    old = {name: tensor(OLD_FLOATS, *view) for name, view in VIEWS.items()}
    contents = (
        zipped(views, {"0": RAW}),
        legacy(old, {"0": (12, RAW)}),
        tarred(value, row, tensors),
    )
    for content in contents:
        file.write_bytes(content)
        found = torch.load(file, weights_only=False)
        for name in VIEWS:
            assert found[name].tolist() == expected_view(name).tolist()
