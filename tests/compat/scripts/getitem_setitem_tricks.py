# Indexing in several steps: slices of slices, None and Ellipsis among tensors, negative steps,
# writes through windows, masks as factors, padding by bounds outside, gathers of gathers.

import numpy as np
from tinygrad import Tensor, dtypes

rng = np.random.default_rng(7)
a = rng.integers(-9, 9, (4, 5, 6)).astype(np.float32)
t = Tensor(a)
pairs = [
    (t[1:][::2, ..., ::-1][:, 1:4][0], a[1:][::2, ..., ::-1][:, 1:4][0]),
    (t[:, None, 2, ..., None], a[:, None, 2, ..., None]),
    (t[-1, -2:, ::2].T, a[-1, -2:, ::2].T),
    (t[Tensor([[0, 3], [1, -1]])][..., 2], a[np.array([[0, 3], [1, -1]])][..., 2]),
    (t[:, Tensor([0, 2]), Tensor([1, 5])], a[:, [0, 2], [1, 5]]),
    (t[Tensor([0, 2]), :, Tensor([1, 5])], a[[0, 2], :, [1, 5]]),
    (t[..., Tensor([1, 0, 1])], a[..., [1, 0, 1]]),
    (t[2][Tensor([4, 0])][:, 3:], a[2][[4, 0]][:, 3:]),
    (t[Tensor.arange(4), Tensor.arange(4)], a[np.arange(4), np.arange(4)]),
    (
        t.shrink(((1, 3), None, (2, 6))).pad((None, (1, 0), None)),
        np.pad(a[1:3, :, 2:6], ((0, 0), (1, 0), (0, 0))),
    ),
    (t.flip((0, 2)).permute(2, 0, 1)[3], a[::-1, :, ::-1].transpose(2, 0, 1)[3]),
    (t.reshape(20, 6)[Tensor([19, 0])], a.reshape(20, 6)[[19, 0]]),
    ((t > 0).where(t, 0)[0], np.where(a > 0, a, 0)[0]),
    (t.gather(2, t.argsort(-1)), np.sort(a, -1)),
    (t.diagonal(dim1=0, dim2=1) if False else t[0].diagonal(), a[0].diagonal()),
]
for number, (mine, other) in enumerate(pairs):
    assert mine.shape == other.shape and (mine.numpy() == other).all(), number

b = a.copy()
w = Tensor(a).contiguous().realize()
w[1] = 0
b[1] = 0
w[:, 2, ::2] = Tensor([1.0, 2.0, 3.0])
b[:, 2, ::2] = [1, 2, 3]
w[2:, 1:3, -1] = w[:2, 1:3, 0] + 1
b[2:, 1:3, -1] = b[:2, 1:3, 0] + 1
w[0, 0] = w[0, 0].flip(0)
b[0, 0] = b[0, 0][::-1].copy()
w[..., 5] += 10
b[..., 5] += 10
w[3, 1:] *= 2
b[3, 1:] *= 2
assert (w.numpy() == b).all()
row = Tensor.zeros(6).contiguous().realize()
for i in range(6):
    row[i] = i * i
assert row.tolist() == [0, 1, 4, 9, 16, 25]
window = w[1:3, 2]
window.assign(Tensor.full((2, 6), 7.0)).realize()
b[1:3, 2] = 7
assert (w.numpy() == b).all()
pages = Tensor.zeros(4, 3, 2, dtype=dtypes.int32).contiguous().realize()
table = Tensor([2, 0])
gathered = pages[table]
pages[2] = Tensor([[1, 2], [3, 4], [5, 6]])
assert gathered.tolist() == [[[0, 0]] * 3] * 2
assert pages[table][0].tolist() == [[1, 2], [3, 4], [5, 6]]
checked = len(pairs) + 5
