import numpy as np
from tinygrad import Context, Tensor, dtypes

with Context(DEFAULT_FLOAT=dtypes.half):
    t = Tensor([1.5, 2.5])
    assert t.dtype == dtypes.half and Tensor.ones(2).dtype == dtypes.half
    assert dtypes.default_float == dtypes.half
    np.testing.assert_array_equal((t * 2).numpy(), np.array([3, 5], np.float16))
    with Context(DEFAULT_FLOAT=dtypes.bfloat16):
        assert Tensor.zeros(3).dtype == dtypes.bfloat16
    assert Tensor.rand(2).dtype == dtypes.half
assert Tensor([1.5]).dtype == dtypes.float32


@Context(DEFAULT_FLOAT="HALF", DEFAULT_INT=dtypes.int64)
def made():
    return Tensor([0.5]), Tensor([1])


floats, ints = made()
assert floats.dtype == dtypes.half and ints.dtype == dtypes.int64
checked = 7
