import numpy as np
from tinygrad import Tensor, nn

w0, g = np.array([1.0, -2.0, 3.0], np.float32), np.array([0.5, 0.25, -1.0], np.float32)


def adam(want, decay, b1=0.8, b2=0.95, eps=1e-6, lr=0.1):
    m = v = np.zeros(3)
    for t in range(1, 4):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        step = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        want = want - lr * (step + decay * want)
    return want


with Tensor.train():
    for make, decay in [
        (lambda p: nn.optim.Adam(p, 0.1, 0.8, 0.95, 1e-6), 0.0),
        (lambda p: nn.optim.AdamW(p, lr=0.1, b1=0.8, b2=0.95, eps=1e-6, weight_decay=0.1), 0.1),
    ]:
        w = Tensor(w0, requires_grad=True)
        opt = make([w])
        for _ in range(3):
            opt.zero_grad()
            (w * Tensor(g)).sum().backward()
            opt.step()
        np.testing.assert_allclose(w.numpy(), adam(w0, decay), rtol=1e-5)
checked = 2
