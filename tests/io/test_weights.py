"""Loaded weights are the mapped file until they are used, and after that too."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilegrad import Tensor
from tilegrad.engine.run import recording
from tilegrad.io.safetensors import Entry, write_safetensors
from tilegrad.io.weights import safe_load, safe_save
from tilegrad.nn.state import load_state_dict


def test_a_kernel_reads_the_file_itself(tmp_path: Path) -> None:
    grid = np.arange(4096, dtype=np.float32).reshape(64, 64)
    safe_save({"w": Tensor(grid)}, tmp_path / "w")
    found = safe_load(tmp_path / "w", "CPU")["w"]
    with recording() as launches:
        total = found.sum(1).numpy()
    assert [launch.kernel is None for launch in launches] == [False]
    assert np.array_equal(total, grid.sum(1))
    assert np.array_equal(found.numpy(), grid)


def test_weights_that_stand_askew_are_copied(tmp_path: Path) -> None:
    """A writer may put anything anywhere."""
    bytes_, floats = np.ones(3, "u1"), np.arange(4, dtype=np.float32)
    path = tmp_path / "w"
    write_safetensors(
        path, {"b": Entry("uint8", (3,), bytes_), "f": Entry("float32", (4,), floats)}
    )
    head, tail = path.read_bytes()[:-19], path.read_bytes()[-19:]
    head = head.replace(b"[0,16]", b"[3,19]").replace(b"[16,19]", b"[0,3]  "[:7])
    path.write_bytes(head + tail[16:] + tail[:16])
    found = safe_load(path)
    assert (found["b"].tolist(), found["f"].tolist()) == ([1, 1, 1], [0, 1, 2, 3])


def test_writing_to_weights_leaves_the_file(tmp_path: Path) -> None:
    safe_save({"w": Tensor.zeros(8)}, tmp_path / "w")
    found = safe_load(tmp_path / "w")["w"]
    model = {"w": Tensor.ones(8).clone()}
    load_state_dict(model, {"w": found})
    model["w"].assign(model["w"] + 1).realize()
    found.assign(found + 5).realize()
    found[0] = 9.0
    assert model["w"].tolist() == [1] * 8
    assert found.tolist() == [9, *[5] * 7]
    assert safe_load(tmp_path / "w")["w"].tolist() == [0] * 8
