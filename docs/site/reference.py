"""The reference pages: every public name with its signature and docstring, as Markdown.

Nothing here is written by hand but the list of pages; a name that has an `__all__` of one of the
modules, or is a public attribute of Tensor, appears.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tilegrad.tensor.handle.absent_names import AbsentName

__all__ = ["PAGES", "Name", "Page", "find", "names", "page"]


@dataclass(frozen=True)
class Page:
    """A page of the site, of one module. `of` is a class of it whose attributes are listed."""

    path: str
    title: str
    module: str
    of: str = ""


@dataclass(frozen=True)
class Name:
    """A public name: what it is called from outside, the object, and where it is filed."""

    name: str
    value: Any
    section: str = ""


PAGES = [
    Page("reference/tilegrad.md", "tilegrad", "tilegrad"),
    Page("reference/tensor.md", "Tensor", "tilegrad.tensor", "Tensor"),
    Page("reference/func.md", "func", "tilegrad.func"),
    Page("reference/nn.md", "nn", "tilegrad.nn"),
    Page("reference/nn-functional.md", "nn.functional", "tilegrad.nn.functional"),
    Page("reference/nn-optim.md", "nn.optim", "tilegrad.nn.optim"),
    Page("reference/nn-schedulers.md", "nn.schedulers", "tilegrad.nn.schedulers"),
    Page("reference/nn-init.md", "nn.init", "tilegrad.nn.init"),
    Page("reference/nn-data.md", "nn.data", "tilegrad.nn.data"),
    Page("reference/nn-distributions.md", "nn.distributions", "tilegrad.nn.distributions"),
    Page("reference/nn-datasets.md", "nn.datasets", "tilegrad.nn.datasets"),
    Page("reference/nn-state.md", "nn.state", "tilegrad.nn.state"),
    Page("reference/nn-utils.md", "nn.utils", "tilegrad.nn.utils"),
    Page("reference/io.md", "io", "tilegrad.io"),
    Page("reference/array-api.md", "array_api", "tilegrad.array_api"),
    Page("reference/array-api-linalg.md", "array_api.linalg", "tilegrad.array_api.linalg"),
    Page("reference/capture.md", "capture", "tilegrad.capture"),
    Page("reference/dtypes.md", "dtypes", "tilegrad.base.dtype"),
    Page("reference/config.md", "Switches", "tilegrad.base.config"),
    Page("reference/errors.md", "Errors", "tilegrad.base.errors"),
]


def find() -> list[Page]:
    """The pages whose modules this version has."""
    return [page for page in PAGES if importlib.util.find_spec(page.module) is not None]


def names(page: Page) -> list[Name]:
    """What a page lists, in the order in which it is written down."""
    module = importlib.import_module(page.module)
    if page.of:
        return list(_attributes(getattr(module, page.of)))
    found = [Name(name, getattr(module, name)) for name in module.__all__]
    return [each for each in found if not isinstance(each.value, ModuleType)]


def _attributes(owner: type) -> Iterator[Name]:
    """The public attributes of a class, by the layer that defines them."""
    seen = set()
    for layer in owner.__mro__:
        first = " ".join((layer.__doc__ or layer.__name__).split("\n\n")[0].split())
        section = re.split(r"[.;,:] ", first.rstrip("."))[0]
        for name, value in vars(layer).items():
            is_hidden = name.startswith("_") or layer is object or isinstance(value, AbsentName)
            if is_hidden or name in seen:
                continue
            seen.add(name)
            yield Name(f"{owner.__name__}.{name}", value, section)


def page(entry: Page) -> str:
    """The Markdown of a page."""
    module = importlib.import_module(entry.module)
    owner = getattr(module, entry.of) if entry.of else module
    lines = [f"# {entry.title}", "", body(inspect.getdoc(owner) or "")]
    section = ""
    for each in names(entry):
        if each.section != section:
            section = each.section
            lines += ["", f"## {section}"]
        lines += ["", *entry_of(each, "###" if section else "##")]
    return "\n".join([*lines, ""])


def entry_of(each: Name, mark: str) -> list[str]:
    value = each.value
    plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    plain = plain.fget if isinstance(plain, property) else plain
    lines = [f"{mark} `{each.name}`", ""]
    if isinstance(value, property):
        lines += ["*attribute*", ""]
    elif callable(plain):
        lines += ["```python", signature(each.name, plain), "```", ""]
    if inspect.isclass(plain):
        lines += [body(inspect.getdoc(plain) or "")]
        for name, method in vars(plain).items():
            inner = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
            is_named = not name.startswith("_") and inspect.isfunction(inner)
            if is_named and inspect.getdoc(inner):
                lines += [
                    "",
                    f"**`{signature(name, inner)}`**",
                    "",
                    body(inspect.getdoc(inner) or ""),
                ]
    elif callable(plain) or isinstance(value, property):
        lines += [body(inspect.getdoc(plain) or "")]
    else:
        lines += [f"`{value!r}`"] if len(repr(value)) < 80 else []
    return lines


class _Bare(str):
    """An annotation, printed without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def signature(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    parameters = [
        each.replace(annotation=_bare(each.annotation))
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    text = str(found.replace(parameters=parameters,
                             return_annotation=_bare(found.return_annotation)))  # fmt: skip
    text = re.sub(r"<(?:function|object|built-in)[^>]*>", "...", text)
    if len(name + text) <= 100:
        return name + text
    inner, _, result = text[1:].rpartition(")")
    parts = re.split(r", (?![^\[(]*[\])])", inner)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def body(docstring: str) -> str:
    """A docstring as Markdown: examples and indented blocks become code, attributes a list."""
    lines: list[str] = []
    for block in re.split(r"\n[ \t]*\n", docstring):
        text = block.strip("\n")
        if ">>> " in text:
            before, _, example = text.partition(">>> ")
            lines += [before.rstrip(), "", "```pycon", f">>> {textwrap.dedent(example)}", "```", ""]
        elif re.match(r"[A-Z]\w*:\n +\S", text):
            head, _, rest = text.partition("\n")
            items = re.sub(r"\n {2,}", " ", textwrap.dedent(rest)).splitlines()
            lines += [head, "", *(re.sub(r"^([*\w, ]+):", r"* `\1`:", item) for item in items), ""]
        elif text.startswith("    "):
            lines += ["```text", textwrap.dedent(text), "```", ""]
        else:
            lines += [text, ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
