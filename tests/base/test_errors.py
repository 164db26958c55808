"""Errors: one line of fact, then a labelled line per detail; each is also a built-in error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilegrad import Tensor, nn
from tilegrad.base import errors


def test_layout() -> None:
    error = errors.ShapeError(
        "matmul: inner sizes differ: 784 and 512",
        left="(32, 784)  mnist.py:14",
        right="(512, 10)  mnist.py:9",
        rule="the last axis of left must equal the second-to-last of right",
    )
    assert str(error).splitlines() == [
        "matmul: inner sizes differ: 784 and 512",
        "  left:  (32, 784)  mnist.py:14",
        "  right: (512, 10)  mnist.py:9",
        "  rule:  the last axis of left must equal the second-to-last of right",
    ]
    assert error.headline.startswith("matmul")
    assert list(error.details) == ["left", "right", "rule"]


def test_fact_alone() -> None:
    assert str(errors.DataError("load: the file ends early")) == "load: the file ends early"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ShapeError", ValueError),
        ("DTypeError", TypeError),
        ("DeviceError", RuntimeError),
        ("IndexBoundsError", IndexError),
        ("ConfigError", ValueError),
        ("OptError", ValueError),
        ("CompileError", RuntimeError),
        ("OutOfMemoryError", MemoryError),
        ("DataError", ValueError),
        ("CaptureError", RuntimeError),
        ("NotANumberError", FloatingPointError),
        ("InternalError", AssertionError),
    ],
)
def test_each_is_a_builtin_too(name: str, builtin: type[Exception]) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, builtin)
    assert issubclass(kind, errors.TilegradError)
    # PyTorch raises RuntimeError for most of what this library has classes for.
    assert issubclass(kind, RuntimeError)
    with pytest.raises(builtin, match="op: fact"):
        raise kind("op: fact", detail=1)


def test_all_are_named() -> None:
    found = vars(errors).items()
    own = {name for name, value in found if getattr(value, "__module__", "") == errors.__name__}
    assert {name for name in own if not name.startswith("_")} == set(errors.__all__)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Tensor.ones(2, 3) @ Tensor.ones(2, 3),
        lambda: Tensor.ones(2) + Tensor.ones(3),
        lambda: Tensor.ones(6).view(4),
        lambda: Tensor.ones(2).cat(Tensor.ones(2, 2)),
        lambda: Tensor.ones(2).backward(),
        lambda: Tensor([1, 2]).requires_grad_(),
        lambda: Tensor.ones(2, 2).gather(0, Tensor([[5, 5]])).item(),
        lambda: nn.Linear(2, 2).load_state_dict({}),
    ],
)
def test_what_pytorch_raises_as_runtime_errors_is_caught_as_such(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError):
        call()
