import numpy as np
from tinygrad import Tensor, nn

x = np.random.default_rng(12).standard_normal((8, 3)).astype(np.float32)
layer = nn.Linear(3, 2, bias=False)
w0 = layer.weight.numpy()
opt = nn.optim.SGD([layer.weight], lr=0.5)
with Tensor.train():
    opt.zero_grad()
    for part in np.split(x, 4):
        (layer(Tensor(part)).square().mean() / 4).backward()
    np.testing.assert_allclose(layer.weight.grad.numpy(), w0 @ x.T @ x / 8, rtol=1e-4, atol=1e-6)
    opt.step()
np.testing.assert_allclose(layer.weight.numpy(), w0 - w0 @ x.T @ x / 16, rtol=1e-4, atol=1e-6)
checked = 2
