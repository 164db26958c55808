"""Files as a device: mapped to be read, written in place, and never asked to compute."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.schedule.test_plan import rows
from tilegrad import Context, Device, Tensor, dtypes
from tilegrad.base.errors import DataError, DeviceError, IndexBoundsError, ShapeError
from tilegrad.engine.run.run import recording
from tilegrad.io import gguf_load

GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "grid.bin"
    path.write_bytes(GRID.tobytes())
    return path


def held(path: Path, dtype: Any = np.float32) -> list[Any]:
    found: list[Any] = np.fromfile(path, dtype).tolist()
    return found


def test_a_path_is_a_tensor_of_bytes(file: Path) -> None:
    found = Tensor(file)
    assert (found.device, found.dtype, found.shape) == (f"DISK:{file}", dtypes.uint8, (96,))
    assert found.data() == GRID.tobytes()
    typed = Tensor(file, dtype=dtypes.float32)
    assert typed.tolist() == GRID.reshape(-1).tolist()
    assert Tensor(file, device="CPU", dtype="float32").sum().item() == GRID.sum()


def test_views_are_read_where_they_stand(file: Path) -> None:
    grid = Tensor(file, dtype=dtypes.float32).reshape(4, 6)
    cases: dict[str, tuple[Any, Any]] = {
        "row": (grid[1], GRID[1]),
        "rows": (grid[1:3], GRID[1:3]),
        "in a row": (grid[2, 1:4], GRID[2, 1:4]),
        "column": (grid[:, 2], GRID[:, 2]),
        "window": (grid[1:3, 2:4], GRID[1:3, 2:4]),
        "turned": (grid.T, GRID.T),
        "flipped": (grid.flip(0), GRID[::-1]),
        "computed": (grid[3] * 2, GRID[3] * 2),
        "bits": (Tensor(file)[24:32].bitcast(dtypes.float32), GRID[1, :2]),
    }
    for name, (view, expected) in cases.items():
        assert view.device == f"DISK:{file}"
        assert np.array_equal(view.numpy(), expected), name
        assert np.array_equal(view.to("CPU").numpy(), expected), name


def test_a_device_of_the_host_computes_in_the_file_itself(file: Path) -> None:
    grid = Tensor(file, dtype=dtypes.float32).reshape(4, 6)[1:3].to("CPU")
    with recording() as launches:
        assert grid.sum().item() == GRID[1:3].sum()
    assert [launch.kernel is None for launch in launches] == [False]


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"")
    assert Tensor(tmp_path / "none").shape == (0,)
    assert Tensor(tmp_path / "none").tolist() == []


def test_memory_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new"
    x = Tensor.empty(2, 3, dtype=dtypes.int32, device=f"disk:{path}")
    assert not path.exists()
    x.assign(Tensor([[1, 2, 3], [4, 5, 6]]))
    assert held(path, np.int32) == [1, 2, 3, 4, 5, 6]
    x[0, 1:] = 7
    x[:, 0] = Tensor([8, 9])
    x[1:, ::2] = [[0, -1]]
    assert held(path, np.int32) == [8, 7, 7, 0, 5, -1]
    assert x.tolist() == [[8, 7, 7], [0, 5, -1]]
    x[Tensor([1, 0]), [0, 2]] = Tensor([4, 6])
    assert held(path, np.int32) == [8, 7, 6, 4, 5, -1]
    x[1, 0], x[0, 2] = 0, 7
    # Another tensor of the file sees the same bytes; a longer one makes the file longer.
    assert Tensor.empty(6, dtype=dtypes.int32, device=f"disk:{path}").tolist() == [
        8,
        7,
        7,
        0,
        5,
        -1,
    ]
    longer = Tensor.empty(8, dtype=dtypes.int32, device=f"disk:{path}")
    longer[6:] = 3
    assert held(path, np.int32)[6:] == [3, 3]
    assert x.tolist() == [[8, 7, 7], [0, 5, -1]]


def test_who_needs_the_old_bytes_gets_them(tmp_path: Path) -> None:
    x = Tensor.empty(3, dtype=dtypes.int32, device=f"disk:{tmp_path / 'new'}")
    x.assign([1, 2, 3])
    moved, computed, left = x.to("CPU"), x.to("CPU") * 10, x + 1
    view = x[1:]
    array = x.numpy()
    x.assign([4, 5, 6])
    assert (moved.tolist(), computed.tolist()) == ([1, 2, 3], [10, 20, 30])
    assert (left.tolist(), array.tolist()) == ([2, 3, 4], [1, 2, 3])
    assert (view.tolist(), x.tolist()) == ([5, 6], [4, 5, 6])


@pytest.mark.row("F2.9")
def test_copies_from_and_to_a_file_are_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new"
    with Context(DEBUG=2, NO_COLOR=1):
        x = Tensor(GRID).realize().to(f"DISK:{path}").realize()
        assert x.to("CPU").sum().item() == GRID.sum()
        assert x.to(f"DISK:{path}2").tolist() == GRID.tolist()
    found = [row for row in rows(capsys.readouterr().out) if "<-" in row]
    copies = [re.search(r"copy +(\S+), +(\S+) <- (\S+)", row) for row in found]
    assert [match.groups() for match in copies if match is not None] == [
        ("96", "CPU", "HOST"),
        ("96", f"DISK:{path}", "CPU"),
        ("96", "CPU", f"DISK:{path}"),
        ("4", "HOST", "CPU"),
        ("96", f"DISK:{path}2", f"DISK:{path}"),
        ("96", "HOST", f"DISK:{path}2"),
    ]
    assert held(path) == held(tmp_path / "new2") == GRID.reshape(-1).tolist()


def test_what_is_on_its_way_to_a_file_is_read_from_there(tmp_path: Path) -> None:
    path = tmp_path / "new"
    back = (Tensor(GRID).to(f"DISK:{path}").reshape(24)[6:12] * 2).to("CPU")
    assert back.tolist() == (GRID[1] * 2).tolist()
    assert held(path) == GRID.reshape(-1).tolist()


def test_names_keep_their_letters_and_know_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("One", "two"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        x = Tensor.empty(1, dtype=dtypes.uint8, device="disk:Same")
        assert x.device == f"DISK:{tmp_path / folder / 'Same'}"
        x.assign([len(folder) + ord(folder[0])])
    assert (tmp_path / "One" / "Same").read_bytes() == bytes([3 + ord("O")])
    assert (tmp_path / "two" / "Same").read_bytes() == bytes([3 + ord("t")])


def test_files_have_no_limit_on_numbers_of_tensors(file: Path) -> None:
    """A mapping goes with the last tensor of it."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        Tensor(file).to("CPU")
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_what_a_file_refuses(file: Path, tmp_path: Path) -> None:
    grid = Tensor(file, dtype=dtypes.float32)
    with pytest.raises(DeviceError, match="assign: this file was opened to be read") as caught:
        grid.assign(grid.to("CPU") + 1)
    assert "Tensor.empty(shape, dtype=dtype, device=" in str(caught.value)
    with pytest.raises(DeviceError, match="realize: a file computes nothing") as caught:
        (grid + 1).realize()
    assert "test_disk.py:" in str(caught.value)
    assert ".to('CPU')" in str(caught.value)
    with pytest.raises(DataError, match="DISK: cannot open the file: No such file"):
        Tensor(tmp_path / "absent")
    with pytest.raises(DataError, match="DISK: cannot open the file") as caught:
        Tensor.empty(3, device=f"DISK:{tmp_path}")
    assert str(tmp_path) in str(caught.value)
    (tmp_path / "odd").write_bytes(b"12345")
    with pytest.raises(ShapeError, match="5 bytes are no whole number of float32"):
        Tensor(tmp_path / "odd", dtype=dtypes.float32)
    x = Tensor.empty(4, device=f"DISK:{tmp_path / 'new'}")
    with pytest.raises(ShapeError, match=r"assign: shapes differ: \(4,\) and \(3,\)"):
        x.assign(Tensor.ones(3))
    with pytest.raises(ShapeError, match="computed from a file"):
        (x + 1).assign(Tensor.ones(4))
    with pytest.raises(IndexBoundsError, match="setitem: index 4 is out of bounds"):
        x[4] = 1.0
    with pytest.raises(ShapeError):
        x[1:] = [1.0, 2.0]
    with pytest.raises(DeviceError, match="add: operands are on two devices"):
        _ = x + Tensor.ones(4).contiguous()
    with pytest.raises(DeviceError, match="DISK: a file is needed"):
        _ = Device["DISK"]


def test_a_loader_takes_a_tensor_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + bytes([3, 0, 0, 0]) + bytes(16))
    assert gguf_load(Tensor(path)) == ({}, {})


@pytest.mark.parametrize("read", ["numpy", "tolist", "data", "clone", "to", "slice"])
@pytest.mark.parametrize("size", [None, 0, 20])
def test_reading_writes_nothing(tmp_path: Path, size: int | None, read: str) -> None:
    """A file that is not there, or too short for the tensor, stays as it is."""
    path = tmp_path / "file"
    if size is not None:
        path.write_bytes(bytes(range(size)))
    ways = {
        "numpy": lambda x: x.numpy(),
        "tolist": lambda x: x.tolist(),
        "data": lambda x: x.data(),
        "clone": lambda x: x.to("CPU").clone().realize(),
        "to": lambda x: (x.to("CPU") + 1).tolist(),
        "slice": lambda x: x[2:4].numpy(),
    }
    x = Tensor.empty(9, device=f"DISK:{path}")
    what = "No such file" if size is None else "fewer bytes than the tensor"
    with pytest.raises(DataError, match=f"DISK: .*{what}") as caught:
        ways[read](x)
    assert str(path) in str(caught.value) and "36" in str(caught.value)
    if size is None:
        assert not path.exists()
    else:
        assert path.read_bytes() == bytes(range(size))


def test_a_write_that_fails_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    x = Tensor.empty(9, device=f"DISK:{path}")
    with pytest.raises(IndexBoundsError):
        x[9] = 1.0
    with pytest.raises(ShapeError):
        x[2:] = [1.0, 2.0]
    assert not path.exists()
    x[8] = 1.0
    assert held(path) == [0.0] * 8 + [1.0]


def test_a_file_that_may_only_be_read(file: Path) -> None:
    file.chmod(0o400)
    assert Tensor.empty(24, device=f"DISK:{file}").tolist() == GRID.reshape(-1).tolist()
