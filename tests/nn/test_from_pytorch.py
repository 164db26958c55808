"""The page for PyTorch's users: every name of torch.nn, torch.optim and what is below them is said
to be here or not to be, and that is so.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "from-pytorch.md").read_text()
# Classes, functions of nn.functional, optimizers, schedulers, first values, utilities of PyTorch
# 2.13, without what is internal.
NAMES = (Path(__file__).parent / "pytorch_names.txt").read_text().split()
HERE = dict(re.findall(r"^\| `(torch\.[\w.]+)` \| `tilegrad\.([\w.]+)` \|", PAGE, re.M))
ABSENT = re.findall(
    r"^\| `(torch\.[\w.]+)` \| .+ \|$", PAGE[PAGE.index("## What is not here") :], re.M
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
