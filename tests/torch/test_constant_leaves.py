"""A parameter that takes a constant is no other tensor of that value: graphs that have the constant
give it no gradient, whoever else runs in the process.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.tensor.storage import segments
from tilegrad.torch import nn

WRITES: dict[str, Callable[[Any], Any]] = {
    "zero_": lambda parameter: parameter.data.zero_(),
    "fill_": lambda parameter: parameter.data.fill_(0),
    "copy_": lambda parameter: parameter.data.copy_(torch.zeros(3)),
    "setitem": lambda parameter: parameter.data.__setitem__(slice(None), 0.0),
    "data": lambda parameter: setattr(parameter, "data", torch.zeros(3)),
    "init": nn.init.zeros_,
}


@pytest.fixture(params=["alone", "beside a thread"])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Beside another thread nothing waits to be assigned."""
    if request.param == "alone":
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.parametrize("name", WRITES)
def test_a_parameter_of_zeros_has_no_gradient_of_other_zeros(name: str, threads: None) -> None:
    for _ in range(3):
        # Memory that it borrows from the tensor that was drawn for it.
        layer, other = nn.Linear(2, 3), nn.Linear(2, 3)
        WRITES[name](layer.bias)
        WRITES[name](other.bias)
        weight = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        (weight * (other.bias + 1) + torch.zeros(3)).sum().backward()
        assert layer.bias.grad is None
        assert other.bias.grad is not None
        assert other.bias.grad.tolist() == [1.0, 2.0, 3.0]
        assert weight.grad is not None
        assert weight.grad.tolist() == [1.0] * 3


VALUES: dict[str, Callable[[Any], Any]] = {
    "a constant": lambda x: torch.zeros(3),
    "memory": lambda x: x,
    "computed": lambda x: x * 2,
    "computed apart": lambda x: (x * 2).contiguous(),
}


@pytest.mark.parametrize("read", ["both together", "one by one", "none"])
@pytest.mark.parametrize("name", VALUES)
def test_parameters_of_one_value_have_gradients_of_their_own(
    name: str, read: str, threads: None
) -> None:
    for _ in range(4):
        x = torch.tensor([1.0, 2.0, 3.0])
        first, second = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
        for each in (first, second):
            each.data.copy_(VALUES[name](x))
            if read == "one by one":
                each.sum().item()
        if read == "both together":
            (first + second).sum().item()
        (first * 3 + VALUES[name](x)).sum().backward()
        assert first.grad is not None
        assert first.grad.tolist() == [3.0] * 3
        assert second.grad is None


def test_parameters_have_memory_of_their_own_while_equal_nodes_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that was computed is known as long as somebody has its node."""
    kept: list[Any] = []
    make = segments.PlainNodes.__init__

    def made(self: Any, *args: Any) -> None:
        make(self, *args)
        kept.append(self)

    monkeypatch.setattr(segments.PlainNodes, "__init__", made)
    # Nor does an equal run come again without nodes, of this size or of those that other tests had.
    monkeypatch.setattr(segments, "noted", lambda *given: None)
    monkeypatch.setattr(segments, "_run_sized", lambda *given: False)
    first, second = (nn.Parameter(torch.randn(2711)) for _ in range(2))
    for each in (first, second):
        nn.init.zeros_(each)
    assert kept
    apart = torch.zeros(2711).contiguous()
    apart.tolist()
    (first * 2 + apart).sum().backward()
    assert first.grad is not None
    assert first.grad[7].item() == 2
    assert second.grad is None
    second.grad = first.grad = None
    (second * 3).sum().backward()
    assert first.grad is None
