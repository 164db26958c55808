"""Loaded weights are the mapped file until they are used, and after that too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilegrad.io
from tilegrad import Tensor, nn
from tilegrad.engine.run.run import recording
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


def test_weights_may_stay_in_the_file(tmp_path: Path) -> None:
    """Loading without realize: the model computes with the mapped file, and can be trained."""
    safe_save({"w": Tensor.full((8,), 2.0), "more": Tensor.ones(3)}, tmp_path / "w")
    state = safe_load(tmp_path / "w")
    model = {"w": Tensor.ones(8, requires_grad=True)}
    load_state_dict(model, state, strict=False, consume=True, realize=False)
    assert list(state) == ["more"]
    with recording() as launches:
        assert (model["w"] * 3).sum().item() == 48
    assert all(launch.kernel is not None for launch in launches)
    assert model["w"].requires_grad
    (model["w"] * 3).sum().backward()
    assert model["w"].grad is not None
    assert model["w"].grad.tolist() == [3] * 8
    model["w"].assign(model["w"].detach() + 1).realize()
    assert model["w"].tolist() == [3] * 8
    assert safe_load(tmp_path / "w")["w"].tolist() == [2] * 8


def test_loading_tells_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    load_state_dict({"w": Tensor.ones(8).clone()}, {"w": Tensor.zeros(8)}, verbose=True)
    assert capsys.readouterr().out == "loaded 1 tensors, 0.00 MB\n"


def test_readers_of_other_formats_are_in_nn_state_too() -> None:
    for name in ("TensorIO", "gguf_load", "tar_extract", "torch_load", "zip_extract"):
        assert getattr(nn.state, name) is getattr(tilegrad.io, name)
    with pytest.raises(AttributeError, match="has no attribute 'pickle_load'"):
        _ = nn.state.pickle_load
