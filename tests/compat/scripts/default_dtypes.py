from tinygrad import Context, Tensor, dtypes

assert dtypes.default_float == dtypes.float32
dtypes.default_float = dtypes.float16
assert Tensor([1.5]).dtype == Tensor.zeros(2).dtype == Tensor.rand(2).dtype == dtypes.half
assert (Tensor([1]) * 0.5).dtype == dtypes.half
dtypes.default_float = dtypes.float32
assert Tensor([1.5]).dtype == dtypes.float32
with Context(DEFAULT_FLOAT="DOUBLE"):
    assert Tensor.ones(2).dtype == dtypes.double
assert Tensor.ones(2).dtype == dtypes.float32
dtypes.default_float = dtypes.bfloat16  # forgotten with the script
checked = 6
