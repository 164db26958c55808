import numpy as np
from tinygrad import Tensor

x = np.arange(12, dtype=np.float32).reshape(3, 4)
index = np.array([[0, 1, 3, 3], [2, 0, 1, 1]])
t, i = Tensor(x), Tensor(index)
np.testing.assert_array_equal(t.gather(1, i).numpy(), np.take_along_axis(x[:2], index, 1))
base = np.zeros((3, 4), np.float32)
want = base.copy()
np.put_along_axis(want, np.array([[0, 2, 1, 0]]), x[:1], 0)
got = Tensor(base).scatter(0, Tensor([[0, 2, 1, 0]]), t[:1])
np.testing.assert_array_equal(got.numpy(), want)
total = np.zeros(4, np.float32)
np.add.at(total, [0, 1, 1, 3], x[2])
got = Tensor.zeros(4).scatter_reduce(0, Tensor([0, 1, 1, 3]), t[2], reduce="sum")
np.testing.assert_array_equal(got.numpy(), total)
hot = Tensor([0, 2, 1]).one_hot(4).numpy()
np.testing.assert_array_equal(hot, np.eye(4)[[0, 2, 1]])
np.testing.assert_array_equal((t > 5).where(t, -1).numpy(), np.where(x > 5, x, -1))
np.testing.assert_array_equal(t.masked_fill(t < 3, 0).numpy(), np.where(x < 3, 0, x))
np.testing.assert_array_equal(t.masked_select(t > 8).numpy(), x[x > 8])
checked = 7
