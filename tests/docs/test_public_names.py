"""Every public name has a docstring with an example, and the examples run.

Those of Tensor, nn and io run beside their tests; the rest here. An example is cheap: the kernels
of tiny tensors.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
from typing import Any

import pytest

import tilegrad
from docs.site import reference
from tilegrad import Tensor, dtypes, nn

# What fetches files, constants, and lower layers, whose pages are docs/ and whose examples tests.
WITHOUT = {
    "mnist", "fashion_mnist", "cifar10", "MNIST_URL", "FASHION_MNIST_URL",
    # Slots, which the docstring of the class describes.
    "Tensor.uop", "Tensor.grad", "Tensor.device", "Tensor.dtype",
    "AddressSpace", "Pointer", "located",
    # Constants and dtypes of the array API.
    "__array_api_version__", "newaxis", "e", "inf", "nan", "pi", "bool", "float32", "float64",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
}  # fmt: skip
# Modules of names without examples of their own: switches are read, errors are raised by others.
PLAIN = ("tilegrad.base.errors", "tilegrad.base.config")
ELSEWHERE = ("tilegrad.nn", "tilegrad.tensor", "tilegrad.io")
PAGES = [page for page in reference.find() if page.module not in PLAIN]


def text(value: Any) -> str:
    plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    return (plain.fget if isinstance(plain, property) else plain).__doc__ or ""


def points_to_an_example(document: str) -> bool:
    """`As `other`` and `nn.Other`: the same by another name."""
    for path in re.findall(r"`((?:nn\.|functional\.)?\w+)`", document):
        for owner in (Tensor, nn, nn.functional, tilegrad):
            found: Any = owner
            for part in path.removeprefix("nn.").removeprefix("functional.").split("."):
                found = getattr(found, part, None)
            if ">>> " in (getattr(found, "__doc__", None) or ""):
                return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_a_public_name_has_an_example(page: reference.Page) -> None:
    without = []
    for each in reference.names(page):
        document = text(each.value)
        if each.name not in WITHOUT and not (">>> " in document or points_to_an_example(document)):
            without.append(f"{each.name}: no {'example' if document.strip() else 'docstring'}")
    assert without == []


RUNNING = {
    (inspect.getmodule(each.value) or tilegrad).__name__ + "." + each.name: each.value
    for page in reference.find()
    if not page.of
    for each in reference.names(page)
    if ">>> " in (getattr(each.value, "__doc__", None) or "")
}


@pytest.mark.parametrize("name", [name for name in RUNNING if not name.startswith(ELSEWHERE)])
def test_an_example_runs(name: str) -> None:
    value = RUNNING[name]
    module = importlib.import_module(name.rpartition(".")[0])
    names = {**{each: getattr(tilegrad, each) for each in tilegrad.__all__}, "dtypes": dtypes}
    examples = doctest.DocTestFinder(recurse=False).find(value, name, globs=vars(module) | names)
    assert sum(len(example.examples) for example in examples)
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert runner.failures == 0


def test_examples_that_read_a_file_of_others_run() -> None:
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    module = importlib.import_module("tilegrad.nn.datasets")
    for value in (module.digits, module.Dataset):
        (example,) = doctest.DocTestFinder(recurse=False).find(value, "data", globs={"nn": nn})
        runner = doctest.DocTestRunner()
        runner.run(example)
        assert runner.failures == 0


def test_an_alias_points_to_what_has_an_example() -> None:
    assert points_to_an_example("As `abs`; the result is this tensor's value from now on.")
    assert points_to_an_example("`functional.mse_loss`.") and points_to_an_example("`nn.ReLU`.")
    assert not points_to_an_example("As `nothing_like_it`.") and not points_to_an_example("Words.")
