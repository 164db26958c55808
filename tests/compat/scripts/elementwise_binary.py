import numpy as np
from tinygrad import Tensor

a, b = np.array([-7, -2, 3, 9], np.int32), np.array([2, 3, -2, 4], np.int32)
x, y = Tensor(a), Tensor(b)
pairs = [
    (x + y, a + b), (x - y, a - b), (x * y, a * b), (x // y, a // b), (x % y, a % b),
    (x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a), (x << 2, a << 2), (3 - x, 3 - a),
    (2 * x, 2 * a), (x.maximum(y), np.maximum(a, b)), (x.minimum(0), np.minimum(a, 0)),
    (x.clip(-3, 3), a.clip(-3, 3)), (x.pow(2), a**2),
]  # fmt: skip
got = Tensor.stack(*[each for each, _ in pairs]).numpy()
np.testing.assert_array_equal(got, np.stack([each for _, each in pairs]))
asked = Tensor.stack(x < y, x > 0, x == 3, x != y, x <= -2, x >= y).numpy()
np.testing.assert_array_equal(asked, [a < b, a > 0, a == 3, a != b, a <= -2, a >= b])
np.testing.assert_allclose((x / y).numpy(), a / b, rtol=1e-6)
np.testing.assert_allclose((2.0**x).numpy(), 2.0**a, rtol=1e-6)
x += 1
np.testing.assert_array_equal(x.numpy(), a + 1)
np.testing.assert_allclose(Tensor([1.0, 2.0]).lerp(Tensor([3.0, 6.0]), 0.5).numpy(), [2, 4])
checked = len(pairs) + 10
