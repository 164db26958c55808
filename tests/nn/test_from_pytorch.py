"""The page for PyTorch's users: every name of torch.nn, torch.optim and what is below them is said
to be here or not to be, and that is so.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tilegrad import Tensor, nn

PAGE = (Path(__file__).parents[2] / "docs" / "from-pytorch.md").read_text()
# Classes, functions of nn.functional, optimizers, schedulers, first values, utilities of PyTorch
# 2.13, without what is internal.
NAMES = (Path(__file__).parent / "pytorch_names.txt").read_text().split()
HERE = dict(re.findall(r"^\| `(torch\.[\w.]+)` \| `tilegrad\.([\w.]+)` \|", PAGE, re.M))
ABSENT = re.findall(
    r"^\| `(torch\.[\w.]+)` \| .+ \|$",
    PAGE[PAGE.index("## What is not here") : PAGE.index("### Functions and methods")],
    re.M,
)


def found(path: str) -> object:
    thing: object = importlib.import_module("tilegrad")
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing


def test_every_name_is_listed_once() -> None:
    assert sorted(set(NAMES) - HERE.keys() - set(ABSENT)) == []
    assert sorted(HERE.keys() & set(ABSENT)) == []
    assert len(NAMES) > 300 and len(ABSENT) < 70


@pytest.mark.row("P.1")
def test_what_is_said_to_be_here_is() -> None:
    assert [name for name in HERE.values() if found(name) is None] == []


def test_what_is_said_to_be_absent_is() -> None:
    """A row that says so goes when the name comes."""
    places = {"torch.optim.lr_scheduler": "nn.schedulers", "torch.optim": "nn.optim"}
    names = []
    for name in ABSENT:
        home, _, last = name.rpartition(".")
        names.append(f"{places.get(home, home.removeprefix('torch.'))}.{last}")
    assert [name for name in names if found(name) is not None] == []


@pytest.mark.row("P.1")
def test_what_stands_in_for_it_is_there() -> None:
    rows = re.findall(r"^\| `torch[\w.]+` \| (.+) \|$", PAGE[PAGE.index("## What is not") :], re.M)
    stand_ins = [name for row in rows for name in re.findall(r"`(nn\.[\w.]+)[`(]", row)]
    assert len(stand_ins) > 20
    assert [name for name in stand_ins if found(name) is None] == []


# Functions of torch, torch.linalg, torch.fft and torch.special and methods of torch.Tensor, without
# what is internal.
FUNCTIONS = (Path(__file__).parent / "pytorch_tensor_names.txt").read_text().split()


def blocks() -> dict[str, list[str]]:
    """The names under each heading of those that are the same."""
    part = PAGE[PAGE.index("## The same names") : PAGE.index("## Names")]
    found = re.findall(r"^### ([^\n]+)\n\n```text\n(.+?)```", part, re.M | re.S)
    return {title: names.split() for title, names in found}


def functions_elsewhere() -> dict[str, str]:
    """What stands in for each function that is not here."""
    rows = PAGE[PAGE.index("### Functions and methods") :].splitlines()
    return {
        name: row.rpartition(" | ")[2]
        for row in rows
        for name in re.findall(r"`(torch\.[\w.]+)`", row.rpartition(" | ")[0])
    }


@pytest.mark.row("P.1")
def test_every_function_is_listed() -> None:
    same, elsewhere = blocks(), functions_elsewhere()
    methods, functions = same["`torch` and `torch.Tensor`"], same["`torch`, in `nn.functional`"]
    assert [name for name in methods if not hasattr(Tensor, name)] == []
    assert [name for name in functions if not hasattr(nn.functional, name)] == []
    for module in ("linalg", "fft", "special"):
        assert [name for name in same[f"`torch.{module}`"] if not hasattr(Tensor, name)] == []
    missing = []
    for path in FUNCTIONS:
        home, _, name = path.rpartition(".")
        known = same.get(f"`{home}`", [*methods, *functions])
        if name not in known and path not in elsewhere:
            missing.append(path)
    assert missing == []
    assert len(FUNCTIONS) > 1300 and len(methods) > 540


def test_functions_said_to_be_elsewhere_are() -> None:
    """A row goes when the name comes; what it names instead is there."""
    listed = functions_elsewhere()
    here = [path for path in listed if hasattr(Tensor, path.rpartition(".")[2])]
    assert [path for path in here if path.startswith("torch.Tensor.")] == []
    for text in set(listed.values()):
        for name in re.findall(r"`((?:Tensor|nn|tilegrad)\.[\w.]+)`", text):
            owner = f"tensor.tensor.{name}" if name.startswith("Tensor.") else name
            assert found(owner.removeprefix("tilegrad.")) is not None, name
