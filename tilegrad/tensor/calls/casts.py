"""The same values, or the same bits, in another dtype."""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.device.disk import is_file
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.incoming import Incoming
from tilegrad.tensor.calls.templates import templated
from tilegrad.tensor.handle.core import as_dtype, cast_node, compute, describe
from tilegrad.tensor.storage import file_tensors

__all__ = ["Casts"]


class Casts(Incoming):
    """Casts. They have a class of their own, whose methods are called like Python's types."""

    __slots__ = ()

    @templated
    def cast(self, dtype: DType | str) -> Self:
        """Convert the values to another dtype: floats to integers toward zero, integers wrap
        around, anything to bool as `!= 0`.

        Args:
            dtype: a dtype or its name, such as "float16".

        Returns a tensor of this shape in `dtype`.

        Raises DTypeError for a name that is no dtype.

        >>> Tensor([1.7, -1.7]).cast(dtypes.int32).tolist()
        [1, -1]
        """
        if dtype is self.dtype:
            return self
        return self._like(cast_node(self.uop, as_dtype(dtype)))

    def bitcast(self, dtype: DType | str) -> Self:
        """Read the same bits as another dtype. For a wider dtype each element takes several
        neighbours of the last axis, the first of them lowest; for a narrower one it becomes
        several.

        Args:
            dtype: a dtype or its name.

        Returns a tensor of this shape in `dtype`, whose last axis is multiplied by the ratio of the
        widths.

        Raises ShapeError if the last axis has no whole number of wider elements, DTypeError for a
        name that is no dtype.

        >>> Tensor([1.0]).bitcast(dtypes.int32).tolist()
        [1065353216]
        >>> Tensor([1, 1, 0, 0]).cast(dtypes.uint8).bitcast(dtypes.int32).tolist()
        [257]
        """
        dtype, node = as_dtype(dtype), self.uop
        if dtype.itemsize != node.dtype.itemsize and is_file(self.device):
            view = file_tensors.reinterpreted(node, dtype)
            if view is not None:
                return self._of(view, self.device)
        if dtype.itemsize > node.dtype.itemsize:
            return self._joined_bits(dtype)
        if dtype.itemsize < node.dtype.itemsize:
            return self._split_bits(dtype)
        if dtype is node.dtype:
            return self
        is_back = node.op is Ops.BITCAST and node.src[0].dtype is dtype
        return self._like(node.src[0] if is_back else compute(Ops.BITCAST, dtype, (node,)))

    def _joined_bits(self, dtype: DType) -> Self:
        """`bitcast` to a wider dtype."""
        narrow, wide = (dtypes.from_name(f"uint{8 * d.itemsize}") for d in (self.dtype, dtype))
        count = dtype.itemsize // self.dtype.itemsize
        *rest, last = self.shape or (1,)
        if not self.shape or not isinstance(last, int) or last % count:
            raise ShapeError(
                f"bitcast: {dtype.name} takes {count} elements of {self.dtype.name} from the last "
                f"axis, which has {last}",
                tensor=describe(self.uop),
            )
        words: Any = self.bitcast(narrow).cast(wide)
        words = words.reshape(*rest, last // count, count)
        joined = words[..., 0]
        for number in range(1, count):
            joined = joined | words[..., number] << (8 * narrow.itemsize * number)
        found: Self = joined.bitcast(dtype)
        return found

    def _split_bits(self, dtype: DType) -> Self:
        """`bitcast` to a narrower dtype."""
        wide, narrow = (dtypes.from_name(f"uint{8 * d.itemsize}") for d in (self.dtype, dtype))
        if not self.shape:
            raise ShapeError(
                f"bitcast: a tensor without axes cannot become several of {dtype.name}",
                tensor=describe(self.uop),
            )
        count = self.dtype.itemsize // dtype.itemsize
        bits: Any = self.bitcast(wide)
        steps = type(bits).arange(count, dtype=wide, device=self.device) * (8 * dtype.itemsize)
        *rest, last = self.shape
        words = (bits.unsqueeze(-1) >> steps).cast(narrow).reshape(*rest, last * count)
        found: Self = words.bitcast(dtype)
        return found

    def pack_int4(self) -> Self:
        """Integers of 4 bits, two in a byte: the lowest 4 bits of each element of shape (..., 2 n),
        as uint8 of shape (..., n), the even places in the lower halves of the bytes.

        Signed values are -8 to 7, unsigned ones 0 to 15; others wrap around.

        Returns a uint8 tensor of shape (..., n).

        Raises DTypeError for floats, ShapeError if the last axis has an odd size.

        >>> Tensor([1, 2, -1, 7]).pack_int4().tolist()
        [33, 127]
        """
        node = self.uop
        if not node.dtype.is_int:
            raise DTypeError(
                f"pack_int4: integers are needed, not {node.dtype.name}", tensor=describe(node)
            )
        size = node.shape[-1] if node.shape else 1
        if not isinstance(size, int) or size % 2:
            raise ShapeError(
                f"pack_int4: the last axis has {size} elements, which are not pairs",
                tensor=describe(node),
            )
        halves: Any = self.cast(dtypes.uint8)
        halves = (halves & 15).reshape(*node.shape[:-1], size // 2, 2)
        packed: Self = halves[..., 0] | (halves[..., 1] << 4)
        return packed

    def unpack_int4(self, signed: bool = True) -> Self:
        """Unpack what `pack_int4` packed: each byte gives two integers of 4 bits.

        Args:
            signed: values are -8 to 7, as int8; else 0 to 15, as uint8.

        Returns a tensor of shape (..., 2 n) for shape (..., n).

        Raises DTypeError for another dtype than uint8.

        >>> Tensor([33, 127], dtype="uint8").unpack_int4().tolist()
        [1, 2, -1, 7]
        """
        node = self.uop
        if node.dtype is not dtypes.uint8:
            raise DTypeError(
                f"unpack_int4: bytes are needed, not {node.dtype.name}",
                tensor=describe(node),
                remedy="cast or bitcast to uint8",
            )
        if not node.shape:
            raise ShapeError("unpack_int4: a tensor without axes has no last axis to double")
        x: Any = self
        shifts = x.arange(2, dtype=dtypes.uint8, device=self.device) * 4
        values = (x.unsqueeze(-1) >> shifts) & 15
        if signed:
            values = (values ^ 8).cast(dtypes.int8) - 8
        unpacked: Self = values.reshape(*node.shape[:-1], node.shape[-1] * 2)
        return unpacked

    def type(self, dtype: DType | str) -> Self:
        """As `cast`.

        >>> Tensor([1, 2]).type(dtypes.float32).tolist()
        [1.0, 2.0]
        """
        return self.cast(dtype)

    @templated
    def float(self) -> Self:
        """Cast to float32.

        Returns a float32 tensor of this shape.

        >>> Tensor([1, 2]).float().tolist()
        [1.0, 2.0]
        """
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """Cast to float64.

        Returns a float64 tensor of this shape.

        >>> Tensor([1.0]).double().dtype
        dtypes.double
        """
        return self.cast(dtypes.float64)

    @templated
    def half(self) -> Self:
        """Cast to float16.

        Returns a float16 tensor of this shape.

        >>> Tensor([1.0]).half().dtype
        dtypes.half
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16.

        Returns a bfloat16 tensor of this shape.

        >>> Tensor([1.0]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    @templated
    def int(self) -> Self:
        """Cast to int32, toward zero.

        Returns an int32 tensor of this shape.

        >>> Tensor([1.7, -1.7]).int().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64, toward zero.

        Returns an int64 tensor of this shape.

        >>> Tensor([1.7]).long().tolist()
        [1]
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Cast to int16, toward zero; large values wrap around.

        Returns an int16 tensor of this shape.

        >>> Tensor([1.7]).short().dtype
        dtypes.short
        """
        return self.cast(dtypes.int16)

    @templated
    def bool(self) -> Self:
        """Cast to bool: true where the value is not zero.

        Returns a bool tensor of this shape.

        >>> Tensor([0.0, 2.0]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)

    def _floating(self) -> Self:
        """This tensor, or its values in the default float dtype if they are integers."""
        return self if self.dtype.is_float else self.cast(dtypes.default_float)

    def _wide(self) -> Self:
        """This tensor with at least the precision of float32, in which functions of half are
        computed; of integers, and of the default float dtype.
        """
        own = self.dtype
        dtype = own if own.is_float else dtypes.default_float
        wide = dtype if dtype.itemsize >= 4 else dtypes.float32
        return self if wide is own else self.cast(wide)
