import numpy as np
from tinygrad import Tensor, nn

x = np.random.default_rng(9).standard_normal((2, 4, 3, 3)).astype(np.float32)
t = Tensor(x)


def normal(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


close = {"rtol": 1e-4, "atol": 1e-5}
np.testing.assert_allclose(nn.LayerNorm(3)(t).numpy(), normal(x, -1), **close)
np.testing.assert_allclose(nn.LayerNorm([3, 3])(t).numpy(), normal(x, (2, 3)), **close)
np.testing.assert_allclose(nn.LayerNorm2d(4)(t).numpy(), normal(x, 1), **close)
got = nn.GroupNorm(2, 4)(t).numpy()
np.testing.assert_allclose(got, normal(x.reshape(2, 2, -1), -1).reshape(x.shape), **close)
np.testing.assert_allclose(nn.InstanceNorm(4)(t).numpy(), normal(x, (2, 3)), **close)
want = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
np.testing.assert_allclose(nn.RMSNorm(3)(t).numpy(), want, **close)
np.testing.assert_allclose(t.layernorm(axis=(1, 2, 3)).numpy(), normal(x, (1, 2, 3)), **close)
checked = 7
