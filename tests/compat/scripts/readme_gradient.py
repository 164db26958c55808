import numpy as np
from tinygrad import Tensor

x = Tensor.eye(3, requires_grad=True)
y = Tensor([[2.0, 0, -2.0]], requires_grad=True)
z = y.matmul(x).sum()
z.backward()
np.testing.assert_array_equal(x.grad.numpy(), np.tile([[2.0], [0.0], [-2.0]], (1, 3)))
np.testing.assert_array_equal(y.grad.tolist(), [[1.0, 1.0, 1.0]])
checked = 2
