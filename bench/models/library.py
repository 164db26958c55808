"""What a library has to offer to be measured."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LEARNING_RATES", "STEPS", "Library", "Made", "call"]

# By the kind of row; ResNet-18 takes SGD with a momentum of 0.9, the others Adam or AdamW.
LEARNING_RATES = {
    "mlp_step": 1e-3,
    "convnet_step": 1e-3,
    "resnet_step": 1e-2,
    "transformer_step": 3e-4,
}
# Steps whose losses are compared.
STEPS = 3


@dataclass(frozen=True)
class Made:
    """Work that is ready to run.

    Attributes:
        run: does it once, to the end.
        values: numbers of its result, in float64; for a training step the losses of a few.
        facts: what else is known, such as the number of kernels.
    """

    run: Callable[[], Any]
    values: Callable[[], Any]
    facts: Callable[[], dict[str, Any]] = field(default=dict)


class Library:
    """The rows as methods by their kinds: they take the row's arrays and its sizes, as far as they
    name them. A row without a method is one that the library does not have.

    Attributes:
        engine: the way in which the work made next will run.
    """

    engine = ""

    def make(self, kind: str, arrays: tuple[Any, ...], sizes: dict[str, Any], engine: str) -> Made:
        self.engine = engine
        made: Made = call(getattr(self, kind), arrays, sizes)
        return made


def call(function: Callable[..., Any], arrays: tuple[Any, ...], sizes: dict[str, Any]) -> Any:
    """The function of the arrays, and of those sizes that it names."""
    names = inspect.signature(function).parameters
    return function(*arrays, **{name: size for name, size in sizes.items() if name in names})
