"""The rows that NumPy has, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from models.inputs import some
from models.library import Library, Made

__all__ = ["Numpy"]


class Numpy(Library):
    def __init__(self, threads: int):
        """Of its matrix products: those of the process."""

    def _run(self, function: Callable[[], Any]) -> Made:
        def values() -> list[float]:
            found = function()
            return some(*found) if isinstance(found, tuple) else some(found)

        return Made(function, values)

    def matmul(self, a: Any, b: Any) -> Made:
        out = a @ b
        return self._run(lambda: np.matmul(a, b, out=out))

    def sort(self, x: Any) -> Made:
        def function() -> Any:
            order = x.argsort(kind="stable")
            return x[order], order

        return self._run(function)

    def topk(self, x: Any, k: int) -> Made:
        def function() -> Any:
            found = np.argpartition(x, -k)[-k:]
            order = found[x[found].argsort()[::-1]]
            return x[order], order

        return self._run(function)

    def chain(self, x: Any, turned: Any, steps: int) -> Made:
        def function() -> Any:
            found = x
            for _ in range(steps):
                found = found @ turned
            return found

        return self._run(function)
