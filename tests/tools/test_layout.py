"""Grids of where elements lie."""

from __future__ import annotations

import pytest

from tilegrad.__main__ import main
from tilegrad.base.errors import DataError, ShapeError
from tilegrad.ir.view import View
from tilegrad.tools.layout import grids_of_index, grids_of_views, view_of

# A matrix of 3 by 2, turned, and read as 3 by 2 again.
PAIR = """\
(((((ridx0*2)+ridx1)%3)*2)+(((ridx0*2)+ridx1)//3))

position of each element of 3x2
0  2
4  1
3  5

element at each position
0,0  1,1
0,1  2,0
1,0  2,1
"""


@pytest.mark.row("M1.12")
def test_views_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "2x3:1,2", "3x2"]) == 0
    assert capsys.readouterr().out == PAIR


@pytest.mark.row("M1.12")
def test_an_index_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    index = PAIR.splitlines()[0]
    assert main(["layout", "--index", index, "3x2"]) == 0
    assert capsys.readouterr().out == PAIR


def test_holes_masks_and_sharing() -> None:
    assert grids_of_views([View.create((2,), (3,))]).splitlines()[-2:] == ["0  .", ".  1"]
    padded = View.create((2,)).pad(((1, 0),))
    assert grids_of_views([padded]).splitlines()[3] == ".  0  1"
    assert grids_of_index("ridx0 % 2", (4,)).splitlines()[-1] == "0 2  1 3"
    assert grids_of_index("5", ()).splitlines()[3] == "5"


def test_text_of_a_view() -> None:
    assert view_of("4") == View.create((4,))
    assert view_of("2x3:1,-2+4") == View.create((2, 3), (1, -2), 4)
    for text in ("", "2x", "2:a", "x2", "2x3:1+"):
        with pytest.raises(DataError, match="SHAPE"):
            view_of(text)
    with pytest.raises(ShapeError, match="strides"):
        view_of("2x3:1")


@pytest.mark.parametrize(
    "index", ["ridx0 +", "ridx1", "ridx0 / 2", "open('x')", "ridx0 // 0", "ridx0 ** 9"]
)
def test_what_no_index_may_be(index: str) -> None:
    with pytest.raises(DataError, match="layout"):
        grids_of_index(index, (4,))


def test_too_much_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "100x100"]) == 1
    assert "10000 elements" in capsys.readouterr().err
    assert main(["layout", "2", "3", "--index", "ridx0"]) == 1
    assert "one shape" in capsys.readouterr().err
