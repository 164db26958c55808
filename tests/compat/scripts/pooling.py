import numpy as np
from tinygrad import Tensor

x = np.random.default_rng(11).standard_normal((1, 2, 6, 6)).astype(np.float32)
t = Tensor(x)
blocks = x.reshape(1, 2, 3, 2, 3, 2)
np.testing.assert_array_equal(t.max_pool2d().numpy(), blocks.max((3, 5)))
np.testing.assert_allclose(t.avg_pool2d().numpy(), blocks.mean((3, 5)), rtol=1e-5, atol=1e-6)
windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
got = t.max_pool2d(kernel_size=(3, 3), stride=1).numpy()
np.testing.assert_array_equal(got, windows.max((4, 5)))
got = t.max_pool2d(kernel_size=3, stride=2, padding=1).numpy()
padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
np.testing.assert_array_equal(got, windows.max((4, 5)))
got = t.interpolate(size=(12, 12), mode="nearest").numpy()
np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))
checked = 5
