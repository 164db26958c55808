"""Sums of products: dot, matmul, einsum, linear.

There is no matmul op. Both sides are stretched to the shape of all products, multiplied and summed
over the shared axis; the scheduler and the Opts turn that into a tiled kernel. Products are taken
in the dtype in which the sides meet; half products are summed in float32 and rounded once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, Self

from tilegrad.base.dtype import DType
from tilegrad.base.dtype_promotion import promote, sum_dtype
from tilegrad.base.errors import DTypeError, ShapeError, article
from tilegrad.base.origin import composed
from tilegrad.ir.sizes import highest
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import check_devices, describe
from tilegrad.tensor.handle.size_arguments import is_one, same, show_shape
from tilegrad.tensor.indexing.random import Random
from tilegrad.tensor.products.path import contraction_path

__all__ = ["Linear"]


class Linear(Random):
    """Linear algebra."""

    __slots__ = ()

    @templated
    def dot(self, other: Self, dtype: DType | str | None = None) -> Self:
        """Matrix product. Axes before the last two broadcast; a vector is a row on the left, a
        column on the right.

        Args:
            other: (..., k, m) or (k,).
            dtype: dtype of the sum and of the result. By default both are in the dtype to which the
                sides promote, float16 and bfloat16 summed in float32.

        Returns a tensor of shape (..., n, m) for this shape (..., n, k); vectors lose their axis.

        Raises ShapeError if the inner sizes differ or there is no axis, DeviceError for tensors of
        two devices.

        >>> Tensor([1, 2]).dot(Tensor([3, 4])).item()
        11
        """
        return self._product("dot", other, dtype)

    @templated
    def matmul(self, other: Self, dtype: DType | str | None = None, reverse: bool = False) -> Self:
        """Matrix product, as `dot`.

        Args:
            other: (..., k, m) or (k,).
            dtype: dtype of the sum and of the result.
            reverse: exchange the sides: other @ self.

        Returns a tensor of shape (..., n, m) for this shape (..., n, k); vectors lose their axis.

        Raises ShapeError if the inner sizes differ or there is no axis, DeviceError for tensors of
        two devices.

        >>> (Tensor([[1, 2]]) @ Tensor([[3], [4]])).tolist()
        [[11]]
        """
        return (
            other._product("matmul", self, dtype)
            if reverse
            else self._product("matmul", other, dtype)
        )

    @composed
    def _product(
        self, name: str, other: Self, dtype: DType | str | None, is_wide: bool = False
    ) -> Self:
        check_devices(name, [self, other])
        ours, theirs = self.shape, other.shape
        if not ours or not theirs:
            raise ShapeError(
                f"{name}: both sides need an axis",
                left=describe(self.uop),
                right=describe(other.uop),
            )
        inner, column = ours[-1], theirs[-min(len(theirs), 2)]
        if not same(inner, column):
            raise ShapeError(
                f"{name}: inner sizes differ: {show_shape((inner,))[1:-2]} and "
                f"{show_shape((column,))[1:-2]}",
                left=describe(self.uop),
                right=describe(other.uop),
                rule="the last axis of left must equal the second-to-last of right",
            )
        if not _batches_fit(ours[:-2], theirs[:-2]):
            raise ShapeError(
                f"{name}: axes before the last two do not broadcast: "
                f"{show_shape(ours[:-2])} and {show_shape(theirs[:-2])}",
                left=describe(self.uop),
                right=describe(other.uop),
            )
        # (..., M, 1, K) times (..., 1, N, K), summed over K.
        gap = (1,) * min(len(ours) - 1, len(theirs) - 1, 1)
        left = self.reshape(*ours[:-1], *gap, inner)
        if len(theirs) == 1:
            right = other.reshape(inner)
        else:
            right = other.transpose(-1, -2).reshape(*theirs[:-2], *gap, theirs[-1], column)
        if dtype is not None:
            # In a wider dtype the products are exact, too.
            left, right = left.cast(dtype), right.cast(dtype)
            return (left * right).sum(-1, dtype=dtype)
        return (left * right)._sum_of_products(-1, is_wide)

    @templated
    def __matmul__(self, other: Self) -> Self:
        return self._product("matmul", other, None)

    @templated
    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DType | str | None = None
    ) -> Self:
        """Affine map: self @ weight + bias.

        Args:
            weight: (inputs, outputs), or (inputs,) to scale each input.
            bias: (outputs,).
            dtype: dtype in which all three are computed.

        Returns a tensor of shape (..., outputs) for this shape (..., inputs), in the dtype to which
        all promote.

        Raises ShapeError unless the sizes fit, DeviceError for tensors of two devices.

        >>> Tensor([[1.0, 2.0]]).linear(Tensor([[1.0], [10.0]]), Tensor([0.5])).tolist()
        [[21.5]]
        """
        if weight.ndim == 1:
            return self * weight if bias is None else self * weight + bias
        if bias is None:
            return self._product("linear", weight, dtype)
        # The sum of half types takes the bias in its own dtype, and is rounded once.
        result = promote(promote(self.dtype, weight.dtype), bias.dtype)
        is_short = dtype is None and result.is_float and result.itemsize < 4
        x = self._product("linear", weight, dtype, is_short)
        return (x + bias).cast(result) if is_short else x + bias

    def sequential(self, layers: Sequence[Callable[[Self], Self]]) -> Self:
        """Apply functions one after another.

        Args:
            layers: functions or modules, each of one tensor.

        Returns what the last one returns, of any shape and dtype.

        Raises DTypeError for what cannot be called.

        >>> Tensor([-1.0, 4.0]).sequential([Tensor.relu, Tensor.sqrt]).tolist()
        [0.0, 2.0]
        """
        x: Self = self
        for number, layer in enumerate(layers):
            if not callable(layer):
                raise DTypeError(
                    f"sequential: layer {number} is {article(type(layer).__name__)}, no function",
                    rule="each layer takes a tensor and gives one",
                )
            x = layer(x)
        return x

    @templated
    def outer(self, other: Self) -> Self:
        """Outer product: all products of an element of this vector and one of `other`.

        Args:
            other: a vector; more axes are flattened.

        Returns a tensor of shape (n, m), in the dtype to which both promote.

        >>> Tensor([1, 2]).outer(Tensor([10, 20])).tolist()
        [[10, 20], [20, 40]]
        """
        return self.reshape(-1, 1) * other.reshape(1, -1)

    @classmethod
    @composed
    def einsum(cls, formula: str, *operands: Any, dtype: DType | str | None = None) -> Self:
        """Sum of products in Einstein's notation, as in "bij,bjk->bik"; "..." stands for the axes
        that broadcast.

        Without "->" the letters that occur once remain, in alphabetical order. A letter twice in
        one operand takes its diagonal. More than two operands are multiplied in pairs, in the order
        that takes the fewest multiplications.

        Args:
            formula: letters of the axes of each operand, and of the result.
            operands: a tensor for each term, one by one or as a list.
            dtype: dtype of the sums.

        Returns a tensor with the axes that stand behind "->", in the dtype to which all promote.

        Raises ShapeError if the letters do not fit the operands.

        >>> Tensor.einsum("ij,j->i", Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
        [3, 7]
        """
        tensors: list[Self] = list(
            operands[0]
            if len(operands) == 1 and isinstance(operands[0], (list, tuple))
            else operands
        )
        inputs, output = _parse_formula(formula, [tensor.ndim for tensor in tensors])
        sizes: dict[str, Any] = {}
        for letters, tensor in zip(inputs, tensors):
            for letter, size in zip(letters, tensor.shape):
                known = sizes.setdefault(letter, size)
                if is_one(known):
                    sizes[letter] = size
                elif not (same(known, size) or (is_one(size) and letter.isupper())):
                    raise ShapeError(
                        f"einsum: {letter!r} has two sizes: {known} and {size}", formula=formula
                    )
        result = tensors[0].dtype
        for tensor in tensors[1:]:
            result = promote(result, tensor.dtype)
        terms = list(zip(inputs, tensors))
        if len(terms) <= 2:
            total = _contracted(terms, output, sizes, dtype)
        else:
            total = _in_pairs(terms, output, sizes, dtype)
        made: Self = total.cast(result) if dtype is None else total
        return made


def _in_pairs(
    operands: list[tuple[str, Any]], output: str, sizes: dict[str, Any], dtype: DType | str | None
) -> Any:
    """The product of more than two operands, two at a time, in the order that takes least work.
    Half products stay in float32 until the end.
    """
    operands = [
        (letters, tensor.cast(sum_dtype(tensor.dtype)) if tensor.dtype.is_float else tensor)
        for letters, tensor in operands
    ]
    # An axis that only one operand has is summed before it meets others.
    for position, (letters, tensor) in enumerate(operands):
        others = "".join(other for at, (other, _) in enumerate(operands) if at != position)
        letters_left = "".join(x for x in dict.fromkeys(letters) if x in others or x in output)
        if letters_left != letters:
            wide = sum_dtype(tensor.dtype)
            operands[position] = (
                letters_left,
                _contracted([(letters, tensor)], letters_left, sizes, wide),
            )
    extents = {letter: highest(size) for letter, size in sizes.items()}
    path = contraction_path(
        [frozenset(letters) for letters, _ in operands], frozenset(output), extents
    )
    left = dict(enumerate(operands))
    for number, (one, other) in enumerate(path):
        pair = [left.pop(one), left.pop(other)]
        if not left:
            break
        needed = set(output).union(*(letters for letters, _ in left.values()))
        letters_left = "".join(x for x in dict.fromkeys(pair[0][0] + pair[1][0]) if x in needed)
        own = {
            letter: tensor.shape[letters.index(letter)]
            for letters, tensor in sorted(pair, key=lambda operand: len(operand[0]))
            for letter in letters
        }
        for letters, tensor in pair:
            for letter, size in zip(letters, tensor.shape):
                if is_one(own[letter]):
                    own[letter] = size
        wide = sum_dtype(promote(pair[0][1].dtype, pair[1][1].dtype))
        left[len(operands) + number] = letters_left, _contracted(pair, letters_left, own, wide)
    return _contracted(pair, output, sizes, dtype)


def _contracted(
    operands: Sequence[tuple[str, Any]],
    output: str,
    sizes: dict[str, Any],
    dtype: DType | str | None,
) -> Any:
    """The product of operands, each with the letters of its axes, summed over what the result has
    not.
    """
    used = set("".join(letters for letters, _ in operands))
    order = [*output, *sorted(used - set(output))]
    aligned = [_aligned(letters, tensor, order) for letters, tensor in operands]
    product = aligned[0]
    for tensor in aligned[1:]:
        product = product * tensor
    product = product.expand([sizes[letter] for letter in order])
    reduced = tuple(range(len(output), len(order)))
    if reduced:
        return product.sum(reduced, dtype=dtype)
    return product if dtype is None else product.cast(dtype)


def _batches_fit(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether sizes broadcast."""
    if not left or not right or left == right:
        return True
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(is_one(a) or is_one(b) or same(a, b) for a, b in pairs)


def _parse_formula(formula: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand's axes, and those of the result; "..." becomes upper-case letters
    of its own.
    """
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    named_operands = left.split(",")
    if len(named_operands) != len(ndims):
        raise ShapeError(
            f"einsum: {len(named_operands)} operands in the formula, {len(ndims)} given",
            formula=formula,
        )
    used = set(text)
    spare = [letter for letter in string.ascii_uppercase if letter not in used]
    inputs: list[str] = []
    widest = ""
    for operand, ndim in zip(named_operands, ndims):
        named = len(operand.replace("...", ""))
        extra = ndim - named
        if extra < 0 or (extra and "..." not in operand):
            raise ShapeError(
                f"einsum: {operand!r} names {named} axes of an operand with {ndim}", formula=formula
            )
        letters = "".join(reversed(spare[:extra]))
        widest = max(widest, letters, key=len)
        inputs.append(operand.replace("...", letters))
    if arrow:
        output = right.replace("...", widest)
    else:
        named_once = sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
        output = widest + "".join(named_once)
    absent = [letter for letter in output if letter not in "".join(inputs)]
    if absent or len(set(output)) != len(output):
        fact = f"no operand has {absent[0]!r}" if absent else "a letter is there twice"
        raise ShapeError(f"einsum: the result is {output!r}: {fact}", formula=formula)
    return inputs, output


def _aligned(letters: str, tensor: Any, order: Sequence[str]) -> Any:
    """`tensor` with an axis for each letter of `order`, of size 1 where it has none."""
    while len(set(letters)) < len(letters):
        twice = next(letter for letter in letters if letters.count(letter) > 1)
        first = letters.index(twice)
        second = letters.index(twice, first + 1)
        tensor = tensor.diagonal(0, first, second)
        letters = (
            "".join(letter for at, letter in enumerate(letters) if at not in (first, second))
            + twice
        )
    axes = [letters.index(letter) for letter in order if letter in letters]
    moved = tensor.permute(axes)
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if letter in letters else 1 for letter in order])
