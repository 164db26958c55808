"""Function names."""

from __future__ import annotations

import pytest

from tilegrad.render.names import function_name, variable_name


@pytest.mark.row("M11.6")
def test_odd_characters_become_hexadecimal_pairs() -> None:
    assert function_name("r_<length[4-8]>") == "r_3Clength5B42D85D3E"
    assert function_name("E_4_4n1") == "E_4_4n1"
    assert function_name("E_é") == "E_C3A9"


@pytest.mark.row("M11.6")
def test_the_function_name_has_no_colours() -> None:
    assert function_name("E_\x1b[36m4\x1b[0m\x1b[90m_\x1b[0m\x1b[33m4\x1b[0m") == "E_4_4"


def test_a_name_never_begins_with_a_digit() -> None:
    assert function_name("4x") == "_4x"
    assert function_name("") == "_"


def test_variables_keep_their_names_unless_they_clash() -> None:
    assert variable_name("start_pos") == "start_pos"
    assert [variable_name(name) for name in ("while", "val0", "float4", "make_x")] == [
        "while_",
        "val0_",
        "float4_",
        "make_x_",
    ]
    assert [variable_name(name) for name in ("value", "dim1", "data")] == ["value", "dim1", "data"]
