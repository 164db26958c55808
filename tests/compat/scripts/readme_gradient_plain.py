# Neither the oldest scripts nor the newest mark what is trained.
import numpy as np
from tinygrad import Tensor

x = Tensor.eye(3)
y = Tensor([[2.0, 0, -2.0]])
z = y.matmul(x).sum()
z.backward()
np.testing.assert_array_equal(x.grad.numpy(), np.tile([[2.0], [0.0], [-2.0]], (1, 3)))
np.testing.assert_array_equal(y.grad.tolist(), [[1.0, 1.0, 1.0]])
z.backward()
np.testing.assert_array_equal(y.grad.tolist(), [[2.0, 2.0, 2.0]])
a, b = Tensor.ones(2), Tensor.ones(2)
try:
    (a * b).sum().backward()
    raise AssertionError("a gradient of which one?")
except Exception as error:
    text = str(error)
assert "requires_grad=True" in text and a.grad is None
checked = 5
