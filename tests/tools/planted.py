"""Bugs planted on purpose, each as Python that bends the package before a program runs."""

from __future__ import annotations

_METHOD = """
from tilegrad import Tensor
old = Tensor.{name}
def bent(self, *given, **named):
    {body}
Tensor.{name} = bent
"""


def _bent(name: str, body: str) -> str:
    return _METHOD.format(name=name, body=body)


PLANTED = {
    "flip forgets": _bent("flip", "return self + 0"),
    "pad fills with 1": _bent("pad", "return old(self - 1, *given, **named) + 1"),
    "pad swaps low and high": _bent(
        "pad", "return old(self, tuple((b, a) for a, b in given[0]), **named)"
    ),
    "cumsum is exclusive": _bent("cumsum", "return old(self, *given, **named) - self"),
    "max of negatives is 0": _bent("max", "return old(self, *given, **named).maximum(0)"),
    "min is max": _bent("min", "return self.max(*given, **named)"),
    "relu lets negatives through": _bent("relu", "return self.maximum(-1)"),
    "abs of -1": _bent("abs", "return (self == -1).where(self, old(self))"),
    "clamp without an upper limit": _bent("clamp", "return self.maximum(given[0])"),
    "maximum is minimum": _bent("maximum", "return self.minimum(*given)"),
    "floor truncates": _bent("floor", "return self.trunc()"),
    "cast rounds": _bent("cast", "return old(self.round() if given[0] == 'int32' and "
                         "self.dtype.is_float else self, *given, **named)"),
    "fmod is floored": _bent("fmod", "return self - (self / given[0]).floor() * given[0]"),
    "sum leaves out the last": _bent(
        "sum", "return old(self, *given, **named) - (self[-1].sum() * 0 + 1)"
    ),
    "mean by one less": _bent(
        "mean", "return old(self, *given, **named) * (1 + 1 / max(self.shape[given[0]], 1))"
    ),
    "argmax of ties is the last": _bent(
        "argmax", "n = self.shape[given[0]]; return n - 1 - old(self.flip(given[0]), *given)"
    ),
    "sort descends": _bent("sort", "return old(self, given[0], True)"),
    "permute is inverse": _bent(
        "permute", "return old(self, *[list(given).index(n) for n in range(len(given))])"
    ),
    "reshape transposes": _bent(
        "reshape", "return old(self.T if self.ndim == 2 and min(self.shape) > 1 else self, *given)"
    ),
    "tanh of large values": _bent("tanh", "return old(self).clamp(-0.9, 0.9)"),
    "sin is cos": _bent("sin", "return self.cos()"),
    "where swaps": _bent("where", "return old(self, given[1], given[0])"),
    "sub is reversed": _bent("__sub__", "return old(given[0] * 1, self)"),
    "mul loses the sign": _bent("__mul__", "return old(self, *given).abs()"),
    "add of negatives": _bent("__add__", "return old(self, *given).maximum(-9)"),
    "floor division truncates": _bent("__floordiv__", "return (self / given[0]).trunc()"),
    "remainder has the sign of the left": _bent("__mod__", "return self.fmod(given[0])"),
    "shift left one too far": _bent("__lshift__", "return old(self, given[0]) * 2"),
    "shift right is logical": _bent("__rshift__", "return old(self.maximum(0), given[0])"),
    "a negative index is one off": _bent(
        "__getitem__",
        "k = given[0]; return old(self, (k + (k < 0)) if isinstance(k, Tensor) else k)",
    ),
    "a write forgets": _bent("__setitem__", "return None"),
    "products are transposed": _bent("__matmul__", "return old(self * 1, given[0].flip(0))"),
}  # fmt: skip
