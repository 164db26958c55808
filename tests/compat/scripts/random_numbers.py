import numpy as np
from tinygrad import Tensor, dtypes

Tensor.manual_seed(42)
first = Tensor.rand(5).numpy()
Tensor.manual_seed(42)
np.testing.assert_array_equal(Tensor.rand(5).numpy(), first)
assert not np.array_equal(Tensor.rand(5).numpy(), first)
draw = Tensor.rand(2000).numpy()
assert draw.min() >= 0 and draw.max() < 1 and abs(draw.mean() - 0.5) < 0.05
assert abs(Tensor.randn(2000).numpy().std() - 1) < 0.1
whole = Tensor.randint(2, 500, low=5, high=10)
assert whole.dtype == dtypes.int32 and set(whole.numpy().ravel()) == {5, 6, 7, 8, 9}
even = Tensor.uniform(1000, low=-3, high=-1).numpy()
assert even.min() >= -3 and even.max() < -1
normal = Tensor.normal(2000, mean=10, std=2).numpy()
assert abs(normal.mean() - 10) < 0.3 and abs(normal.std() - 2) < 0.3
bound = np.sqrt(6 / (30 + 20))
assert abs(Tensor.glorot_uniform(30, 20).numpy()).max() <= bound
assert abs(Tensor.scaled_uniform(30, 20).numpy()).max() <= 600**-0.5
assert Tensor.kaiming_uniform(3, 4).shape == Tensor.kaiming_normal(3, 4).shape == (3, 4)
assert Tensor.rand_like(Tensor.ones(2, 3)).shape == (2, 3)
checked = 11
