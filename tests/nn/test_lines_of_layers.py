"""What layers make has the line that called the outermost one; what the user's own code makes
inside layers, as a module, a hook or a function, has lines of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Tensor, jit, nn
from tilegrad.base.errors import ShapeError
from tilegrad.base.origin import composing, method_names, user_lines
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import toposort


class Twice(torch.nn.Module):
    """A module of the user's, of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        return y * 2


def threefold(x: Any) -> Any:
    return x * 3


def _line(function: Callable[..., Any], text: str) -> str:
    """The line of `text` in a function of this file, as it is reported."""
    lines, first = inspect.getsourcelines(function)
    number = next(number for number, line in enumerate(lines, first) if text in line)
    return f"test_lines_of_layers.py:{number}"


def _lines_of(value: Any, op: Ops) -> set[tuple[str, str]]:
    """The lines of the nodes of an op below a tensor, each with what was called there."""
    return {
        (line, name)
        for node in toposort([value.uop])
        if node.op is op
        for line in user_lines(node.origin)
        for name in method_names(node.origin)
    }


def test_a_users_module_inside_a_layer_has_its_own_lines() -> None:
    model = torch.nn.Sequential(Twice(), torch.nn.ReLU(), Twice())
    found = model(torch.ones(2, 3))
    here = _line(test_a_users_module_inside_a_layer_has_its_own_lines, "found = model(")
    linear = _line(Twice.forward, "self.layer(x)"), "Linear.__call__"
    assert _lines_of(found, Ops.REDUCE_AXIS) == {linear}
    assert (_line(Twice.forward, "return y * 2"), "__mul__") in _lines_of(found, Ops.MUL)
    assert _lines_of(found, Ops.WHERE) == {(here, "Sequential.__call__")}


def test_a_hook_and_a_function_inside_a_layer_have_their_own_lines() -> None:
    layer = torch.nn.Linear(3, 3)
    layer.register_forward_hook(lambda module, given, found: found - threefold(given[0]))
    found = torch.nn.Sequential(layer, torch.nn.ReLU())(torch.ones(2, 3))
    assert (_line(threefold, "x * 3"), "__mul__") in _lines_of(found, Ops.MUL)

    block = torch.nn.TransformerEncoderLayer(4, 2, 8, activation=threefold, batch_first=True)
    found = block.eval()(torch.ones(1, 2, 4))
    assert (_line(threefold, "x * 3"), "__mul__") in _lines_of(found, Ops.MUL)

    plain = nn.Sequential(nn.Linear(3, 3), threefold)(Tensor(np.ones((2, 3), np.float32)))
    assert (_line(threefold, "x * 3"), "__mul__") in _lines_of(plain, Ops.MUL)

    apart = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: threefold(a - b).sum(1))
    rows = [Tensor(np.full((2, 3), number, np.float32)) for number in range(3)]
    assert (_line(threefold, "x * 3"), "__mul__") in _lines_of(apart(*rows), Ops.MUL)


def test_a_forward_of_one_object_takes_the_place_of_its_class() -> None:
    """As in PyTorch, where it may call the one before; it has lines of its own."""
    layer = torch.nn.Linear(3, 3)
    before = layer.forward
    expected = 3 * before(torch.ones(2, 3)).detach().numpy()
    layer.forward = lambda x: threefold(before(x))
    seen: list[Any] = []
    for is_hooked in (False, True):
        if is_hooked:
            layer.register_forward_hook(lambda module, given, found: seen.append(found))
        found = torch.nn.Sequential(layer)(torch.ones(2, 3))
        assert (_line(threefold, "x * 3"), "__mul__") in _lines_of(found, Ops.MUL)
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-6)
    assert len(seen) == 1
    del layer.forward
    np.testing.assert_allclose(3 * layer(torch.ones(2, 3)).detach().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("library", [torch.nn, nn])
@pytest.mark.parametrize("name", ["ReLU", "Sequential"])
def test_a_forward_that_is_set_on_a_class_is_that_of_all_its_layers(
    library: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in PyTorch, for layers that are there already, with and without hooks, until it is taken
    back.
    """
    kind: Any = getattr(library, name)
    layer, x = kind(), torch.ones(2)
    model = library.Sequential(library.Identity(), layer)
    before = kind.forward
    with monkeypatch.context() as patch:
        patch.setattr(kind, "forward", lambda self, x: before(self, x) * 3)
        assert layer(x).tolist() == [3.0, 3.0]
        layer.register_forward_hook(lambda module, given, found: found + 1)
        if name == "ReLU":
            assert model(x).tolist() == [4.0, 4.0]
    assert layer(x).tolist() == [2.0, 2.0]


def test_a_forward_of_a_class_in_front_of_a_layer_is_what_a_call_runs() -> None:
    class Doubling:
        def forward(self, x: Any) -> Any:
            found: Any = super().forward(x)  # type: ignore[misc]
            return found * 2

    class Both(Doubling, torch.nn.ReLU):
        pass

    class Called(torch.nn.ReLU):
        def __call__(self, x: Any) -> Any:
            return super().__call__(x) + 5

    assert Both()(torch.ones(2)).tolist() == [2.0, 2.0]
    assert Called()(torch.ones(2)).tolist() == [6.0, 6.0]


def test_a_captured_function_sees_a_forward_that_is_set_on_a_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = nn.ReLU()
    run = jit(lambda x: layer(x) + 1)
    x = Tensor([1.0, 2.0]).realize()
    assert [run(x).tolist() for _ in range(3)][-1] == [2.0, 3.0]
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * 3)
    assert run(x).tolist() == [4.0, 7.0]


def test_an_error_inside_layers_leaves_no_line_behind() -> None:
    model = torch.nn.Sequential(torch.nn.ReLU(), Twice(), torch.nn.Linear(3, 2))
    with pytest.raises(ShapeError, match=_line(Twice.forward, "self.layer(x)")):
        model(torch.ones(2, 4))
    assert composing.entry is None
    with pytest.raises(ShapeError, match="Linear: the input has 2 features"):
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(3, 2))(torch.ones(2, 3))
    assert composing.entry is None
    x = Tensor(np.ones(2, np.float32))
    product = x * 5
    wanted = _line(test_an_error_inside_layers_leaves_no_line_behind, "= x * 5")
    assert _lines_of(product, Ops.MUL) == {(wanted, "__mul__")}
