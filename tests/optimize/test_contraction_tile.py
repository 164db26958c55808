"""Tiles along the fold: rows of both operands as they lie, and lanes that are summed at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.optimize.test_stage import SEED, STAGE, UNROLL, WIDE, kernel_of, run
from tilegrad import Tensor
from tilegrad.optimize.generators.heuristic import heuristic


def sides(m: int, k: int, n: int) -> tuple[Any, Any]:
    return SEED.standard_normal((m, k), np.float32), SEED.standard_normal((n, k), np.float32)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(4, 256, 96), (5, 514, 33), (11, 1031, 40), (24, 256, 64), (70, 192, 10)]
)
def test_few_rows_of_one_side(m: int, k: int, n: int) -> None:
    a, b = sides(m, k, n)
    ast = kernel_of(Tensor(a).realize() @ Tensor(b).realize().T)
    opts = heuristic(ast, WIDE)
    assert any(opt.op is UNROLL for opt in opts) and not any(opt.op is STAGE for opt in opts)
    expected = a.astype(np.float64) @ b.T
    np.testing.assert_allclose(run(ast, opts, (m, n), a, b), expected, rtol=1e-4, atol=1e-3)


def test_other_folds_of_products() -> None:
    """It is the way the operands lie that counts, not what is done to them."""
    a, b = sides(6, 768, 80)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    for result, expected in (
        ((x.unsqueeze(1) * y).max(-1), (a[:, None] * b).max(-1)),
        ((x.unsqueeze(1) + y).max(-1), (a[:, None] + b).max(-1)),
    ):
        ast = kernel_of(result)
        opts = heuristic(ast, WIDE)
        assert any(opt.op is UNROLL for opt in opts)
        np.testing.assert_allclose(run(ast, opts, (6, 80), a, b), expected, rtol=1e-6)


def test_many_rows_or_few_steps_are_packed() -> None:
    for m, k, n in ((128, 512, 128), (16, 64, 512)):
        a, b = sides(m, k, n)
        opts = heuristic(kernel_of(Tensor(a).realize() @ Tensor(b).realize().T), WIDE)
        assert any(opt.op is STAGE for opt in opts)


_WITHOUT_MASKS = """
import numpy as np
from tilegrad import Tensor

random = np.random.default_rng(1)
a, b = random.standard_normal((7, 203), np.float32), random.standard_normal((34, 203), np.float32)
found = (Tensor(a).realize() @ Tensor(b).realize().T).numpy()
np.testing.assert_allclose(found, a.astype(np.float64) @ b.T, rtol=1e-4, atol=1e-3)
"""


@pytest.mark.parametrize("target", ["avx2", "sse", "scalar"])
def test_processors_without_masks(target: str, tmp_path: Path) -> None:
    environment = {"TILEGRAD_CPU_TARGET": target, "TILEGRAD_CACHE": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", _WITHOUT_MASKS], env={**os.environ, **environment}, check=False
    )
    assert found.returncode == 0
