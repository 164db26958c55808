"""Tensors of the CPU beside those of another device, where PyTorch takes them: indices, values that
are written, and tensors without axes. What is expected is NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tests.device.helpers import needs
from tilegrad.base.errors import DeviceError

pytestmark = needs("CLANG")
X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
ROWS, MASK = np.array([3, 1, 2]), X[:, 0] > 0


def there(values: Any = X) -> Any:
    """On the other device."""
    return torch.tensor(values).to("clang")


def scalar(value: float, *, is_read: bool) -> Any:
    """A tensor without axes that is computed on the CPU, now or later."""
    found = torch.tensor([value, value + 1]).min()
    if is_read:
        assert found.item() == value
    return found


SCALARS: dict[str, tuple[Callable[[Any, Callable[[float], Any]], Any], Any]] = {
    "mul": (lambda x, s: x * s(2.0), X * 2),
    "on the left": (lambda x, s: s(2.0) - x, 2 - X),
    "pow": (lambda x, s: x.abs() ** s(2.0), X**2),
    "where": (lambda x, s: torch.where(x > s(0.0), s(1.0), x), np.where(X > 0, 1, X)),
    "masked_fill": (lambda x, s: x.masked_fill(x > 0, s(-1.0)), np.where(X > 0, -1, X)),
    "clamp": (lambda x, s: x.clamp(s(0.0)), np.maximum(X, 0)),
    "in place": (lambda x, s: x.clone().mul_(s(2.0)), X * 2),
    "another dtype": (lambda x, s: x * s(2.0).double(), X * 2),
    "lerp": (lambda x, s: torch.lerp(x, x * 2, s(0.5)), X * 1.5),
}


@pytest.mark.parametrize("is_read", [False, True], ids=["waiting", "read"])
@pytest.mark.parametrize("name", SCALARS)
def test_a_tensor_without_axes_is_brought_along(name: str, is_read: bool) -> None:
    """From the third time on a call is made from a template."""
    function, wanted = SCALARS[name]
    for _ in range(4):
        found = function(there(), lambda value: scalar(value, is_read=is_read))
        assert found.device.type == "clang" and found.dtype is torch.float32
        np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=1e-6)


def test_its_gradient_is_where_it_is() -> None:
    s = torch.tensor(2.0, requires_grad=True)
    (there() * s).sum().backward()
    assert s.grad is not None and s.grad.device.type == "cpu"
    np.testing.assert_allclose(s.grad.item(), X.sum(), rtol=1e-4)


READS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "rows": (lambda x: x[torch.tensor(ROWS)], X[ROWS]),
    "rows that are computed": (lambda x: x[torch.tensor(ROWS).sort().values], X[[1, 2, 3]]),
    "mask": (lambda x: x[torch.tensor(MASK)], X[MASK]),
    "two axes": (lambda x: x[torch.tensor([1, 2]), torch.tensor([0, 3])], X[[1, 2], [0, 3]]),
    "beside a slice": (lambda x: x[1:, torch.tensor([0, 3])], X[1:, [0, 3]]),
    "one": (lambda x: x[torch.tensor([3, 1]).min()], X[1]),
}


@pytest.mark.parametrize("name", READS)
def test_indices_are_brought_along(name: str) -> None:
    read, wanted = READS[name]
    for _ in range(4):
        found = read(there())
        assert found.device.type == "clang"
        np.testing.assert_array_equal(found.cpu().numpy(), wanted)


def test_indices_have_a_gradient_behind_them() -> None:
    x = there().requires_grad_()
    x[torch.tensor([1, 1, 3])].sum().backward()
    wanted = np.zeros_like(X)
    wanted[1], wanted[3] = 2, 1
    np.testing.assert_array_equal(x.grad.cpu().numpy(), wanted)


WRITES: dict[str, tuple[Any, Any]] = {
    "a row": (2, X[0]),
    "rows": (torch.tensor(ROWS), 0.0),
    "a mask": (torch.tensor(MASK), 0.0),
    "an element": ((2, 3), np.float32(5)),
    "a slice": (slice(1, 3), X[:2]),
}


@pytest.mark.parametrize("name", WRITES)
def test_values_and_indices_are_written_from_the_cpu(name: str) -> None:
    key, value = WRITES[name]
    x, wanted = there(), X.copy()
    x[key] = value if isinstance(value, float) else torch.tensor(value)
    wanted[key.numpy() if isinstance(key, torch.Tensor) else key] = value
    assert x.device.type == "clang"
    np.testing.assert_array_equal(x.cpu().numpy(), wanted)


def test_operands_with_axes_stay_where_they_are() -> None:
    with pytest.raises(DeviceError, match="operands are on two devices"):
        there() + torch.tensor(X)
    with pytest.raises(DeviceError, match="operands are on two devices"):
        torch.tensor(X) * there(np.float32(2)).exp()
    with pytest.raises(DeviceError, match="operands are on two devices"):
        torch.tensor(X)[there(ROWS)]
