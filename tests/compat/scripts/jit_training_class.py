import numpy as np
from tinygrad import Tensor, TinyJit, nn

Tensor.manual_seed(0)
rng = np.random.default_rng(0)
X = rng.standard_normal((32, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25


class Regression:
    def __init__(self):
        self.layer = nn.Linear(3, 1)
        self.opt = nn.optim.SGD(nn.state.get_parameters(self.layer), lr=0.3)

    @TinyJit
    def train(self, x, y):
        with Tensor.train():
            loss = (self.layer(x) - y).square().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.realize()


model = Regression()
losses = [model.train(Tensor(X), Tensor(Y)).item() for _ in range(40)]
assert losses[-1] < 1e-3 < losses[0]
np.testing.assert_allclose(model.layer.weight.numpy(), [[1, -2, 0.5]], atol=0.05)
np.testing.assert_allclose(model.layer.bias.numpy(), [0.25], atol=0.05)
checked = 3
