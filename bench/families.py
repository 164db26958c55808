"""Families of generated programs: random sizes from a seed, each written once for PyTorch's names.

A case computes one value from its inputs, or with `wrt` the gradients of that value. The same
function serves PyTorch and tilegrad. Sizes are drawn from ranges, small ones as likely as large
ones, half of them multiples of 16.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FAMILIES", "Case", "Input", "cases"]

# Upper bounds on multiplications and elements of a case: it runs for some milliseconds at most.
_MOST_PRODUCTS, _MOST_ELEMENTS = 60_000_000, 1_500_000
# Lower bounds: with fewer, the launch takes most of the time.
_LEAST_PRODUCTS, _LEAST_ELEMENTS = 1 << 18, 1 << 14


@dataclass(frozen=True)
class Input:
    """A shape, of floats, or of integers below `below` if that is given."""

    shape: tuple[int, ...]
    below: int = 0


@dataclass(frozen=True)
class Case:
    """One program.

    Attributes:
        compute: takes (functional, *inputs), gives a tensor; `functional` is `torch.nn.functional`
            with `cat`, which corpus.py adds.
        wrt: the inputs whose gradients are computed; none for the value itself.
    """

    family: str
    name: str
    inputs: tuple[Input, ...]
    compute: Callable[..., Any]
    wrt: tuple[int, ...] = ()


def _size(choice: random.Random, low: int, high: int) -> int:
    drawn = round(math.exp(choice.uniform(math.log(low), math.log(high))))
    return max(16, drawn // 16 * 16) if high > 16 and choice.random() < 0.5 else drawn


def _sizes(
    choice: random.Random, count: int, low: int, high: int, most: int, least: int = _LEAST_ELEMENTS
) -> list[int]:
    """Sizes whose product is from `least` to `most`."""
    while True:
        found = [_size(choice, low, high) for _ in range(count)]
        if least <= math.prod(found) <= most:
            return found


def _text(*shape: int) -> str:
    return "x".join(map(str, shape))


def products(choice: random.Random) -> Case:
    m, k, n = _sizes(choice, 3, 4, 1000, _MOST_PRODUCTS, _LEAST_PRODUCTS)
    batch = choice.choice([0, 0, 0, choice.randint(2, 12)])
    if batch * m * k * n > _MOST_PRODUCTS:
        batch = 0
    left, right = choice.random() < 0.25, choice.random() < 0.25
    end = choice.choice(["", "", "relu", "bias"])
    head = (batch,) if batch else ()

    def compute(f: Any, a: Any, b: Any, *bias: Any) -> Any:
        a = a.transpose(-1, -2) if left else a
        b = b.transpose(-1, -2) if right else b
        value = a @ b
        return value.relu() if end == "relu" else value + bias[0] if bias else value

    inputs = [Input((*head, *((k, m) if left else (m, k))))]
    inputs += [Input((*head, *((n, k) if right else (k, n))))]
    inputs += [Input((n,))] if end == "bias" else []
    words = [_text(*head, m, k, n), "left transposed" * left, "right transposed" * right, end]
    return Case("products", " ".join(filter(None, words)), tuple(inputs), compute)


def _convolution(choice: random.Random) -> tuple[str, tuple[Input, ...], Callable[..., Any]]:
    while True:
        kernel, stride = choice.choice([1, 1, 3, 3, 3, 5, 7, 2, 4]), choice.choice([1, 1, 2])
        side, batch = _size(choice, 7, 60), choice.randint(1, 4)
        width = choice.choice([side, side, max(side - choice.randint(1, 5), 7)])
        channels, to = _size(choice, 3, 160), _size(choice, 3, 160)
        groups = choice.choice([1, 1, 1, "depthwise", 2, 4])
        if groups == "depthwise":
            groups, to = channels, channels
        if channels % groups or to % groups or kernel > side:
            continue
        padding = choice.choice([kernel // 2, kernel // 2, 0])
        work = batch * side * width * to * channels // groups * kernel**2 // stride**2
        if (
            _LEAST_PRODUCTS <= work <= _MOST_PRODUCTS
            and batch * side * width * max(to, channels) < _MOST_ELEMENTS
        ):
            break

    def compute(f: Any, x: Any, w: Any) -> Any:
        return f.conv2d(x, w, stride=stride, padding=padding, groups=groups)

    inputs = Input((batch, channels, side, width)), Input((to, channels // groups, kernel, kernel))
    words = f"{kernel}x{kernel} {_text(*inputs[0].shape)} to {to}"
    words += f" stride {stride}" * (stride > 1) + " valid" * (padding == 0 and kernel > 1)
    words += " depthwise" if groups == channels > 1 else f" groups {groups}" * (groups > 1)
    return words, inputs, compute


def convolutions(choice: random.Random) -> Case:
    return Case("convolutions", *_convolution(choice))


def convolution_gradients(choice: random.Random) -> Case:
    name, inputs, compute = _convolution(choice)
    which = choice.choice([0, 1])
    name += " by weight" if which else " by input"
    return Case("convolution gradients", name, inputs, compute, (which,))


def reductions(choice: random.Random) -> Case:
    shape = _sizes(choice, choice.choice([2, 3]), 3, 2000, _MOST_ELEMENTS)
    axis = choice.randrange(len(shape))
    kind = choice.choice(["sum", "amax", "squares", "var", "products", "all"])

    def compute(f: Any, x: Any, *other: Any) -> Any:
        if kind == "all":
            return x.exp().sum()
        if kind == "squares":
            return (x * x).sum(axis)
        return (x * other[0]).sum(axis) if other else getattr(x, kind)(axis)

    count = 2 if kind == "products" else 1
    name = f"{kind} {_text(*shape)}" + f" axis {axis}" * (kind != "all")
    return Case("reductions", name, (Input(tuple(shape)),) * count, compute)


def rowwise(choice: random.Random) -> Case:
    rows, columns = _sizes(choice, 2, 3, 3000, _MOST_ELEMENTS // 2)
    kind = choice.choice(["softmax", "log_softmax", "layer_norm", "normalize", "logsumexp"])

    def compute(f: Any, x: Any) -> Any:
        if kind == "layer_norm":
            return f.layer_norm(x, (columns,))
        if kind == "logsumexp":
            return x.logsumexp(1)
        return f.normalize(x, dim=1) if kind == "normalize" else getattr(f, kind)(x, 1)

    return Case("rowwise", f"{kind} {_text(rows, columns)}", (Input((rows, columns)),), compute)


def elementwise(choice: random.Random) -> Case:
    rows, columns = _sizes(choice, 2, 5, 2000, _MOST_ELEMENTS)
    kind = choice.choice(["gelu", "exp", "chain", "row", "column", "silu", "divide"])
    second = {"row": (columns,), "column": (rows, 1)}.get(kind, (rows, columns))

    def compute(f: Any, x: Any, y: Any) -> Any:
        if kind in ("gelu", "silu"):
            return getattr(f, kind)(x) * y
        if kind == "exp":
            return (x.exp() + 1).log() + y
        if kind == "divide":
            return (x / (y * y + 1)).sqrt()
        return (x * 2 + y).relu() * x if kind == "chain" else (x - y) * y

    inputs = Input((rows, columns)), Input(second)
    return Case("elementwise", f"{kind} {_text(rows, columns)}", inputs, compute)


def movement(choice: random.Random) -> Case:
    shape = tuple(_sizes(choice, 3, 3, 300, _MOST_ELEMENTS // 2))
    axis = choice.randrange(3)
    kind = choice.choice(["permute", "roll", "flip", "cat", "repeat", "pad", "slice"])
    order = choice.choice([(0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
    amount = choice.randint(1, shape[axis])

    def moved(f: Any, x: Any) -> Any:
        if kind == "permute":
            return x.permute(order)
        if kind in ("roll", "flip"):
            return x.roll(amount, axis) if kind == "roll" else x.flip((axis,))
        if kind == "cat":
            return f.cat([x, x], axis)
        if kind == "repeat":
            return x.repeat(*[2 if each == axis else 1 for each in range(3)])
        if kind == "pad":
            return f.pad(x, (0, 0) * (2 - axis) + (min(amount, 5), 2))
        return x.narrow(axis, amount // 2, shape[axis] - amount // 2)

    def compute(f: Any, x: Any) -> Any:
        # Some of these are views in one framework, and copies in the other: a slice of whole rows
        # is contiguous in PyTorch as it is.
        return f.copy(moved(f, x))

    words = f"{kind} {_text(*shape)} " + (_text(*order) if kind == "permute" else f"axis {axis}")
    return Case("movement", words, (Input(shape),), compute)


def pooling(choice: random.Random) -> Case:
    while True:
        batch, channels, side = choice.randint(1, 4), _size(choice, 3, 128), _size(choice, 7, 80)
        if _LEAST_ELEMENTS <= batch * channels * side * side <= _MOST_ELEMENTS:
            break
    kernel, stride = choice.choice([2, 3, 5]), choice.choice([1, 2, 3])
    kind = choice.choice(["max_pool2d", "avg_pool2d"])

    def compute(f: Any, x: Any) -> Any:
        return getattr(f, kind)(x, kernel, stride)

    name = f"{kind} {kernel} stride {stride} {_text(batch, channels, side, side)}"
    return Case("pooling", name, (Input((batch, channels, side, side)),), compute)


def attention(choice: random.Random) -> Case:
    while True:
        heads, length = choice.randint(1, 12), _size(choice, 8, 400)
        keys, width = choice.choice([length, _size(choice, 8, 400)]), _size(choice, 8, 128)
        if _LEAST_PRODUCTS <= heads * length * keys * width <= _MOST_PRODUCTS // 2:
            break
    is_causal = keys == length and choice.random() < 0.5

    def compute(f: Any, q: Any, k: Any, v: Any) -> Any:
        return f.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    inputs = tuple(Input((1, heads, each, width)) for each in (length, keys, keys))
    name = f"{_text(heads, length, keys, width)}" + " causal" * is_causal
    return Case("attention", name, inputs, compute)


def indexing(choice: random.Random) -> Case:
    rows, columns = _sizes(choice, 2, 4, 4000, _MOST_ELEMENTS)
    count = _size(choice, 4, max(_MOST_ELEMENTS // columns, 5))
    kind = choice.choice(["rows", "gather", "index_add"])

    def compute(f: Any, x: Any, ids: Any, *given: Any) -> Any:
        if kind == "rows":
            return x[ids]
        return x.gather(1, ids) if kind == "gather" else x.index_add(0, ids, given[0])

    if kind == "gather":
        width = max(columns // 2, 1)
        inputs = (Input((rows, columns)), Input((rows, width), columns))
    else:
        inputs = (Input((rows, columns)), Input((count,), rows))
        inputs += (Input((count, columns)),) * (kind == "index_add")
    name = f"{kind} {_text(rows, columns)}" + f" by {count}" * (kind != "gather")
    return Case("indexing", name, inputs, compute)


def gradients(choice: random.Random) -> Case:
    maker = choice.choice([rowwise, elementwise, pooling, products, attention])
    case = maker(choice)
    which = choice.randrange(len(case.inputs))
    name = f"{case.family}: {case.name} by input {which}"
    return Case("gradients", name, case.inputs, case.compute, (which,))


FAMILIES: dict[str, Callable[[random.Random], Case]] = {
    "products": products,
    "convolutions": convolutions,
    "convolution gradients": convolution_gradients,
    "reductions": reductions,
    "rowwise": rowwise,
    "elementwise": elementwise,
    "movement": movement,
    "pooling": pooling,
    "attention": attention,
    "indexing": indexing,
    "gradients": gradients,
}


def cases(count: int, seed: int, families: Sequence[str] = ()) -> Iterator[Case]:
    """`count` cases over all families in equal shares, the same for one seed whatever `families`
    are asked for.
    """
    wanted = list(FAMILIES)
    for number in range(count):
        family = wanted[number % len(wanted)]
        if not families or family in families:
            yield FAMILIES[family](random.Random(f"{seed} {number}"))
