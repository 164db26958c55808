import numpy as np
from tinygrad import Tensor

N = 12
a, b = Tensor.rand(N, N), Tensor.rand(N, N)
c = (a.reshape(N, 1, N) * b.T.reshape(1, N, N)).sum(axis=2)
np.testing.assert_allclose(c.numpy(), a.numpy() @ b.numpy(), rtol=1e-5)
np.testing.assert_allclose((a @ b).numpy(), c.numpy(), rtol=1e-5)
checked = 2
