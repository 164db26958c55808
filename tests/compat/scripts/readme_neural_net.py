"""The network of tinygrad's README, trained until its loss has fallen."""

import numpy as np
from tinygrad import Context, Tensor, nn


class LinearNet:
    def __init__(self):
        self.l1 = Tensor.kaiming_uniform(784, 128)
        self.l2 = Tensor.kaiming_uniform(128, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1).dot(self.l1).relu().dot(self.l2)


Tensor.manual_seed(1)
model = LinearNet()
optim = nn.optim.Adam([model.l1, model.l2], lr=0.003)

x = Tensor.rand(4, 1, 28, 28)
y = Tensor([2, 4, 3, 7])

losses = []
with Context(TRAINING=1):
    for _ in range(10):
        optim.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optim.step()
        losses.append(loss.item())
assert np.isfinite(losses).all() and losses[-1] < 0.5 * losses[0]
logits = model(x).numpy()
l1, l2 = model.l1.numpy(), model.l2.numpy()
np.testing.assert_allclose(
    logits, np.maximum(x.numpy().reshape(4, 784) @ l1, 0) @ l2, rtol=1e-3, atol=1e-4
)
checked = 3
