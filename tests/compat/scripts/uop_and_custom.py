# UOps by hand and custom functions: symbolic arithmetic and its bounds, simplification, ranges,
# gradients by gradient(), functions of tensors under TinyJit with Variables.

import numpy as np
from tinygrad import Tensor, TinyJit, UOp, Variable
from tinygrad.uop.ops import Ops

i = Variable("i", 0, 9)
j = Variable("j", 1, 4)
expression = (i * 4 + j) // 4
assert (expression.vmin, expression.vmax) == (0, 10)
assert (i % 10).simplify() is i or (i % 10).simplify().render() == "i"
assert ((i * 6) // 3).simplify().render() in ("(i*2)", "i*2")
assert (i < 10).simplify().arg is True or (i < 10).vmin == 1
assert (i + 1).substitute({i: i.const_like(4)}).simplify().arg == 5
bound = j.bind(3)
assert bound.unbind()[1] == 3
r = UOp.range(8, 0) if True else None
assert r.op is Ops.RANGE and r.vmax == 7

x = Tensor(np.arange(30, dtype=np.float32).reshape(3, 10))


@TinyJit
def mean_of_first(x: Tensor, n: Variable) -> Tensor:
    return (x[:, :n].sum(1) / n).realize()


for n in (1, 4, 7, 10, 2):
    made = mean_of_first(x, Variable("n", 1, 10).bind(n))
    assert np.allclose(made.numpy(), x.numpy()[:, :n].mean(1)), n


def rosenbrock(v: Tensor) -> Tensor:
    return (100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2).sum()


v = Tensor([0.5, -0.3, 0.8], requires_grad=True)
(g,) = rosenbrock(v).gradient(v)
a = np.array([0.5, -0.3, 0.8])
n = np.zeros(3)
n[:-1] += -400 * a[:-1] * (a[1:] - a[:-1] ** 2) - 2 * (1 - a[:-1])
n[1:] += 200 * (a[1:] - a[:-1] ** 2)
assert np.allclose(g.numpy(), n, rtol=1e-4)
y = Tensor([3.0, 4.0])
z = Tensor([1.0, 2.0])
gy, gz = (y * z + y.log()).sum().gradient(y, z)
assert np.allclose(gy.numpy(), [1 + 1 / 3, 2 + 0.25]) and gz.tolist() == [3, 4]
assert (Tensor([1.0, 2.0]).uop if hasattr(Tensor([1.0]), "uop") else None) is not None
assert Tensor.arange(6).reshape(2, 3).uop.shape == (2, 3)
checked = 17
