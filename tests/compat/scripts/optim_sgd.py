import numpy as np
from tinygrad import Tensor
from tinygrad.nn.optim import SGD, Optimizer

w0, g = np.array([1.0, -2.0, 3.0], np.float32), np.array([0.5, 0.25, -1.0], np.float32)
Tensor.training = True
w = Tensor(w0, requires_grad=True)
opt = SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01, fused=True)
assert isinstance(opt, Optimizer)
want, m = w0.copy(), np.zeros(3, np.float32)
for _ in range(3):
    opt.zero_grad()
    (w * Tensor(g)).sum().backward()
    opt.step()
    m = 0.9 * m + g + 0.01 * want
    want = want - 0.1 * m
np.testing.assert_allclose(w.numpy(), want, rtol=1e-5)
nesterov = SGD([n := Tensor(w0, requires_grad=True)], 0.1, 0.9, 0.0, True)
(n * Tensor(g)).sum().backward()
nesterov.step()
np.testing.assert_allclose(n.numpy(), w0 - 0.1 * (g + 0.9 * g), rtol=1e-5)
checked = 2
