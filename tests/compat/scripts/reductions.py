import numpy as np
from tinygrad import Tensor

x = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
t = Tensor(x)
for got, want in [
    (t.sum(), x.sum()), (t.sum(axis=1), x.sum(1)),
    (t.sum((0, 2), keepdim=True), x.sum((0, 2), keepdims=True)),
    (t.mean(axis=-1), x.mean(-1)), (t.max(axis=0), x.max(0)), (t.min(), x.min()),
    (t.prod(axis=2), x.prod(2)), (t.var(axis=1), x.var(1, ddof=1)),
    (t.std(axis=1, correction=0), x.std(1)), (t.logsumexp(axis=1), np.log(np.exp(x).sum(1))),
]:  # fmt: skip
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
np.testing.assert_array_equal(t.argmax(axis=1).numpy(), x.argmax(1))
np.testing.assert_array_equal(t.argmin().numpy(), x.argmin())
assert (t > -99).all().item() and not (t > 99).any().item()
np.testing.assert_array_equal((t > 0).sum().item(), (x > 0).sum())
checked = 14
