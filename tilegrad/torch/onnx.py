"""`torch.onnx`: what libraries say beforehand of files of ONNX, which are not written here."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known

__all__ = [
    "OperatorExportTypes", "TrainingMode", "is_in_onnx_export", "parse_args",
    "register_custom_op_symbolic", "unregister_custom_op_symbolic",
]  # fmt: skip

Given = TypeVar("Given")


class TrainingMode(enum.IntEnum):
    """How a model is to be written."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.IntEnum):
    """Which operations may be written."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_in_onnx_export() -> bool:
    """False: no file is written."""
    return False


def parse_args(*kinds: str) -> Callable[[Given], Given]:
    """A decorator that gives the function as it is: no operation is written by it."""
    return lambda function: function


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Nothing: no operation is written by that function."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing: none is registered."""


also_known(__name__, ("symbolic_helper", *(f"symbolic_opset{version}" for version in range(9, 21))))

refuse_others(__name__)
