"""Every op, with every dtype it is defined for, on arguments of many shapes and layouts."""

from __future__ import annotations

import pytest

from tests.conformance.case import Case
from tests.conformance.cases import CASES


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.often else pytest.mark.nightly)
        for case in CASES
    ],
)
def test_op(case: Case) -> None:
    case.check()
