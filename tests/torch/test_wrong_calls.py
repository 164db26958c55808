"""What PyTorch 2.13 raises for wrong calls is caught here by its class.

The table beside this file has the calls below the class that each raises; the classes were read off
PyTorch once.
"""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import distributions as dist
from tilegrad.torch import linalg, nn, optim
from tilegrad.torch.nn import functional as F
from tilegrad.torch.nn import init
from tilegrad.torch.optim import lr_scheduler as sched
from tilegrad.torch.utils import data

t = torch.ones


def I(*values: int) -> Any:  # noqa: E743
    return torch.tensor(values)


def L() -> Any:
    return nn.Linear(3, 2)


def par() -> list[Any]:
    return [nn.Parameter(torch.ones(2))]


def opt() -> Any:
    return optim.SGD(par(), lr=0.1)


def seta(held: Any, name: str, value: Any) -> None:
    setattr(held, name, value)


def setit(held: Any, key: Any, value: Any) -> None:
    held[key] = value


def deli(held: Any, key: Any) -> None:
    del held[key]


class DS(data.Dataset[Any]):
    def __init__(self, count: int = 5):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.ones(2)


class IDS(data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([1, 2])


def _calls() -> list[tuple[str, str]]:
    kind, found = "", []
    for row in pathlib.Path(__file__).with_name("wrong_calls.txt").read_text().splitlines():
        if row.startswith("# "):
            kind = row[2:]
        elif row:
            found.append((row, kind))
    return found


NAMES = {
    "DS": DS, "F": F, "I": I, "IDS": IDS, "L": L, "data": data, "deli": deli, "dist": dist,
    "init": init, "linalg": linalg, "nn": nn, "opt": opt, "optim": optim, "par": par,
    "sched": sched, "seta": seta, "setit": setit, "t": t, "torch": torch,
}  # fmt: skip
KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError,
        TypeError, ValueError,
    )
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind"), _calls())
def test_a_wrong_call_raises_what_pytorch_raises(call: str, kind: str) -> None:
    with pytest.raises(KINDS[kind]):
        _computed(call)


def _computed(call: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = eval(call, dict(NAMES))
        return found.tolist() if hasattr(found, "tolist") else found
