"""What tests of modules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _modes_of_one_test() -> Iterator[None]:
    """What a test says of modes is not said for the tests after it."""
    yield
    from tilegrad.nn import module

    module._has_modes.set(False)
