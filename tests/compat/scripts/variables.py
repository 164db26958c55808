import numpy as np
from tinygrad import Tensor, TinyJit, UOp, Variable

keys = np.arange(24, dtype=np.float32).reshape(8, 3)
cache = Tensor(keys).realize()
pos = Variable("pos", 1, 8)


@TinyJit
def head(cache, length):
    return cache[:length].sum(axis=0).realize()


for n in range(1, 6):
    np.testing.assert_array_equal(head(cache, pos.bind(n)).numpy(), keys[:n].sum(0))
n = UOp.variable("n", 1, 4).bind(3)
var, value = n.unbind()
assert value == 3 and var.vmin == 1 and var.vmax == 4
assert isinstance(n, Variable)
checked = 3
