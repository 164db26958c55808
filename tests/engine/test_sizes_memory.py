"""Kernels of a plan for a range of sizes read nothing beside the memory of the size at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guarded import guard_pages

PROGRAM = """
import numpy as np
from tilegrad import Tensor

numbers = np.random.default_rng(0)

def gradient_of_weight(x, dy):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = x.shape[2:]
    moved = [[padded[:, :, i:i + rows, j:j + columns] for j in range(3)] for i in range(3)]
    found = [[np.einsum("noyx,ncyx->oc", dy, each) for each in row] for row in moved]
    return np.moveaxis(np.array(found), (0, 1), (2, 3))

def draw(*shape):
    return numbers.normal(size=shape).astype(np.float32)

for channels, outputs, size in ((1, 4, 8), (3, 8, 6), (4, 16, 12)):
    for length in (8, 5, 8, 7, 3, 12, 2, 9, 31, 4):
        x, dy = draw(length, channels, size, size), draw(length, outputs, size, size)
        w = draw(outputs, channels, 3, 3)
        given, weight = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
        (given.conv2d(weight, padding=1) * Tensor(dy)).sum().backward()
        wanted = gradient_of_weight(x.astype(np.float64), dy.astype(np.float64))
        np.testing.assert_allclose(weight.grad.numpy(), wanted, rtol=1e-3, atol=1e-3)
        given.grad.numpy()
for inner, outer in ((32, 48), (100, 7), (64, 64)):
    for length in (8, 5, 40, 7, 3, 120, 2, 9, 31, 4):
        a, b = draw(length, inner), draw(length, outer)
        left, right = Tensor(a, requires_grad=True), Tensor(b)
        product = left.T @ right
        shares = (np.exp(a) / np.exp(a).sum(0)).sum(1)
        for ours, theirs in (
            (product, a.T.astype(np.float64) @ b),
            (left @ left.T, a.astype(np.float64) @ a.T),
            (left.softmax(0).sum(1), shares),
            (left.cumsum(0), a.cumsum(0)),
        ):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-3, atol=1e-3)
print("right")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are guarded by mprotect")
@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        ("after", "2"),
        *(
            pytest.param(kind, threads, marks=pytest.mark.nightly)
            for kind in guard_pages.KINDS
            for threads in ("1", "2")
            if (kind, threads) != ("after", "2")
        ),
    ],
)
def test_nothing_beside_the_memory_of_a_length_is_read(
    tmp_path: Path, kind: str, threads: str
) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            **guard_pages.environment(kind),
            "TILEGRAD_CACHE": str(tmp_path),
            "TILEGRAD_SIZES": "1",
            "TILEGRAD_THREADS": threads,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, "right\n"), found.stderr[-2000:]
