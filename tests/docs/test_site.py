"""The documentation site: its reference has every public name, its navigation every page."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest

import tilegrad
from docs.site import reference
from tests.docs.pages import ROOT
from tilegrad import Tensor, nn


def text(module: str) -> str:
    return reference.page(next(page for page in reference.find() if page.module == module))


def heads(page: str) -> set[str]:
    return set(re.findall(r"^##+ `([\w.]+)`$", page, re.M))


def test_every_tensor_method_is_in_the_reference() -> None:
    public = {f"Tensor.{name}" for name in dir(Tensor) if not name.startswith("_")}
    slots = {f"Tensor.{name}" for name in ("uop", "grad")}
    assert public - slots <= heads(text("tilegrad.tensor"))


def test_modules_and_their_names_are_in_the_reference() -> None:
    """What `tilegrad` and `nn` export is a name on a page, or a module that has one."""
    pages = {page.module for page in reference.find()}
    for owner in (tilegrad, nn):
        listed = heads(text(owner.__name__))
        for name in owner.__all__:
            value = getattr(owner, name)
            is_module = isinstance(value, ModuleType)
            assert value.__name__ in pages if is_module else name in listed, name


@pytest.mark.parametrize("page", reference.find(), ids=lambda page: page.title)
def test_a_page_lists_what_its_module_exports(page: reference.Page) -> None:
    assert {name.name for name in reference.names(page)} == heads(reference.page(page))


def test_signatures_are_as_they_are_written() -> None:
    def f(self: object, x: int = 1, mode: str = "up", **rest: dict[str, int]) -> Tensor:
        raise NotImplementedError

    short = "f(x: int = 1, mode: str = 'up', **rest: dict[str, int]) -> Tensor"
    assert reference.signature("f", f) == short
    long = reference.signature("Tensor.interpolate", Tensor.interpolate).splitlines()
    assert long[0] == "Tensor.interpolate("
    assert long[1] == "    size: int | Sequence[int] | None = None,"
    assert len(inspect.signature(Tensor.interpolate).parameters) == len(long) - 1


def test_docstrings_become_markdown() -> None:
    doc = """It is.

    before   x
    after    y

Attributes:
    a, b: two numbers
        of one size.
    c: another.

>>> 1 + 1
2
"""
    assert reference.body(doc).split("\n\n") == [
        "It is.", "```text\nbefore   x\nafter    y\n```", "Attributes:",
        "* `a, b`: two numbers of one size.\n* `c`: another.", "```pycon\n>>> 1 + 1\n2\n```",
    ]  # fmt: skip


def test_pages_of_the_navigation_are_there() -> None:
    """The rest is put there by docs/site/hooks.py."""
    named = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    assert named[:2] == ["index.md", "tour.md"]
    assert [name for name in named[1:] if not (ROOT / "docs" / name).is_file()] == []
