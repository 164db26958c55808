import numpy as np
from tinygrad import Tensor

a = Tensor([1.0, 2.0, 3.0]).realize()
b = a.clone()
a.assign(a + 10).realize()
np.testing.assert_array_equal(a.numpy(), [11, 12, 13])
np.testing.assert_array_equal(b.numpy(), [1, 2, 3])
later = a * 2  # of the values of this moment, whatever is assigned before it is computed
a.assign(Tensor([0.0, 0.0, 0.0]))
np.testing.assert_array_equal(later.numpy(), [22, 24, 26])
np.testing.assert_array_equal(a.numpy(), [0, 0, 0])
a.replace(Tensor([5.0, 5.0]))
assert a.tolist() == [5, 5]
x, y = Tensor([1.0]) + 1, Tensor([2.0]) + 2
Tensor.realize(x, y)
assert x.item() == 2 and y.item() == 4
checked = 6
