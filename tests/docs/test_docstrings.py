"""Docstrings of Tensor, nn, func and io name each argument, the shapes and dtypes that come in and
out, and the errors. The statements about dtypes and errors that many functions share are compared
with calls.

That there is an example, and that examples run, is held by tests/docs/test_public_names.py and the
tests beside each folder.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.site import reference
from tests.docs.test_public_names import WITHOUT, text
from tilegrad import Tensor, dtypes, func, nn
from tilegrad.base import errors

TITLES = {
    "Tensor", "func", "io", "nn", "nn.data", "nn.datasets", "nn.distributions", "nn.functional",
    "nn.init", "nn.optim", "nn.schedulers", "nn.state", "nn.utils",
}  # fmt: skip
ERRORS = set(errors.__all__) | {"NotImplementedError", "BufferError", "AttributeError"}
PAGES = [page for page in reference.find() if page.title in TITLES]
METHODS = [
    each for page in reference.find() if page.title == "Tensor" for each in reference.names(page)
]


def function_of(value: Any) -> Any:
    plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    return plain.fget if isinstance(plain, property) else plain


@functools.cache
def documents() -> dict[str, list[str]]:
    """The docstrings that backticks can refer to, by name."""
    found: dict[str, list[str]] = {}
    owners = {"": Tensor, "nn.": nn, "functional.": nn.functional, "utils.": nn.utils,
              "parametrizations.": nn.utils.parametrizations, "func.": func}  # fmt: skip
    for prefix, owner in owners.items():
        for name in dir(owner):
            document = text(inspect.getattr_static(owner, name, None))
            for spelled in {name, prefix + name}:
                found.setdefault(spelled, []).append(document)
    return found


def others(document: str, depth: int = 2) -> list[str]:
    """The docstrings of the names that this one refers to: "As `abs`", "arguments as `nn.RNN`"."""
    named = re.findall(r"`((?:\w+\.)?\w+)`", document)
    found = [each for name in named for each in documents().get(name, ())]
    return found + [each for one in found if depth > 1 for each in others(one, depth - 1)]


def lacks(value: Any) -> list[str]:
    """What the docstring of a public name does not say."""
    document, plain = text(value), function_of(value)
    everything = "\n".join([document, *others(document)])
    wrong = []
    try:
        parameters = inspect.signature(plain).parameters
    except (TypeError, ValueError):
        parameters = {}
    for name in parameters:
        if name not in ("self", "cls", "dim", "args", "options") and not re.search(
            rf"\b{name}\b", everything
        ):
            wrong.append(f"argument {name}")
    if inspect.isclass(plain):
        says = re.search(r"^\s*(Shape:|Raises|Args:|Attributes:)", document, re.M)
        wrong += [] if says else ["Shape: or Raises"]
    elif not re.search(r"^\s*Returns", everything, re.M):
        wrong.append("Returns")
    is_tensor = inspect.isclass(plain) or "Tensor" in document or "tensor" in everything
    shapes = r"shape|size|\(\.\.\.|\(N|number|vector|matri|any shape|one element|view|tuple|list"
    shapes += "|Returns (a bool|an int|this tensor|a dict of texts)"
    if is_tensor and not re.search(shapes, everything):
        wrong.append("a shape")
    dtypes_named = r"dtype|float|int\d|uint|\bint\b|bool|integer|complex|number|bytes|text"
    if is_tensor and not re.search(dtypes_named, everything) and not is_without_dtype(value):
        wrong.append("a dtype")
    wrong += [f"Raises {name}" for name in raised(plain) if name not in everything]
    return wrong


# Names whose values have no dtype, or any: layers of layers, functions of functions, data sets and
# their orders, distributions (those that derive say theirs), and layers that are changed in place.
WITHOUT_DTYPE = {
    "max_shape", "Sequential", "Module", "vmap", "BatchSampler", "ChainDataset", "ConcatDataset",
    "IterableDataset", "Sampler", "SequentialSampler", "StackDataset", "Subset", "random_split",
    "Distribution", "TransformedDistribution", "register_kl", "Unmatched", "remove_spectral_norm",
    "remove_weight_norm",
}  # fmt: skip


def is_without_dtype(value: Any) -> bool:
    return getattr(function_of(value), "__name__", "") in WITHOUT_DTYPE


def raised(function: Any) -> set[str]:
    """The errors of users that a function, or a class's `__init__`, raises in its own body."""
    body = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
    code = getattr(body, "__code__", None)
    return errors_of(code.co_filename).get(code.co_firstlineno, set()) if code else set()


@functools.cache
def errors_of(path: str) -> dict[int, set[str]]:
    """The errors that each function of a file raises, by its first line."""
    if not Path(path).is_file():
        return {}
    found = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.FunctionDef):
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            raising = [each.exc for each in ast.walk(node) if isinstance(each, ast.Raise)]
            called = [each.func for each in raising if isinstance(each, ast.Call)]
            found[line] = {getattr(each, "id", getattr(each, "attr", "")) for each in called}
            found[line] &= ERRORS
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_docstrings_say_arguments_shapes_results_and_errors(page: reference.Page) -> None:
    wrong = {
        each.name: found
        for each in reference.names(page)
        if each.name not in WITHOUT and (found := lacks(each.value))
    }
    assert not wrong


def lacks_itself(name: str, value: Any) -> list[str]:
    """What a reader of this docstring alone does not find: an entry for each argument under Args,
    and an example; or else the name that has them, as in "arguments as `RNN`" and "As `abs`".
    """
    document, plain = text(value), function_of(value)
    if re.search(r"\b[Aa]s\s+`|`\w+` with ", document.partition("\n\n")[0]):
        return []
    try:
        parameters = list(inspect.signature(plain).parameters)
    except (TypeError, ValueError):
        parameters = []
    wrong = [
        f"Args: {each}"
        for each in parameters
        if inspect.isfunction(plain)
        and each not in ("self", "cls")
        and not each.startswith("_")
        and not re.search(rf"^\s+\*{{0,2}}(\w+, )*{each}(, \w+)*:", document, re.M)
    ]
    if inspect.isclass(plain) and parameters and not re.search("Args:|Attributes:", document):
        wrong.append("Args")
    return wrong + ([] if ">>> " in document or name in FETCHING else ["an example"])


# What fetches files.
FETCHING = {"mnist", "fashion_mnist"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_docstrings_have_arguments_and_examples_of_their_own(page: reference.Page) -> None:
    wrong = {
        each.name: found
        for each in reference.names(page)
        if each.name not in WITHOUT and (found := lacks_itself(each.name, each.value))
    }
    assert not wrong


def test_a_docstring_without_arguments_of_its_own_is_found() -> None:
    def poor(x: Tensor, width: int) -> Tensor:
        """Widen a tensor.

        Args:
            x: a tensor of any shape.

        Returns a tensor.
        """
        return x

    assert lacks_itself("poor", poor) == ["Args: width", "an example"]


def test_a_docstring_that_says_less_is_found() -> None:
    def poor(x: Tensor, width: int) -> Tensor:
        """Change a tensor."""
        raise errors.ShapeError("no")

    assert lacks(poor) == [
        "argument x",
        "argument width",
        "Returns",
        "a shape",
        "a dtype",
        "Raises ShapeError",
    ]


def required(name: str) -> list[str] | None:
    """The arguments that a method of Tensor needs, None for what is no method."""
    value = inspect.getattr_static(Tensor, name)
    if not inspect.isfunction(value) or name.endswith("_"):
        return None
    parameters = list(inspect.signature(value).parameters.values())[1:]
    return [each.name for each in parameters if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]  # fmt: skip


def family(sentence: str, arguments: list[str]) -> list[str]:
    """The methods of Tensor that say a sentence and need these arguments."""
    names = [each.name.removeprefix("Tensor.") for each in METHODS]
    plain = {name: " ".join(text(getattr(Tensor, name)).split()) for name in names}
    return sorted(name for name in names if sentence in plain[name] and required(name) == arguments)


KEPT = (dtypes.bool, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.float32)


def floated(dtype: Any) -> Any:
    return dtype if dtype.is_float else dtypes.float32


SENTENCES: list[tuple[str, list[str], Callable[[Any], Any]]] = [
    ("Returns a tensor of this shape and dtype.", [], lambda dtype: dtype),
    ("Returns a bool tensor of this shape.", [], lambda dtype: dtypes.bool),
    ("Returns a tensor of this shape; floats keep their dtype, bool and integers give the default "
     "float (float32).", [], floated),
    ("Returns a tensor of the broadcast shape, in the dtype to which the two promote.", ["other"],
     lambda dtype: dtype),
    ("Returns a tensor of the broadcast shape, in the dtype to which the two promote; two bools "
     "give int32.", ["other"], lambda dtype: dtypes.int32 if dtype == dtypes.bool else dtype),
    ("Returns a tensor of the broadcast shape, in the dtype to which the two promote, or the "
     "default float (float32) if that is no float.", ["other"], floated),
    ("Returns a bool tensor of the broadcast shape.", ["other"], lambda dtype: dtypes.bool),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "arguments", "dtype_of"), SENTENCES)
def test_results_have_the_shapes_and_dtypes_that_docstrings_say(
    sentence: str, arguments: list[str], dtype_of: Callable[[Any], Any]
) -> None:
    names = family(sentence, arguments)
    assert len(names) > 3
    wrong = []
    for name in names:
        for dtype in KEPT:
            x = Tensor.full((3, 3), 1, dtype=dtype)
            try:
                made = getattr(x, name)(*[Tensor.full((3, 3), 1, dtype=dtype) for _ in arguments])
            except errors.DTypeError:
                continue
            if made.shape != (3, 3) or made.dtype != dtype_of(dtype):
                wrong.append(f"{name} of {dtype.name}: {made.shape} {made.dtype.name}")
    assert not wrong


def test_operands_that_do_not_broadcast_are_the_error_that_docstrings_say() -> None:
    names = family("ShapeError unless the shapes broadcast", ["other"])
    assert len(names) > 25
    for name in names:
        with pytest.raises(errors.ShapeError):
            getattr(Tensor([1, 2, 3]), name)(Tensor([1, 2]))


def test_an_axis_out_of_range_is_the_error_that_docstrings_say() -> None:
    names = family("IndexBoundsError for an axis that is out of range", [])
    assert len(names) > 40
    wrong = []
    for name in names:
        parameters = inspect.signature(getattr(Tensor, name)).parameters
        axis = next((each for each in ("axis", "dim", "dims", "dim0") if each in parameters), None)
        if axis is None:
            continue
        given: Any = (7, 0) if axis == "dims" else 7
        try:
            getattr(Tensor([[1.0, 2.0], [3.0, 4.0]]), name)(**{axis: given})
        except errors.IndexBoundsError:
            continue
        except errors.TilegradError as error:
            wrong.append(f"{name}: {type(error).__name__}")
        else:
            wrong.append(f"{name}: none")
    assert not wrong
