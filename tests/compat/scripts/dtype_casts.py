import numpy as np
from tinygrad import Tensor, dtypes

x = np.array([-1.75, 0.0, 2.5, 100.25], np.float32)
t = Tensor(x)
for dtype, kind in [
    (dtypes.int32, "i4"), (dtypes.int8, "i1"), (dtypes.float16, "f2"), (dtypes.float64, "f8"),
    (dtypes.bool, "?"), (dtypes.long, "i8"),
]:  # fmt: skip
    got = t.cast(dtype)
    assert got.dtype == dtype and got.dtype is dtype
    np.testing.assert_array_equal(got.numpy(), x.astype(kind))
assert t.half().dtype == dtypes.half and t.int().dtype == dtypes.int
assert t.half().float().double().dtype == dtypes.double
near = t.cast(dtypes.bfloat16).cast(dtypes.float32).numpy()
np.testing.assert_allclose(near, x, rtol=2**-8)
np.testing.assert_array_equal(t.bitcast(dtypes.uint32).numpy(), x.view(np.uint32))
assert Tensor([1, 2], dtype=dtypes.uint8).nbytes() == 2
assert Tensor([1.0], dtype="float16").dtype == dtypes.float16
checked = 12
