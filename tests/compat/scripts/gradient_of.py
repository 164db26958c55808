import numpy as np
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0])
y = Tensor([2.0, -1.0, 0.5])
dx, dy = (x * x * y).sum().gradient(x, y)
np.testing.assert_allclose(dx.numpy(), 2 * x.numpy() * y.numpy())
np.testing.assert_allclose(dy.numpy(), x.numpy() ** 2)
(first,) = x.pow(3).sum().gradient(x)
(second,) = first.sum().gradient(x)
np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-5)
w = Tensor([1.0, 2.0]).is_param_()
(w * 3).sum().backward()
(w * 4).sum().backward()
np.testing.assert_allclose(w.grad.numpy(), [7, 7])
p = Tensor([4.0], requires_grad=True)
(p.detach() * p).sum().backward()
assert p.grad.item() == 4
seeded = (p * 2).backward(Tensor([10.0]))
assert p.grad.item() == 24 and seeded.shape == (1,)
checked = 6
