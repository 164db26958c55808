import numpy as np
from tinygrad import Tensor

x = np.random.default_rng(13).permutation(12).reshape(3, 4).astype(np.float32)
t = Tensor(x)
np.testing.assert_array_equal(t.cumsum(axis=1).numpy(), x.cumsum(1))
np.testing.assert_array_equal(t.cumprod(axis=0).numpy(), x.cumprod(0))
highest, _ = t.cummax(axis=1)
np.testing.assert_array_equal(highest.numpy(), np.maximum.accumulate(x, 1))
values, places = t.sort(dim=1, descending=True)
np.testing.assert_array_equal(values.numpy(), -np.sort(-x, 1))
np.testing.assert_array_equal(places.numpy(), np.argsort(-x, 1))
values, places = t.topk(2, dim=1)
np.testing.assert_array_equal(values.numpy(), -np.sort(-x, 1)[:, :2])
assert t.argsort().shape == (3, 4)
checked = 7
