"""docs/conformance.md is of these cases, and what it says is enough."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.conformance import devices
from tests.conformance.case import Case
from tests.conformance.cases import CASES
from tests.conformance.devices import measure_devices
from tests.conformance.elementwise import ELEMENTWISE
from tests.conformance.report import PAGE, Measured, measure, number, read, render
from tests.conformance.values import check
from tests.tensor.test_dtypes_bounds import bounds
from tilegrad import Device
from tilegrad.base.dtype import dtypes


def test_the_page_lists_the_cases() -> None:
    """Its ops, dtypes, patterns and counts; the numbers stay as they were measured."""
    page = PAGE.read_text(encoding="utf-8")
    renewal = "make conformance, or python -m tests.conformance.report --list"
    assert render(CASES, read(page)) == page, f"docs/conformance.md is out of date: {renewal}"
    assert "fails" not in page and "·" not in page


def test_published_bounds_are_tested_ones() -> None:
    """The bounds of docs/dtypes.md and of the cases are the same in float32; eight are within 2
    units.
    """
    tested = {op.name: op.ulp or 0.5 for op in ELEMENTWISE if op.dtypes[-1].is_float}
    assert {name: tested[name] for name in bounds()} == {n: f32 for n, (f32, _) in bounds().items()}
    eight = ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "tanh"]
    assert max(tested[name] for name in eight) <= 2


def test_there_are_enough_patterns() -> None:
    assert len({(case.op, case.pattern) for case in CASES}) >= 600


def test_a_page_is_read_as_it_was_written() -> None:
    def right() -> None:
        check(np.array([1.0, 2.0], np.float32), [1.0, 2.0 + 2.0**-22 * 1.43], dtypes.float32, ulp=9)

    def wrong() -> None:
        check(np.array([1.0], np.float32), [2.0], dtypes.float32)

    cases = [
        Case("functions", "exp", "dense", dtypes.float32, right),
        Case("functions", "exp", "dense", dtypes.float16, wrong),
        Case("functions", "sin", "tail", dtypes.int8, lambda: None),
        Case("functions", "sin", "refused", dtypes.bool, lambda: None),
    ]
    found = measure(cases)
    assert found.worst["functions", "exp", dtypes.float32] == pytest.approx(1.43, rel=1e-6)
    assert [line.splitlines()[0] for line in found.failed] == ["exp-dense-float16: 1 of 1 differ"]
    page = render(cases, found)
    assert "| op | bool | i8 | f16 | f32 |" in page
    assert "| `exp` |  |  | fails | 1.5 |" in page and "| `sin` | refused | = |  |  |" in page
    assert "| `exp` | 1.5 | 1.5 | fails | · |" in page
    assert render(cases, read(page)) == page
    assert "| `exp` |  |  | · | · |" in render(cases, Measured())


def test_devices_are_read_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device that fails a case, and without one that is not here."""
    asked = []

    def on_emulator_wrong() -> None:
        asked.append(Device.DEFAULT)
        assert Device.DEFAULT != "EMU"

    cases = [
        Case("functions", "exp", "dense", dtypes.float32, lambda: None),
        Case("functions", "exp", "tail", dtypes.float32, on_emulator_wrong),
        Case("functions", "sin", "tail", dtypes.float32, lambda: None),
    ]
    here = {"EMU": "", "CLANG": "", "CL": "no driver"}
    monkeypatch.setattr(Device, "refusal", lambda kind: (here.get(kind, "none"), "install"))
    # Whatever compilers and processor this machine has.
    monkeypatch.setattr(devices, "SHIMS", {})
    monkeypatch.setattr(devices.platform, "machine", lambda: "none")
    failed: list[str] = []
    found = measure_devices(cases, failed)
    assert asked == ["EMU", "CLANG", "NVSIM80"]
    assert [line.split(": ")[:2] for line in failed] == [["EMU", "exp-tail-float32"]]
    assert found == {
        "EMU": {"exp": (1, 2), "sin": (1, 1)},
        "CLANG": {"exp": (2, 2), "sin": (1, 1)},
        "NV": {"exp": (2, 2), "sin": (1, 1)},
    }
    page = render(cases, Measured(devices=found))
    assert "| op | EMU | CLANG | NV |" in page and "| `exp` | 1 of 2 | 2 | 2 |" in page
    assert read(page).devices == found
    assert render(cases, read(page)) == page


@pytest.mark.parametrize(
    ("error", "text"),
    [(None, "·"), (0, "="), (math.inf, "fails"), (0.5, "0.5"), (0.501, "0.51"), (1.1, "1.1"),
     (1.41, "1.5"), (12.3, "13"), (1e-9, "0.01")],
)  # fmt: skip
def test_errors_are_rounded_up(error: float | None, text: str) -> None:
    assert number(error) == text
    assert error is None or number(read_number(text)) == text


def read_number(text: str) -> float:
    return {"=": 0.0, "fails": math.inf}.get(text) or (0.0 if text == "=" else float(text))
