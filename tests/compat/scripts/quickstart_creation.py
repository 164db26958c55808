import numpy as np
from tinygrad import Tensor, dtypes

t1 = Tensor([1, 2, 3, 4, 5])
t2 = Tensor(np.array([1, 2, 3, 4, 5]))
full = Tensor.full(shape=(2, 3), fill_value=5)
zeros, ones = Tensor.zeros(2, 3), Tensor.ones(2, 3)
ahead = Tensor.arange(start=0, stop=10, step=1)
like = Tensor.full_like(full, fill_value=2)
assert t1.dtype == dtypes.int32 and t2.dtype == dtypes.int64
np.testing.assert_array_equal(full.numpy(), np.full((2, 3), 5))
np.testing.assert_array_equal(zeros.numpy() + ones.numpy(), np.ones((2, 3)))
np.testing.assert_array_equal(ahead.numpy(), np.arange(10))
assert like.shape == (2, 3) and like.tolist() == [[2] * 3] * 2
np.testing.assert_array_equal(Tensor.eye(3).numpy(), np.eye(3))
t4 = Tensor([1, 2, 3, 4, 5], dtype=dtypes.float32)
t6 = (((t4 + 2) * 3).relu()).log_softmax()
want = np.array([9.0, 12, 15, 18, 21])
want = want - np.log(np.exp(want - want.max()).sum()) - want.max()
np.testing.assert_allclose(t6.numpy(), want, rtol=1e-5, atol=1e-5)
checked = 8
