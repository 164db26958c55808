import numpy as np
from tinygrad import Tensor

rng = np.random.default_rng(6)
q, k, v = rng.standard_normal((3, 2, 2, 5, 4)).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


scores = q @ k.swapaxes(-1, -2) / 2
Q, K, V = Tensor(q), Tensor(k), Tensor(v)
got = Q.scaled_dot_product_attention(K, V).numpy()
np.testing.assert_allclose(got, softmax(scores) @ v, rtol=1e-4, atol=1e-5)
causal = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
got = Q.scaled_dot_product_attention(K, V, is_causal=True).numpy()
np.testing.assert_allclose(got, softmax(causal) @ v, rtol=1e-4, atol=1e-5)
mask = Tensor.full((1, 1, 5, 5), float("-inf")).triu(1)
got = ((Q @ K.transpose(-2, -1)) / 2 + mask).softmax(-1) @ V
np.testing.assert_allclose(got.numpy(), softmax(causal) @ v, rtol=1e-4, atol=1e-5)
checked = 3
