# Sizes that vary: variables in shapes, slices and reductions, one capture for all of them, and
# expressions of UOps.
import numpy as np
from tinygrad import Context, GlobalCounters, Tensor, TinyJit, UOp, Variable, dtypes
from tinygrad.helpers import getenv, prod
from tinygrad.uop.ops import Ops

rng = np.random.default_rng(0)
data = rng.normal(size=(10, 3)).astype(np.float32)
x = Tensor(data).realize()


@TinyJit
def stats(rows: Tensor) -> Tensor:
    m = rows.mean(axis=0)
    return (rows.max(axis=0) + m * 2).realize()


v = Variable("rows", 1, 10)
for n in range(1, 11):
    vi = v.bind(n)
    out = stats(x[:vi])
    np.testing.assert_allclose(out.numpy(), data[:n].max(0) + data[:n].mean(0) * 2, rtol=1e-5)

# products of a part with itself, and a part behind an offset
for n in (2, 5, 9):
    vi = Variable("n", 1, 9).bind(n)
    part = x.shrink(((0, vi), None))
    np.testing.assert_allclose((part.T @ part).numpy(), data[:n].T @ data[:n], rtol=1e-4)
    late = x.shrink(((vi - 1, vi + 1), None))
    np.testing.assert_allclose(late.sum(0).numpy(), data[n - 1 : n + 1].sum(0), rtol=1e-5)
    assert part.shape[1] == 3 and not isinstance(part.shape[0], int)
    total = part.reshape(vi * 3).sum()
    np.testing.assert_allclose(total.item(), data[:n].sum(), rtol=1e-4)

# bound values
name, value = v.bind(7).unbind()
assert value == 7 and name.expr == "rows"
assert v.vmin == 1 and v.vmax == 10
assert (v * 4 + 2).vmax == 42

# UOps are numbers, too
a = UOp.const(dtypes.int, 3) + UOp.const(dtypes.int, 4) * 2
assert a.vmin == a.vmax == 11
assert UOp.variable("i", 0, 5).op is Ops.DEFINE_VAR

# a cache written at a variable place
cache = Tensor.zeros(10, 3).contiguous().realize()


@TinyJit
def put(row: Tensor, pos) -> Tensor:
    cache.shrink(((pos, pos + 1), None)).assign(row.reshape(1, 3)).realize()
    return cache.shrink(((0, pos + 1), None)).sum(0).realize()


for i in range(10):
    pos = Variable("pos", 0, 9).bind(i)
    got = put(Tensor(data[i]).realize(), pos)
    np.testing.assert_allclose(got.numpy(), data[: i + 1].sum(0), rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(cache.numpy(), data)
GlobalCounters.reset()
put(Tensor(data[0]).realize(), Variable("pos", 0, 9).bind(0))
assert GlobalCounters.kernel_count >= 2
with Context(DEBUG=0, NOOPT=1):
    np.testing.assert_allclose(x[: v.bind(4)].sum(0).numpy(), data[:4].sum(0), rtol=1e-5)
print("ok", prod((2, 3)), getenv("NOTHING", 5))
checked = 1
