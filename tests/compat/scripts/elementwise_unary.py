import numpy as np
from tinygrad import Tensor

x = np.array([0.25, 0.5, 1.0, 2.5, 3.75], np.float32)
t = Tensor(x)
pairs = [
    (t.sqrt(), np.sqrt(x)), (t.rsqrt(), 1 / np.sqrt(x)), (t.exp(), np.exp(x)),
    (t.exp2(), 2**x), (t.log(), np.log(x)), (t.log2(), np.log2(x)), (t.sin(), np.sin(x)),
    (t.cos(), np.cos(x)), (t.tan(), np.tan(x)), (t.reciprocal(), 1 / x), (-t, -x),
    (t.square(), x * x), (t.sigmoid(), 1 / (1 + np.exp(-x))), (t.tanh(), np.tanh(x)),
    (t.floor(), np.floor(x)), (t.ceil(), np.ceil(x)), (t.round(), np.round(x)),
    (t.trunc(), np.trunc(x)), ((t - 1).abs(), abs(x - 1)), ((t - 1).sign(), np.sign(x - 1)),
]  # fmt: skip
got = Tensor.stack(*[each for each, _ in pairs]).numpy()
np.testing.assert_allclose(got, np.stack([each for _, each in pairs]), rtol=2e-6, atol=1e-6)
odd = Tensor([1.0, float("inf"), float("nan"), -float("inf")])
assert odd.isnan().tolist() == [False, False, True, False]
assert odd.isinf().tolist() == [False, True, False, True]
checked = len(pairs) + 2
