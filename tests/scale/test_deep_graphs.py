"""What is done with a graph does not depend on its depth: it is printed, parsed, checked, pickled,
copied and transformed without recursion, in work that grows with its size.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.scale.test_growing_writes import lines_of
from tests.scale.test_large_graphs import MOST, chain, shallow, start
from tilegrad import Tensor
from tilegrad.func import checkpoint, grad, jvp, vmap
from tilegrad.ir.definition import Stage
from tilegrad.ir.spec import verify
from tilegrad.ir.text import dump, parse
from tilegrad.ir.uop import UOp


def is_same_after_text(x: Tensor) -> None:
    assert parse(dump(x.uop)) is x.uop


def is_same_after_pickling(x: Tensor) -> None:
    assert pickle.loads(pickle.dumps(x.uop)) is x.uop


def is_valid(x: Tensor) -> None:
    verify(UOp.sink(x.uop), Stage.TENSOR, "tensor")


USES: list[Callable[[Tensor], Any]] = [
    is_same_after_text, is_same_after_pickling, is_valid,
    lambda x: repr(x), lambda x: repr(x.uop), lambda x: x.uop.key, lambda x: copy.deepcopy(x.uop),
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_a_deep_graph(use: Callable[[Tensor], Any]) -> None:
    x, work = start(), []
    use(chain(x, 10))
    for nodes in (200, 2000):
        value = chain(x, nodes)
        with shallow():
            work.append(lines_of(lambda value=value: use(value)))
    assert work[1] <= MOST * max(work[0], 100)


def shrunk(x: Tensor) -> Tensor:
    for _ in range(1000):
        x = x * 0.999 + 1
    return x


def test_transformations_of_a_deep_function() -> None:
    x, one = start(), Tensor(np.ones(16, np.float32)).realize()
    with shallow(140):
        value, tangent = jvp(shrunk, (x,), (one,))
        gradient = grad(lambda x: checkpoint(shrunk, x).sum())(x)
        mapped = vmap(shrunk)(x)
    for found in (tangent, gradient):
        np.testing.assert_allclose(found.numpy(), np.full(16, 0.999**1000), rtol=1e-4)
    np.testing.assert_allclose(mapped.numpy(), value.numpy(), rtol=1e-6)


def test_a_deep_tensor_is_pickled_and_copied() -> None:
    value = chain(start(), 2000)
    wanted = chain(start(), 2000).numpy()
    with shallow(140):
        found = [pickle.loads(pickle.dumps(value)), copy.deepcopy(value)]
    for each in found:
        np.testing.assert_array_equal(each.numpy(), wanted)
