import numpy as np
from tinygrad import Tensor, nn

rng = np.random.default_rng(7)
x = rng.standard_normal((2, 4, 6, 6)).astype(np.float32)


def convolve(x, w, b, stride=1, pad=0, groups=1):
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([np.einsum("ncijkl,ockl->noij", a, v) for a, v in parts], 1) + (
        b.reshape(-1, 1, 1)
    )


for options in (
    {"kernel_size": 3},
    {"kernel_size": (3, 3), "stride": 2, "padding": 1},
    {"kernel_size": 3, "padding": 1, "groups": 2},
):
    layer = nn.Conv2d(4, 6, **options)
    w, b = layer.weight.numpy(), layer.bias.numpy()
    want = convolve(
        x, w, b, options.get("stride", 1), options.get("padding", 0), options.get("groups", 1)
    )
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)
same = nn.Conv2d(4, 2, 5, padding="same", bias=False)
assert same.bias is None and same(Tensor(x)).shape == (2, 2, 6, 6)
line = nn.Conv1d(4, 3, 3)
want = convolve(x[:, :, :1], line.weight.numpy()[:, :, None], line.bias.numpy())[:, :, 0]
np.testing.assert_allclose(line(Tensor(x[:, :, 0])).numpy(), want, rtol=1e-4, atol=1e-5)
checked = 5
