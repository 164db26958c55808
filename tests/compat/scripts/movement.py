import numpy as np
from tinygrad import Tensor

x = np.arange(24).reshape(2, 3, 4)
t = Tensor(x)
pairs = [
    (t.reshape(6, 4), x.reshape(6, 4)), (t.view(4, -1), x.reshape(4, -1)),
    (t.permute(2, 0, 1), x.transpose(2, 0, 1)), (t.transpose(0, 1), x.swapaxes(0, 1)),
    (t.flip((0, 2)), np.flip(x, (0, 2))), (t.unsqueeze(1).squeeze(1), x),
    (t[:, :1].expand(2, 3, 4), np.broadcast_to(x[:, :1], (2, 3, 4))),
    (t.shrink(((0, 1), (1, 3), None)), x[:1, 1:3]),
    (t.pad((1, 2)), np.pad(x, ((0, 0), (0, 0), (1, 2)))),
    (t.pad(((0, 0), (1, 0), (0, 2)), value=7),
     np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=7)),
    (t.flatten(1), x.reshape(2, 12)), (t.unflatten(2, (2, 2)), x.reshape(2, 3, 2, 2)),
    (t.repeat(1, 2, 1), np.tile(x, (1, 2, 1))), (t.repeat_interleave(2, dim=0), x.repeat(2, 0)),
    (t.roll(1, 2), np.roll(x, 1, 2)),
    (t.rearrange("a b c -> (a c) b"), x.swapaxes(1, 2).reshape(8, 3)),
    (Tensor.cat(t, t, dim=1), np.concatenate([x, x], 1)),
    (Tensor.stack(t, t, dim=0), np.stack([x, x])),
    (t.split(2, dim=2)[1], x[:, :, 2:]), (t.chunk(2, dim=0)[0], x[:1]), (t[0].T, x[0].T),
    (t[0].tril(), np.tril(x[0])), (t[0].triu(1), np.triu(x[0], 1)),
    (t[0, 0].diag(), np.diag(x[0, 0])), (t[0, :, :3].diagonal(), x[0].diagonal()),
]  # fmt: skip
together = Tensor.cat(*[got.flatten() for got, _ in pairs]).numpy()
np.testing.assert_array_equal(together, np.concatenate([want.ravel() for _, want in pairs]))
assert all(got.shape == want.shape for got, want in pairs)
checked = len(pairs)
