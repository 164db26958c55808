"""Functions that are written line by line."""

from __future__ import annotations

import gc
import traceback
import weakref
from pathlib import Path

import pytest

import tilegrad
from tilegrad.base.flat_code import FlatCode, row_of


def test_the_lines_see_objects_by_their_names() -> None:
    code = FlatCode(add=lambda a, b: a + b)
    table = {"x": 5}
    code.unless(f"x not in {code.name(table)}", "x is None")
    code.lines.append(f"return add({code.name(table)}[x], 1)")
    assert code.name(table) == code.name(table) != code.name({"x": 5})
    function = code.function("look(x)", "looks")
    assert function("x") == 6
    table["y"] = 7
    assert function("y") == 8 and function("z") is None and function(None) is None


def test_no_condition_leaves_no_line() -> None:
    code = FlatCode()
    code.unless()
    assert code.lines == []


def test_a_traceback_names_the_file() -> None:
    code = FlatCode()
    code.lines.append("return 1 // x")
    with pytest.raises(ZeroDivisionError) as raised:
        code.function("divided(x)", "quotients")(0)
    path = Path(traceback.extract_tb(raised.tb)[-1].filename)
    assert path.name == "<quotients>"
    assert path.parent == Path(tilegrad.__file__).parent, "or it counts as the user's"


def test_what_a_function_names_goes_with_it() -> None:
    class Held:
        pass

    held = Held()
    known = weakref.ref(held)
    code = FlatCode(held=held)
    code.lines.append("return held")
    function = code.function("given()", "test")
    assert function() is held
    gc.disable()
    try:
        del held, code, function
        # No cycle of the function and its names keeps it.
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"]])
def test_rows_are_tuples(names: list[str]) -> None:
    values = {name: name.upper() for name in names}
    assert eval(row_of(names), dict(values)) == tuple(values.values())
