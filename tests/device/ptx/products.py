"""Products on matrix units that the interpreter runs, and what they give."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.device.ptx.device import simulated
from tests.device.ptx.memory import GlobalMemory
from tilegrad import Tensor

__all__ = ["check_convolution", "column_sums", "drawn", "operands_in", "result_in"]

Array = np.ndarray[Any, Any]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def check_convolution(name: str, images: int, outputs: int = 64) -> None:
    """A convolution on the device `name` beside the sum over its filter windows in float64."""
    image, weight = drawn(images, 64, 8, 8), drawn(outputs, 64, 3, 3, seed=1)
    device = simulated(name)
    x, w = (Tensor(array, device=device).realize() for array in (image, weight))
    wide = np.pad(image.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    wanted = np.einsum("bcijyx,ocyx->boij", windows, weight.astype(float))
    found = x.conv2d(w, padding=1).numpy().astype(float)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.1)


def operands_in(held: GlobalMemory, m: int, n: int, k: int) -> list[int]:
    """Where a result, ones and rows that count are in memory: the parameters of a product."""
    left = np.ones((m, k), np.float16)
    right = (np.arange(k * n).reshape(k, n) % 7).astype(np.float16)
    starts = [held.allocate(size) for size in (m * n * 4, left.nbytes, right.nbytes)]
    for start, values in zip(starts[1:], (left, right)):
        held.window(start, values.nbytes)[:] = values.view(np.uint8).reshape(-1)
    return starts


def result_in(held: GlobalMemory, start: int, m: int, n: int) -> Array:
    return held.window(start, m * n * 4).view(np.float32).reshape(m, n)


def column_sums(m: int, n: int, k: int) -> Array:
    """The product of these operands."""
    return np.tile((np.arange(k * n).reshape(k, n) % 7).sum(0), (m, 1))


def altered(text: str, pattern: str, instead: str) -> str:
    """A kernel's text with something else wherever `pattern` is; a look ahead, or the beginning of
    the text, goes over lines.
    """
    flags = re.S if "(?!" in pattern or r"\A" in pattern else 0
    changed, times = re.subn(pattern, instead, text, flags=flags)
    assert times
    return changed
