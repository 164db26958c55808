"""Random eager loops over integers that floats hold exactly, with NumPy beside them.

A program is a list of statements that all steps of a loop run, over a few named values; at some
steps a statement is left out, repeated or replaced. Each value goes with its *mirror*: the same in
NumPy and float64, and its derivative in one direction of the leaf `w` (forward mode). As all values
are integers below 2**24, every order of sums and every dtype gives the same bits. So a program's
values are compared bit for bit, and a gradient, multiplied by the direction, with the derivative.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tilegrad import Context, Tensor, dtypes, no_grad
from tilegrad.base.errors import TilegradError

__all__ = ["Program"]

# Values stay below this by a remainder.
_MOST = 13
_SHAPE = (3, 4)
_DTYPES = {
    "float32": (dtypes.float32, np.float32),
    "float64": (dtypes.float64, np.float64),
    "int32": (dtypes.int32, np.int32),
}


class Value(NamedTuple):
    """A tensor, its mirror, and its derivative, or None where a gradient is not compared: below a
    write.
    """

    ours: Any
    mirror: np.ndarray
    slope: np.ndarray | None


def _bounded(value: Value) -> Value:
    """A remainder, and the derivative of what it is the remainder of."""
    mirror = value.mirror - np.floor(value.mirror / _MOST) * _MOST
    ours = value.ours - (value.ours.detach() / _MOST).floor() * _MOST
    return Value(ours, mirror, value.slope)


class Program:
    """One program. `tensor` makes a tensor of an array, and `seed` decides all."""

    def __init__(self, seed: int, tensor: Callable[[np.ndarray], Any] = Tensor, steps: int = 14):
        # str: Python's own hash of a tuple is not the same in each process.
        self.chance = random.Random(str(seed))
        self.tensor = tensor
        self.steps, self.step = steps, 0
        self.numbers = np.random.default_rng(seed)
        self.held: list[Value] = []
        self.gradients = self.refused = 0
        self.read: list[bytes] = []
        self.direction = self.numbers.integers(-2, 3, _SHAPE).astype(np.float64)
        self.values: dict[str, Value] = {}
        for name in "abcw":
            self.values[name] = self._leaf(is_w=name == "w")
        statements = [self._pure] * 9 + [self._read] * 3 + [self._view, self._write, self._odd]
        self.body = [
            (self.chance.choice(statements), self.chance.getrandbits(40))
            for _ in range(self.chance.randint(3, 9))
        ]
        if self.chance.random() < 0.5:
            self.body.insert(self.chance.randrange(len(self.body)), (self._hold, 0))
        if self.chance.random() < 0.4:
            self.body.append((self._gradient, self.chance.getrandbits(40)))

    def _leaf(self, *, is_w: bool = False) -> Value:
        mirror = self.numbers.integers(-6, 7, _SHAPE).astype(np.float64)
        ours = self.tensor(mirror.astype(np.float32))
        if self.chance.random() < 0.8:
            ours.realize()
        return Value(ours, mirror, self.direction if is_w else np.zeros(_SHAPE))

    def run(self) -> Program:
        for step in range(self.steps):
            self.step = step
            body = list(self.body)
            if self.chance.random() < 0.2:
                number = self.chance.randrange(len(body))
                change = self.chance.randrange(3)
                if change == 0:
                    del body[number]
                elif change == 1:
                    body.insert(number, body[number])
                else:
                    body[number] = body[number][0], self.chance.getrandbits(40)
            for statement, seed in body:
                statement(random.Random(seed))
            self._check(self.chance.choice([*self.values.values()]))
        for value in [*self.values.values(), *self.held]:
            self._check(value)
        return self

    def _check(self, value: Value, found: Any = None) -> None:
        found = value.ours.numpy() if found is None else found
        np.testing.assert_array_equal(np.asarray(found, np.float64), value.mirror)
        self.read.append(np.asarray(found, np.float64).tobytes())

    # statements

    def _pick(self, chance: random.Random) -> Value:
        return self.values[chance.choice([*self.values])]

    def _set(self, chance: random.Random, value: Value) -> None:
        name = chance.choice("abcxyz")
        assert value.mirror.shape == _SHAPE, value.mirror.shape
        self.values[name] = value

    def _pure(self, chance: random.Random) -> None:
        with Context() if chance.random() < 0.9 else no_grad():
            self._set(chance, self._made(chance))

    def _made(self, chance: random.Random) -> Value:
        first, second = self._pick(chance), self._pick(chance)
        x, y = first.ours, second.ours
        m, n = first.mirror, second.mirror
        both = first.slope is not None and second.slope is not None
        s: Any = first.slope if both else np.full(_SHAPE, np.nan)
        t: Any = second.slope if both else np.full(_SHAPE, np.nan)
        kind = chance.choice([
            "add", "sub", "mul", "where", "matmul", "sum", "cast", "neg", "scale", "cat", "max",
            "abs", "detach", "roll", "flip", "count", "count",
        ])  # fmt: skip
        if kind == "add":
            found = x + y, m + n, s + t
        elif kind == "sub":
            found = x - y, m - n, s - t
        elif kind == "mul":
            found = x * y, m * n, s * n + m * t
        elif kind == "where":
            found = (x > y).where(x, y * 2), np.where(m > n, m, n * 2), np.where(m > n, s, t * 2)
        elif kind == "matmul":
            # PyTorch's namespace takes operands of one dtype alone.
            y = y.cast(x.dtype)
            found = x @ (y.T @ x), m @ (n.T @ m), s @ n.T @ m + m @ t.T @ m + m @ n.T @ s
        elif kind == "sum":
            found = (
                x - y.sum(0, keepdim=True),
                m - n.sum(0, keepdims=True),
                s - np.sum(t + np.zeros(_SHAPE), 0, keepdims=True),
            )
        elif kind == "cast":
            name = chance.choice([*_DTYPES])
            is_float = name != "int32"
            found = x.cast(_DTYPES[name][0]), m, s if is_float else np.zeros(_SHAPE)
        elif kind == "neg":
            found = -x, -m, -(s + np.zeros(_SHAPE))
        elif kind == "scale":
            number = chance.choice([2, 3, -1, 0, 1, 2.0, 5.0])
            found = x * number + 1, m * number + 1, s * number
        elif kind == "count":
            # Numbers of the step, some of them equal at some steps, and some that shape code.
            one, two = self.step % chance.choice([3, 7]) - 1, self.step % 4 + chance.randrange(3)
            number = float(one) if chance.random() < 0.5 else one
            found = (
                (y > number).where(x * two - number, x + two * y),
                np.where(n > number, m * two - number, m + two * n),
                np.where(n > number, s * two, s + t * two),
            )
        elif kind == "cat":
            found = (
                (
                    self.tensor.cat(x[:1], y[1:], dim=0)  # type: ignore[attr-defined]
                    if hasattr(self.tensor, "cat")
                    else x[:1].cat(y[1:], dim=0)
                ),
                np.concatenate([m[:1], n[1:]]),
                np.concatenate([(s + 0 * m)[:1], (t + 0 * n)[1:]]),
            )
        elif kind == "max":
            # No derivative where two are equal: one of the two is.
            found = x.maximum(y), np.maximum(m, n), np.full(_SHAPE, np.nan)
        elif kind == "abs":
            found = x.abs(), abs(m), np.full(_SHAPE, np.nan)
        elif kind == "detach":
            found = x.detach() + y, m + n, t + np.zeros(_SHAPE)
        elif kind == "roll":
            found = x.roll(1, 0), np.roll(m, 1, 0), np.roll(s + np.zeros(_SHAPE), 1, 0)
        else:
            found = x.flip(1) + 1, m[:, ::-1] + 1, (s + np.zeros(_SHAPE))[:, ::-1]
        slope = None if np.isnan(found[2]).any() else found[2]
        ours = found[0]
        if slope is not None and not ours.dtype.is_float:
            slope = np.zeros(_SHAPE)
        if ours.dtype == dtypes.int32:
            # Its quotient is a float: the remainder is one too.
            ours = ours.cast(dtypes.float32)
        return _bounded(Value(ours, np.array(found[1], np.float64), slope))

    def _view(self, chance: random.Random) -> None:
        """A view that lives on, as wide as its base."""
        value = self._pick(chance)
        if chance.random() < 0.5:
            shape = 4, 3
            made = Value(
                value.ours.reshape(*shape).reshape(*_SHAPE),
                value.mirror.reshape(shape).reshape(_SHAPE),
                value.slope,
            )
        else:
            made = Value(value.ours.T.T, value.mirror.T.T, value.slope)
        if np.shares_memory(made.mirror, value.mirror):
            self._set(chance, made)

    def _write(self, chance: random.Random) -> None:
        names = [name for name in self.values if name != "w"]
        name = chance.choice(names)
        value = self.values[name]
        if not value.ours.dtype.is_float or value.ours.requires_grad:
            return
        number = float(chance.randint(-3, 3))
        way = chance.randrange(5)
        ours, mirror = value.ours, value.mirror
        if way == 0:
            ours += number
            mirror += number
        elif way == 1:
            ours[1] = number
            mirror[1] = number
        elif way == 2:
            view, other = ours.reshape(2, 6)[1:, 2:4], mirror.reshape(2, 6)[1:, 2:4]
            if not np.shares_memory(other, mirror):
                return
            view += number
            other += number
        elif way == 3:
            ours.T[2] = number
            mirror.T[2] = number
        else:
            source = self._pick(chance)
            new, other = source.ours * 1, source.mirror.copy()
            ours.assign(new.cast(ours.dtype))
            mirror[...] = other
        self.values[name] = Value(ours, mirror, None)
        for key, each in self.values.items():
            if np.shares_memory(each.mirror, mirror):
                self.values[key] = each._replace(slope=None)
        self.held = [
            each._replace(slope=None) if np.shares_memory(each.mirror, mirror) else each
            for each in self.held
        ]

    def _hold(self, chance: random.Random) -> None:
        self.held.append(self.chance.choice([*self.values.values()]))
        if len(self.held) > 6 and self.chance.random() < 0.5:
            del self.held[self.chance.randrange(len(self.held))]

    def _gradient(self, chance: random.Random) -> None:
        """A gradient to `w`, of a value that may have been read before."""
        value = self._pick(chance) if chance.random() < 0.7 or not self.held else self.held[-1]
        w = self.values["w"].ours
        if value.slope is None or not value.ours.dtype.is_float:
            return
        if chance.random() < 0.5:
            self._check(value)
        loss = value.ours.sum()
        try:
            (gradient,) = loss.gradient(w)
        except TilegradError as error:
            # Its graph was given back, which a gradient of None would hide.
            if "given back" not in str(error):
                raise
            self.refused += 1
            return
        found = 0.0 if gradient is None else (gradient.numpy() * self.direction).sum()
        assert found == np.sum(value.slope), (found, np.sum(value.slope))
        self.gradients += 1

    def _read(self, chance: random.Random) -> None:
        value = self._pick(chance)
        ours, mirror = value.ours, value.mirror
        for read in chance.sample([*_READS], chance.randint(1, 2)):
            found, expected = read(ours, mirror)
            assert found == expected, (read.__name__, found, expected)

    def _odd(self, chance: random.Random) -> None:
        value = self._pick(chance)
        made = chance.choice([*_ODD])(value, chance)
        if made is not None:
            self._check(made)
            if made.mirror.shape == _SHAPE:
                self._set(chance, _bounded(made))


# Reads: what the tensor gives, and what it should.


def _item(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return x.sum().item(), m.sum()


def _list(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return x.tolist(), m.tolist()


def _flag(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return bool((x > 2).any()), bool((m > 2).any())


def _int(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return int(x[1, 2]), int(m[1, 2])


def _format(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return f"{x[0, 1]:.1f}", f"{m[0, 1]:.1f}"


def _rows(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return [row.sum().item() for row in x], [row.sum() for row in m]


def _shape(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    y = x + x
    return (len(y), y.ndim, tuple(y.shape), y.numel()), (3, 2, _SHAPE, 12)


def _text(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    repr(x + 1)
    return "(3, 4)" in repr(x) or "[" in repr(x), True


def _graph(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    y = x * 2
    return y.uop.shape, _SHAPE


def _argmax(x: Any, m: np.ndarray) -> tuple[Any, Any]:
    return (x.reshape(12).argmax().item(), int(m.reshape(12).argmax()))


_READS = (
    _item, _item, _list, _flag, _int, _format, _rows, _shape, _text, _graph, _argmax,
)  # fmt: skip

# What programs do seldom: each gives a value to compare, or None.


def _pickled(value: Value, chance: random.Random) -> Value:
    y = value.ours + 1
    return Value(pickle.loads(pickle.dumps(y)), value.mirror + 1, None)


def _copied(value: Value, chance: random.Random) -> Value:
    y = value.ours * 2
    way = chance.choice([copy.copy, copy.deepcopy, lambda x: x.clone()])
    return Value(way(y), value.mirror * 2, None)


def _from_other_thread(value: Value, chance: random.Random) -> Value:
    y = value.ours + 2
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((y - 1).realize()))
    thread.start()
    thread.join()
    return Value(found[0] + y, value.mirror * 2 + 3, None)


def _collected(value: Value, chance: random.Random) -> Value:
    y = value.ours - 1
    z = y * 3
    seen = weakref.ref(y)
    del y
    gc.collect()
    assert seen() is None
    return Value(z, (value.mirror - 1) * 3, None)


def _generated(value: Value, chance: random.Random) -> Value:
    def rows() -> Iterator[Any]:
        y = value.ours * 2
        for number in range(3):
            yield y[number] + number

    total = mirror = 0
    for number, row in enumerate(rows()):
        if number == chance.randrange(3):
            row.realize()
        total, mirror = total + row, mirror + value.mirror[number] * 2 + number
    return Value(total, np.asarray(mirror), None)


def _failed(value: Value, chance: random.Random) -> Value:
    y = value.ours * 2
    try:
        _ = y + y.reshape(12)[:5]
    except TilegradError:
        pass
    else:
        raise AssertionError("shapes that differ were added")
    return Value(y, value.mirror * 2, None)


def _without(value: Value, chance: random.Random) -> Value:
    y = value.ours + 1
    name = chance.choice(["SEGMENTS", "TEMPLATES", "SIZES"])
    with Context(**{name: 0}):
        z = y * 2 + value.ours
    with Context(NOOPT=chance.randrange(2)):
        z = z + y
        z.sum().item()
    return Value(z, (value.mirror + 1) * 3 + value.mirror, None)


def _several(value: Value, chance: random.Random) -> Value:
    y, z = value.ours + 1, value.ours * 2
    u = y + z
    y.realize(z)
    return Value(u, value.mirror * 3 + 1, None)


def _trained(value: Value, chance: random.Random) -> Value:
    y = (value.ours + 1).detach().cast(dtypes.float32)
    y.requires_grad_(True)
    z = (y * y).sum()
    z.backward()
    return Value(y.grad, (value.mirror + 1) * 2, None)


def _detached(value: Value, chance: random.Random) -> Value:
    y = value.ours * 1 + 1
    z = y.detach()
    y.sum().item()
    return Value(z + y, (value.mirror + 1) * 2, None)


def _stepped(value: Value, chance: random.Random) -> Value:
    """Written through what is a view of a value that waits."""
    y = (value.ours + 1).cast(dtypes.float32)
    mirror = value.mirror + 1
    z = y[1:]
    late = z * 2
    z[0] = 7.0
    expected = mirror[1:] * 2
    mirror[1] = 7.0
    np.testing.assert_array_equal(late.numpy(), expected)
    return Value(y, mirror, None)


def _equal(value: Value, chance: random.Random) -> Value:
    """A write to one of two equal values leaves the other as it was."""
    y, z = (value.ours + 1).cast(dtypes.float32) * 2, (value.ours + 1).cast(dtypes.float32) * 2
    mirror = (value.mirror + 1) * 2
    if chance.random() < 0.5:
        y.realize()
    y[1] = 5.0
    np.testing.assert_array_equal(z.numpy(), mirror)
    z += 1
    mirror[1] = 5.0
    return Value(y, mirror, None)


def _contiguous(value: Value, chance: random.Random) -> Value:
    y = value.ours.T + 1
    return Value(y.contiguous().T.contiguous(), value.mirror + 1, None)


_ODD = (
    _pickled, _copied, _from_other_thread, _collected, _generated, _failed, _without, _several,
    _trained, _detached, _stepped, _contiguous, _equal,
)  # fmt: skip
