"""Numbers written to elements of small tensors, by the rules of NumPy's views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad.torch as torch
from tilegrad import Context
from tilegrad.base.errors import DTypeError
from tilegrad.base.trace import counters
from tilegrad.tensor.handle import waiting

# Each is run on an array and on a tensor; `new` makes either, and what is in `seen` is compared.
_PROGRAMS = {
    "count": """
x = new(3, 4)
for i in range(9): x[i % 3, i % 4] += 1
seen = [x]""",
    "fill": """
x = new(2, 5)
for i in range(5): x[1, i] = i * 0.5
x[0] = 3
x[0, 1:3] = -1
x[-1, -1] = 9
x[..., 0] = 4
seen = [x]""",
    "views of views": """
x = new(4, 6)
x[1:][0, 2] += 5
x.T[3, 1] -= 2
x.T[3][2] = 7
x[2][1:4] *= 3
x.reshape(2, 12)[1, 1] = 8
x[0][2:4] += 1
seen = [x]""",
    "a view is kept": """
x = new(3)
t = x[1:2]
t += 1
a = t * 1
t += 2
x[1] = 7
b = t * 1
t -= 3
x[0] += 1
seen = [x, t, a, b]""",
    "two views": """
x = new(3)
t, u = x[1:2], x[0:2]
t += 1
u *= 2
x[1] += 1
seen = [x, t, u]""",
    "what was computed before": """
x = new(3)
y = x * 2
x[1] = 5
z = x + y
x[2] -= 1
w = x.sum() * 1
x[0] = 9
seen = [x, y, z, w]""",
    "an alias of all": """
x = new(4)
y = x[:]
x[1] = 5
y[2] += 3
seen = [x, y]""",
    "an operand": """
x, y = new(2, 3), new(3)
x[0] += y
x[1, 2] = y[1]
y[0] = x[1, 2]
x[1] = y
x[0, 0] += x[1, 1]
seen = [x, y]""",
    "a table of decisions": """
q = new(4, 3)
for i in range(8):
    s, a, n = i % 4, i % 3, (i + 1) % 4
    q[s, a] += 0.5 * (1 + 0.75 * float(q[n].max()) - float(q[s, a]))
seen = [q]""",
    "a table of distances": """
d = new(5, 5)
for i in range(1, 5):
    for j in range(1, 5):
        d[i, j] = min(float(d[i - 1, j]), float(d[i, j - 1])) + 1
seen = [d]""",
    "large and small numbers": """
x = new(6)
x[0] = 1e300
x[1] = float("nan")
x[2] -= 1e-30
x[3] = -0.0
x[4] *= float("inf")
x[5] += 16777217
seen = [x]""",
}  # fmt: skip


def _run(source: str, new: Any) -> list[Any]:
    names: dict[str, Any] = {"new": new}
    with np.errstate(all="ignore"):
        exec(source, names)
    return [np.array(each) for each in names["seen"]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", _PROGRAMS)
def test_writes_are_those_of_numpy(name: str, dtype: str) -> None:
    kind = getattr(torch, dtype)

    def array(*shape: int) -> Any:
        return (np.arange(np.prod(shape)).reshape(shape) * 0.5).astype(dtype)

    def constant(*shape: int) -> Any:
        return torch.zeros(shape, dtype=kind)

    makers = [
        (array, lambda *shape: torch.tensor(array(*shape))),
        (array, lambda *shape: torch.arange(np.prod(shape)).reshape(shape).to(kind) * 0.5),
        (lambda *shape: np.zeros(shape, dtype), constant),
    ]
    for theirs, mine in makers:
        wanted = _run(_PROGRAMS[name], theirs)
        with Context(TEMPLATES=1, SEGMENTS=1):
            for _ in range(4):
                for found, each in zip(_run(_PROGRAMS[name], mine), wanted, strict=True):
                    np.testing.assert_array_equal(found, each)
                    np.testing.assert_array_equal(np.signbit(found), np.signbit(each))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_wrap(dtype: str) -> None:
    most, kind = np.iinfo(dtype).max, getattr(torch, dtype)
    for _ in range(4):
        x = torch.full((3,), int(most), dtype=kind)
        x[0] += 1
        x[1] *= 2
        x[2] -= 1
        wanted = np.full(3, most, dtype)
        with np.errstate(all="ignore"):
            wanted = np.array([wanted[0] + 1, wanted[1] * 2, wanted[2] - 1]).astype(dtype)
        np.testing.assert_array_equal(x.numpy(), wanted)
        x[1] = 5
        assert x[1].item() == 5


def test_elements_that_are_known_take_no_run() -> None:
    """A thousand writes and reads of elements plan nothing more than ten did."""
    waiting.this_thread.pool.count_hit()
    with Context(TEMPLATES=1, SEGMENTS=1):
        x = torch.zeros(4, 4)
        for i in range(10):
            x[i % 4, i % 3] += 1
            x[0, 0] = float(x[1, 1].item())
        plans = counters.schedules
        for i in range(1000):
            x[i % 4, i % 3] += 1
            x[0, 0] = float(x[1, 1].item())
        assert counters.schedules == plans
        assert x[2, 2].item() == sum(i % 4 == 2 == i % 3 for i in [*range(10), *range(1000)])


def test_what_may_not_be_written_raises() -> None:
    for _ in range(4):
        x = torch.zeros(3)
        leaf = torch.zeros(3, requires_grad=True)
        with pytest.raises(DTypeError):
            leaf[0] = 1.0
        with pytest.raises(DTypeError):
            leaf[0] += 1.0
        with pytest.raises(IndexError):
            x[3] = 1.0
        with torch.no_grad():
            leaf[0] += 2.0
            leaf[1] = 3.0
        assert leaf.tolist() == [2.0, 3.0, 0.0]
        assert leaf.requires_grad
        x[0] = 2
        with pytest.raises((DTypeError, RuntimeError)):
            torch.zeros(3, dtype=torch.int32)[0] += 0.5
        (x * leaf).sum().backward()
        assert leaf.grad.tolist() == [2.0, 0.0, 0.0]


def test_gradients_are_those_of_what_was_there() -> None:
    for _ in range(4):
        weight = torch.ones(3, requires_grad=True)
        x = torch.tensor([1.0, 2.0, 3.0])
        before = (weight * x).sum()
        x[1] = 5.0
        x[2] += 1.0
        after = (weight * x).sum()
        (before + after * 10).backward()
        assert weight.grad.tolist() == [11.0, 52.0, 43.0]
