import numpy as np
from tinygrad import Tensor, TinyJit
from tinygrad.nn.optim import SGD

w = Tensor([10.0], requires_grad=True)
opt = SGD([w], lr=1.0)


class ExponentialLR:
    def __init__(self, optimizer, gamma):
        self.optimizer, self.gamma = optimizer, gamma

    def step(self):
        self.optimizer.lr.assign(self.optimizer.lr * self.gamma).realize()


schedule = ExponentialLR(opt, 0.5)


@TinyJit
def train():
    with Tensor.train():
        opt.zero_grad()
        loss = (w * 2).sum().backward()
        opt.step()
        return loss.realize()


want = 10.0
for n in range(5):
    assert np.isclose(train().item(), 2 * want)
    want -= 2 * 0.5**n
    schedule.step()
np.testing.assert_allclose(w.item(), want, rtol=1e-6)
np.testing.assert_allclose(opt.lr.numpy(), [0.5**5])
checked = 7
