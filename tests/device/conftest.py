"""What tests of products on matrix units share: kernels of large products, at sizes that an
interpreter can run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilegrad import Context
from tilegrad.optimize.generators import heuristic_units


@pytest.fixture
def uncached() -> Iterator[None]:
    """Kernels with other tiles than usual stay in the test."""
    with Context(DISABLE_COMPILER_CACHE=1, SIZES=0):
        yield


@pytest.fixture
def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products have the tiles of large ones."""
    monkeypatch.setattr(heuristic_units, "BUSY", 1)
