import numpy as np
from tinygrad import Tensor

x = np.arange(60).reshape(3, 4, 5)
t = Tensor(x)
rows = Tensor([2, 0])
pairs = [
    (t[1], x[1]), (t[-1, 2], x[-1, 2]), (t[:, 1:3], x[:, 1:3]), (t[..., -1], x[..., -1]),
    (t[::2, ::-1], x[::2, ::-1]), (t[:, None, 0], x[:, None, 0]), (t[rows], x[[2, 0]]),
    (t[[0, 2], [1, 3]], x[[0, 2], [1, 3]]), (t[:, rows], x[:, [2, 0]]),
    (t[Tensor([[0], [1]]), Tensor([1, 2])], x[[[0], [1]], [1, 2]]),
    (t[:, :, 4:0:-2], x[:, :, 4:0:-2]),
]  # fmt: skip
together = Tensor.cat(*[got.flatten() for got, _ in pairs]).numpy()
np.testing.assert_array_equal(together, np.concatenate([want.ravel() for _, want in pairs]))
assert all(got.shape == want.shape for got, want in pairs)
try:
    t[5]
    raise AssertionError("an index outside")
except IndexError:
    pass
checked = len(pairs) + 1
