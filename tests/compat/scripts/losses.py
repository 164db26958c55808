import numpy as np
from tinygrad import Tensor

rng = np.random.default_rng(5)
x = rng.standard_normal((6, 4)).astype(np.float32)
y = np.array([0, 3, 1, 1, 2, 0])
log = x - np.log(np.exp(x).sum(1, keepdims=True))
t = Tensor(x)
rtol = 2e-5
picked = -log[np.arange(6), y]
got = t.sparse_categorical_crossentropy(Tensor(y)).item()
np.testing.assert_allclose(got, picked.mean(), rtol=rtol)
got = t.sparse_categorical_crossentropy(Tensor(y), ignore_index=1).item()
np.testing.assert_allclose(got, picked[y != 1].mean(), rtol=rtol)
np.testing.assert_allclose(t.cross_entropy(Tensor(y)).item(), picked.mean(), rtol=rtol)
got = t.cross_entropy(Tensor(np.eye(4, dtype="f")[y]), reduction="none").numpy()
np.testing.assert_allclose(got, picked, rtol=rtol)
smooth = 0.9 * picked.mean() + 0.1 * -log.mean(1).mean()
got = t.cross_entropy(Tensor(y), label_smoothing=0.1).item()
np.testing.assert_allclose(got, smooth, rtol=rtol)
got = t.log_softmax(axis=1).nll_loss(Tensor(y), reduction="sum").item()
np.testing.assert_allclose(got, picked.sum(), rtol=rtol)
p, target = 1 / (1 + np.exp(-x)), (x > 0.3).astype(np.float32)
want = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()
for got in (
    t.binary_crossentropy_logits(Tensor(target)),
    t.sigmoid().binary_crossentropy(Tensor(target)),
):
    np.testing.assert_allclose(got.item(), want, rtol=rtol)
checked = 8
