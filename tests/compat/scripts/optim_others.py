import numpy as np
from tinygrad import Tensor, nn

w0 = np.array([[3.0, 0.0], [0.0, 4.0]], np.float32)
g = np.array([[0.5, 0.25], [-1.0, 0.75]], np.float32)


def moved(make):
    w = Tensor(w0, requires_grad=True)
    opt = make([w])
    with Tensor.train():
        (w * Tensor(g)).sum().backward().realize(*opt.schedule_step())
    return w.numpy()


got = moved(lambda p: nn.optim.LARS(p, lr=0.1, momentum=0.9, weight_decay=0.01, tcoef=0.02))
ratio = 0.02 * 5 / (np.linalg.norm(g) + 0.01 * 5)
np.testing.assert_allclose(got, w0 - 0.1 * ratio * (g + 0.01 * w0), rtol=1e-5, atol=1e-6)
got = moved(lambda p: nn.optim.LAMB(p, lr=0.1, b1=0.9, b2=0.999, eps=1e-6))
np.testing.assert_allclose(got, w0 - 0.1 * 5 / 2 * np.sign(g), rtol=1e-4, atol=1e-5)
got = moved(lambda p: nn.optim.Muon(p, 0.1, 0.0, 0.0))
step = (w0 - got) / 0.1
u, _, v = np.linalg.svd(g)
turned = u.T @ step @ v.T  # the directions of the gradient, each about as long as the others
np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-4)
assert np.all(abs(np.diag(turned) - 1) < 0.4)
checked = 4
