"""Going on with a training run: the numbers are those of a run without a break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilegrad import Tensor, nn
from tilegrad.base.errors import DataError
from tilegrad.io.safetensors import read_metadata, read_safetensors
from tilegrad.nn.checkpoint import load_checkpoint, save_checkpoint


class Run:
    """A model with dropout, shared weights and an optimizer, all from `seed`."""

    def __init__(self, seed: int):
        Tensor.manual_seed(seed)
        self.model = {"first": nn.Linear(4, 4), "last": nn.Linear(4, 2)}
        self.model["again"] = self.model["first"]
        self.optimizer = nn.optim.Adam(nn.state.get_parameters(self.model), lr=0.05)

    @property
    def objects(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def step(self) -> float:
        with Tensor.train():
            self.optimizer.zero_grad()
            x = Tensor.randn(8, 4)
            hidden = self.model["again"](self.model["first"](x).relu()).dropout(0.3)
            loss = self.model["last"](hidden).square().mean()
            value: float = loss.backward().item()
            self.optimizer.step()
        return value


def test_a_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    run = Run(1)
    run.step()
    save_checkpoint(tmp_path / "c", run.objects, 1, {"best": 0.5, "names": ["a"]})
    expected = [run.step(), run.step()]
    other = Run(2)
    other.step()
    found = load_checkpoint(tmp_path / "c", other.objects)
    assert found == (1, {"best": 0.5, "names": ["a"]})
    assert [other.step(), other.step()] == expected


def test_a_tensor_with_two_names_is_stored_once(tmp_path: Path) -> None:
    run = Run(1)
    save_checkpoint(tmp_path / "c", run.objects)
    names = set(read_safetensors(tmp_path / "c"))
    assert {"model.first.weight", "model.last.bias", "optimizer.lr"} <= names
    assert not [name for name in names if "again" in name or name.startswith("optimizer.params")]


def test_another_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = Run(1)
    save_checkpoint(tmp_path / "c", run.objects, 5)
    other = Run(2)
    before = other.model["first"].weight.tolist()
    with pytest.raises(DataError, match="1 names are missing, 0 are unexpected"):
        load_checkpoint(tmp_path / "c", {**other.objects, "more": {"w": Tensor.ones(2).clone()}})
    with pytest.raises(DataError, match="0 names are missing"):
        load_checkpoint(tmp_path / "c", {"model": other.model})
    assert other.model["first"].weight.tolist() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "another"),
        ("step", "one"),
        ("random", "[1]"),
        ("random", '[1, "2"]'),
        ("random", "[-1, 0]"),
        ("extra", "{"),
        ("extra", "[" * 100_000),
    ],
)
def test_damaged_metadata_are_refused(tmp_path: Path, key: str, value: str) -> None:
    objects = {"w": Tensor.ones(2).clone()}
    save_checkpoint(tmp_path / "c", objects)
    nn.state.safe_save(objects, tmp_path / "c", {**read_metadata(tmp_path / "c"), key: value})
    with pytest.raises(DataError, match="load_checkpoint: ") as caught:
        load_checkpoint(tmp_path / "c", objects)
    assert str(tmp_path / "c") in str(caught.value)


def test_extra_is_json(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing that JSON holds"):
        save_checkpoint(tmp_path / "c", {}, extra={"net": object()})
    assert not list(tmp_path.iterdir())
    save_checkpoint(tmp_path / "c", {}, extra=None)
    assert json.loads(read_metadata(tmp_path / "c")["extra"]) is None
    assert load_checkpoint(tmp_path / "c", {}) == (0, None)
