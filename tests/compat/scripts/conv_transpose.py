import numpy as np
from tinygrad import Tensor, nn

rng = np.random.default_rng(8)
x = rng.standard_normal((1, 2, 3, 3)).astype(np.float32)
layer = nn.ConvTranspose2d(
    2, 3, 2, 2, 0, 1, 1, 1, False
)  # stride, output_padding; dilation, groups
w = layer.weight.numpy()
want = np.zeros((1, 3, 7, 7), np.float32)
for i in range(3):
    for j in range(3):
        want[0, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += np.einsum(
            "c,cokl->okl", x[0, :, i, j], w
        )
got = layer(Tensor(x))
assert layer.bias is None and got.shape == want.shape
np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
checked = 2
