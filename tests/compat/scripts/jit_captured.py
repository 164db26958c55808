import numpy as np
from tinygrad import Tensor, TinyJit


@TinyJit
def f(x, y):
    return ((x + y).sum(0) * 2).realize()


assert f.captured is None and f.cnt == 0
x = np.arange(12, dtype=np.float32).reshape(3, 4)
for step in range(4):
    y = np.full((3, 4), step, np.float32)
    out = f(Tensor(x).realize(), Tensor(y).realize())
    np.testing.assert_array_equal(out.numpy(), (x + y).sum(0) * 2)
    assert (f.captured is not None) == (step >= 1)
assert len(f.captured.jit_cache) >= 1
assert len(f.captured.expected_names) == 2
checked = 4
