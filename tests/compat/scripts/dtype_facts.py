import math

from tinygrad import Tensor, dtypes
from tinygrad.dtype import DType, can_lossless_cast, least_upper_dtype

assert isinstance(dtypes.float, DType) and dtypes.float is dtypes.float32
assert dtypes.half.itemsize == 2 and dtypes.ulong.itemsize == 8
assert dtypes.is_float(dtypes.bfloat16) and not dtypes.is_float(dtypes.int)
assert dtypes.is_int(dtypes.uint8) and dtypes.is_unsigned(dtypes.uint8)
assert not dtypes.is_unsigned(dtypes.int8) and dtypes.is_bool(dtypes.bool)
assert dtypes.min(dtypes.int8) == -128 and dtypes.max(dtypes.uint16) == 65535
assert dtypes.max(dtypes.float) == math.inf and dtypes.finfo(dtypes.half) == (5, 10)
assert dtypes.int8 in dtypes.sints and dtypes.uint8 in dtypes.uints
assert {*dtypes.sints, *dtypes.uints} == {*dtypes.ints} and dtypes.half in dtypes.floats
assert dtypes.from_py(2.5) == dtypes.float and dtypes.from_py([1, True]) == dtypes.int
assert dtypes.fields()["float32"] is dtypes.float32 and "void" not in dtypes.fields()
assert least_upper_dtype(dtypes.int8, dtypes.uint8) == dtypes.int16
assert can_lossless_cast(dtypes.int8, dtypes.half)
assert (Tensor([1], dtype=dtypes.int8) + Tensor([1.0], dtype=dtypes.half)).dtype == dtypes.half
assert (Tensor([1]) + 1.5).dtype == dtypes.float and (Tensor([True]) + 1).dtype == dtypes.int
assert (Tensor([1], dtype=dtypes.half) + 1.5).dtype == dtypes.half
# tinygrad gives uint32; docs/from-tinygrad.md says so.
assert Tensor([1], dtype=dtypes.uint8).sum().dtype == dtypes.int64
checked = 22
