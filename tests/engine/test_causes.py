"""`DEBUG=1` says why a graph is planned anew."""

from __future__ import annotations

import re

import pytest

from tilegrad import Context, Tensor, dtypes

LINE = re.compile(r"plan \d+ of \d+ nodes, as plan \d+ but for (.*)")


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [found[1] for found in LINE.finditer(capsys.readouterr().out)]


def step(rows: int, rate: float, dtype: object = dtypes.float32) -> Tensor:
    x = Tensor.ones(rows, 3).contiguous().cast(dtype).realize()
    return (x.log1p().sinh() * rate).sum(1).realize()


def test_a_number_that_changes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=1):
        step(41, 0.3)
        step(41, 0.7)
    (line,) = [each for each in told(capsys) if each.startswith("a number")]
    assert line.startswith("a number: 0.3 became 0.7  x.log1p().sinh() * rate  test_causes.py:")


def test_the_third_number_is_planned_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=1):
        step(42, 0.3)
        step(42, 0.7)
        capsys.readouterr()
        step(42, 0.9)
    assert told(capsys) == []


def test_a_size_that_changes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    # Otherwise it is a variable at once, which a line of its own says.
    with Context(DEBUG=1, SIZES=0):
        step(43, 0.3)
        capsys.readouterr()
        step(44, 0.3)
    lines = told(capsys)
    assert any(
        re.match(r"a size: (43|129) became (44|132), and \d+ more  x.*py:\d+", line)
        for line in lines
    ), lines


def test_a_dtype_that_changes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = (Tensor([1.0, 2.0], dtype=dtype).realize() for dtype in ("float32", "float64"))
    with Context(DEBUG=1):
        x.exp2().realize()
        capsys.readouterr()
        y.exp2().realize()
    (line,) = told(capsys)
    assert line.startswith("a dtype: float32 became float64")


def test_a_longer_graph_is_named_by_what_comes_then(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([[1.0, 2.0, 5.0]]).realize()
    with Context(DEBUG=1):
        x.cos().sqrt().exp2().realize()
        x.cos().sqrt().exp2().log2().realize()
    out = capsys.readouterr().out
    assert re.search(r"as plan \d+ for \d nodes but for the structure: then LOG2  .*py:\d+", out)


def test_a_graph_like_no_other_is_not_planned_anew(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([[3, 4, 5]]).realize()
    with Context(DEBUG=1):
        x.cumsum(0).realize()
        capsys.readouterr()
        y.bitwise_xor(1).permute(1, 0).contiguous().realize()
    assert told(capsys) == []
