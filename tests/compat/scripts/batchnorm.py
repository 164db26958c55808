import numpy as np
from tinygrad import Tensor, nn

x = np.random.default_rng(10).standard_normal((8, 3, 2, 2)).astype(np.float32) * 2 + 1
norm = nn.BatchNorm(3, eps=1e-4, affine=True, track_running_stats=True, momentum=0.2)
plain = nn.BatchNorm2d(3, 1e-5, False, False)
assert plain.weight is None and norm.momentum == 0.2
mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
shape = (1, 3, 1, 1)
with Tensor.train():
    got = norm(Tensor(x)).numpy()
want = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-4)
np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(norm.running_mean.numpy(), 0.2 * mean, rtol=1e-4, atol=1e-6)
unbiased = x.var((0, 2, 3), ddof=1)
np.testing.assert_allclose(norm.running_var.numpy(), 0.8 + 0.2 * unbiased, rtol=1e-4)
assert norm.num_batches_tracked.item() == 1
want = (x - 0.2 * mean.reshape(shape)) / np.sqrt(0.8 + 0.2 * unbiased + 1e-4).reshape(shape)
np.testing.assert_allclose(norm(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
checked = 6
