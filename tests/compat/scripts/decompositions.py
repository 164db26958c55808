import numpy as np
from tinygrad import Tensor

a = np.random.default_rng(4).standard_normal((4, 3)).astype(np.float32)
q, r = Tensor(a).qr()
np.testing.assert_allclose((q @ r).numpy(), a, atol=1e-5)
np.testing.assert_allclose((q.T @ q).numpy(), np.eye(q.shape[1]), atol=1e-5)
u, s, v = Tensor(a).svd(full_matrices=False)
np.testing.assert_allclose(s.numpy(), np.linalg.svd(a)[1], rtol=1e-4)
np.testing.assert_allclose(((u * s) @ v).numpy(), a, atol=1e-4)
checked = 4
