import numpy as np
from tinygrad import Tensor

rng = np.random.default_rng(2)
a, b = rng.standard_normal((2, 3, 4)).astype("f"), rng.standard_normal((2, 4, 5)).astype("f")
x, y = Tensor(a), Tensor(b)
np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(x.dot(y[0]).numpy(), a @ b[0], rtol=1e-5, atol=1e-6)
got = Tensor.einsum("bij,bjk->bik", x, y).numpy()
np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(Tensor.einsum("bij->ji", x).numpy(), a.sum(0).T, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(
    x.linear(y[0], Tensor.ones(5)).numpy(), a @ b[0] + 1, rtol=1e-5, atol=1e-6
)
whole = Tensor([[1, 2], [3, 4]]) @ Tensor([[5], [6]])
assert whole.tolist() == [[17], [39]]
checked = 6
