import numpy as np
from tinygrad import Context, Tensor, Variable, nn

data = np.arange(1, 9, dtype=np.float32)
x = Tensor(data).realize()
w = Tensor([2.0]).realize()
optimizer = nn.optim.SGD([w], lr=0.01)
expected = 2.0
with Context(TRAINING=1):
    for size in (2, 5, 8, 3):
        n = Variable("n", 1, 8).bind(size)
        optimizer.zero_grad()
        ((x[:n] * w) ** 2).sum().backward()
        Tensor.realize(*optimizer.schedule_step())
        expected -= 0.01 * (2 * data[:size] ** 2 * expected).sum()
        np.testing.assert_allclose(w.numpy(), [expected], rtol=1e-5)

# Windows that slide, and shapes under their name.
for start in (0, 3, 6):
    i = Variable("i", 0, 8).bind(start)
    np.testing.assert_array_equal((x[i : i + 2] * 10).numpy(), data[start : start + 2] * 10)
assert x.reshape(shape=(2, 4)).permute(order=(1, 0)).shape == (4, 2)
checked = 8
