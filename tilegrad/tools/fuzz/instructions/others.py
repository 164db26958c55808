# ruff: noqa: E501 - a table: one instruction a line
"""Random numbers, as questions with a known answer; symbolic sizes; gradients."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilegrad.tools.fuzz.instructions.kind import Instruction, Value
from tilegrad.tools.fuzz.instructions.kind import array_module as _np

__all__ = ["CLOSED", "GRADIENTS", "RANDOM", "SYMBOLIC", "bound_at"]

_F = ("float32",)


def _shape(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...]:
    return (tuple([chance.choice((1, 2, 3, 5, 8, 40)) for _ in range(chance.randrange(1, 3))]),)


def _limits(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...]:
    low = chance.randrange(-5, 5)
    return (low, low + chance.randrange(1, 9))


def _yes(*params: Any) -> Any:
    return _np().array(True)


RANDOM = [
    Instruction("rand_range", 0, "(lambda r: (r >= 0) & (r < 1))(Tensor.rand{p[0]})", lambda shape: _np().ones(shape, "?"), _shape, gives="bool", torch=None),
    Instruction("rand_type", 0, "(Tensor.rand{p[0]} * 0)", lambda shape: _np().zeros(shape), _shape, gives="float32", torch=None),
    Instruction("rand_mean", 0, "(Tensor.rand(40, 100).mean() - 0.5).abs() < 0.05", _yes, gives="bool", torch=None),
    Instruction("rand_spread", 0, "(Tensor.rand(40, 100).std() - 0.2887).abs() < 0.04", _yes, gives="bool", torch=None),
    Instruction("rand_twice", 0, "(Tensor.rand(9) != Tensor.rand(9)).any()", _yes, gives="bool", torch=None),
    Instruction("rand_halves", 0, "(lambda r: (r[:9] != r[9:]).any())(Tensor.rand(18))", _yes, gives="bool", torch=None),
    Instruction("rand_neighbours", 0, "(lambda r: (r[1:] == r[:-1]).sum().cast('int32') < 4)(Tensor.rand(60))", _yes, gives="bool", torch=None),
    Instruction("randn", 0, "(Tensor.randn(40, 100).std() - 1).abs() < 0.12", _yes, gives="bool", torch=None),
    Instruction("randn_mean", 0, "Tensor.randn(40, 100).mean().abs() < 0.2", _yes, gives="bool", torch=None),
    Instruction("randint", 0, "(lambda r: (r >= {p[0]}) & (r < {p[1]}))(Tensor.randint(30, low={p[0]}, high={p[1]}))", lambda low, high: _np().ones(30, "?"), _limits, gives="bool", torch=None),
    Instruction("randint_all", 0, "Tensor.randint(700, low={p[0]}, high={p[1]}).max().cast('int32')", lambda low, high: _np().array(high - 1, "i4"), _limits, gives="int32", torch=None),
    Instruction("randperm", 0, "Tensor.randperm(17).sort()[0].cast('int32')", lambda: _np().arange(17, dtype="i4"), gives="int32", torch=None),
    Instruction("dropout", 0, "(lambda d: (d == 0) | (d == 2))(Tensor.ones(64).dropout(0.5))", lambda: _np().ones(64, "?"), gives="bool", torch=None),
]  # fmt: skip


def bound_at(size: int, number: int, call: int) -> int:
    """The value that a Variable of 1 to `size` is bound to."""
    return 1 + (number + call) % size


def _slice(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...] | None:
    shape = given[0].array.shape
    if not shape or given[0].is_symbolic:
        return None
    return (shape[0], chance.randrange(shape[0]))


# Its meaning gets the bound value; its line the Variable's name or value.
SYMBOLIC = [
    Instruction("bound", 1, "{a}[:{n}]", lambda a, count: a[:count], _slice, is_wild_safe=True, is_view=True, torch=None),
]  # fmt: skip


def _axis(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...] | None:
    ndim = given[0].array.ndim
    return (chance.randrange(ndim),) if ndim else None


def _first(a: Any, axis: int) -> Any:
    """The gradient of the largest of an axis: the first of those that are equal takes all."""
    numbers = _np().expand_dims(_np().argmax(a, axis), axis)
    made = _np().zeros_like(a)
    _np().put_along_axis(made, numbers, 1, axis)
    return made


def _even(a: Any, axis: int) -> Any:
    """The gradient of `amax`: even shares for all that are equal to it."""
    at = a == a.max(axis, keepdims=True)
    return at / at.sum(axis, keepdims=True)


def _larger(a: Any, b: Any) -> Any:
    """The gradient of the larger of two, one of them a constant; equal ones share."""
    return (a > b) + 0.5 * (a == b)


def _same(chance: random.Random, given: Sequence[Value]) -> tuple[Any, ...] | None:
    return () if given[0].array.shape == given[1].array.shape else None


# Where a function has a kink its gradient is known in closed form, and so compared there too.
CLOSED = [
    Instruction("relu_gradient", 1, "{a}.relu().sum().gradient({a})[0]", lambda a: (a > 0) * 1.0, takes=_F, needs_exact=True, torch=None, has_loose_zero=True),
    Instruction("abs_gradient", 1, "{a}.abs().sum().gradient({a})[0]", lambda a: _np().sign(a), takes=_F, needs_exact=True, torch=None, has_loose_zero=True),
    Instruction("max_gradient", 1, "{a}.max({p[0]}).sum().gradient({a})[0]", _first, _axis, _F, needs_exact=True, is_exact=False, torch=None, has_loose_zero=True),
    Instruction("amax_gradient", 1, "{a}.amax({p[0]}).sum().gradient({a})[0]", _even, _axis, _F, needs_exact=True, is_exact=False, torch=None, has_loose_zero=True),
    Instruction("maximum_gradient", 2, "{a}.maximum({b}.detach()).sum().gradient({a})[0]", _larger, _same, _F, needs_exact=True, torch=None, has_loose_zero=True),
    Instruction("square_gradient", 1, "({a} * {a}).sum().gradient({a})[0]", lambda a: 2 * a, takes=_F, error=lambda given, out: 2 * given[0].error, torch=None, has_loose_zero=True),
]  # fmt: skip

# `fuzz/meaning.py` computes it by differences: it needs the whole program.
GRADIENTS = [
    Instruction("gradient", 2, "({a} * Tensor(np.arange({a}.numel(), dtype='f4') % 5 + 1).reshape({a}.shape)).sum().gradient({b}, materialize_grads=True)[0]", lambda *given: None, takes=_F, is_exact=False, torch=None, has_loose_zero=True),
]  # fmt: skip
