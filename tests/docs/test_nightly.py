"""docs/nightly.md keeps what it says of folders that did not run again."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from tests.nightly import failed_of, render, rows_of, section_of, slowest_of


def case(name: str, *, fails: bool = False) -> Element:
    module, _, function = name.partition("::")
    found = Element("testcase", {"classname": module, "name": function, "time": "2"})
    if fails:
        SubElement(found, "failure")
    return found


def test_rows_and_failures_of_other_folders_stay() -> None:
    first = [case("tests.nn.test_a::test_x"), case("tests.io.test_b::test_y", fails=True)]
    page = render(first, 60, "one day", "aaaaaaa")
    assert rows_of(page) == {"io": "| io | aaaaaaa | 1 | 2 |", "nn": "| nn | aaaaaaa | 1 | 2 |"}
    assert failed_of(page) == ["tests.io.test_b::test_y"]
    second = render([case("tests.nn.test_a::test_x")], 60, "the next", "bbbbbbb", page)
    assert rows_of(second) == {"io": "| io | aaaaaaa | 1 | 2 |", "nn": "| nn | bbbbbbb | 1 | 2 |"}
    assert failed_of(second) == ["tests.io.test_b::test_y"]
    assert sorted(slowest_of(second)) == [
        ("tests.io.test_b::test_y", "io", 2),
        ("tests.nn.test_a::test_x", "nn", 2),
    ]


def test_a_failure_goes_when_the_test_passed_once_more() -> None:
    page = render([case("tests.io.test_b::test_y", fails=True)], 60, "one day", "aaaaaaa")
    again = [case("tests.io.test_b::test_y")]
    second = render([case("tests.nn.test_a::test_x")], 60, "the next", "bbbbbbb", page, again)
    assert failed_of(second) == [] and set(rows_of(second)) == {"io", "nn"}


def test_what_a_page_says_of_another_way_to_run_is_found() -> None:
    section = "With `A=2`, commit aaaaaaa: 2 tests passed, 1 failed\n(io, nn).\n* failed: `x`\n"
    page = f"# Nightly\n\n{section}"
    assert section_of(page, "With `A=2`") == f"\n{section}"
    later = f"{page}\nWith pages: 1 tests passed, 0 failed\n(io).\n"
    assert section_of(later, "With `A=2`") == f"\n{section}"
    assert section_of(page, "With pages") == ""
