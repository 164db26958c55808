"""The table of cases: an op, a pattern of arguments, a dtype."""

from __future__ import annotations

from tests.conformance.case import Case
from tests.conformance.patterns import elementwise_cases

__all__ = ["CASES"]

CASES: list[Case] = [*elementwise_cases()]
