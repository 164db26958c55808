import numpy as np
from tinygrad import Tensor

x = np.zeros((4, 5), np.float32)
t = Tensor.zeros(4, 5).contiguous().realize()
t[1] = 3
x[1] = 3
t[2:, 1:3] = Tensor([[1.0, 2.0], [3.0, 4.0]])
x[2:, 1:3] = [[1, 2], [3, 4]]
t[:, -1] = Tensor.arange(4).float()
x[:, -1] = np.arange(4)
t[0] += 5
x[0] += 5
np.testing.assert_array_equal(t.numpy(), x)
view = t[3]
view.assign(Tensor.full((5,), 9.0)).realize()
x[3] = 9
np.testing.assert_array_equal(t.numpy(), x)
checked = 2
