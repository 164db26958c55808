import numpy as np
from tinygrad import Tensor, TinyJit
from tinygrad.engine.jit import TinyJit as SameJit

calls = 0


@TinyJit
def f(a, b):
    global calls
    calls += 1
    return (a * b + 1).realize(), a.sum()


assert TinyJit is SameJit
for i in range(5):
    a, b = np.full((3, 4), i, np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    product, total = f(Tensor(a), Tensor(b))
    np.testing.assert_array_equal(product.numpy(), a * b + 1)
    assert total.item() == a.sum()
assert calls == 2
f.reset()
f(Tensor(a), Tensor(b))
assert calls == 3
fast = TinyJit(lambda x: (x - 1).realize(), prune=True)
assert [fast(Tensor([float(n)])).item() for n in range(4)] == [-1, 0, 1, 2]
checked = 5
