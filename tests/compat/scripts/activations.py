from math import erf

import numpy as np
from tinygrad import Tensor

x = np.linspace(-4, 4, 9).astype(np.float32)
t = Tensor(x)
sig = 1 / (1 + np.exp(-x))
pairs = {
    "relu": np.maximum(x, 0), "leaky_relu": np.where(x > 0, x, 0.01 * x), "silu": x * sig,
    "swish": x * sig, "sigmoid": sig, "relu6": x.clip(0, 6), "elu": np.where(x > 0, x, np.expm1(x)),
    "quick_gelu": x / (1 + np.exp(-1.702 * x)), "softplus": np.log1p(np.exp(x)),
    "softsign": x / (1 + abs(x)), "hardtanh": x.clip(-1, 1), "logsigmoid": np.log(sig),
    "hardswish": x * (x + 3).clip(0, 6) / 6, "mish": x * np.tanh(np.log1p(np.exp(x))),
}  # fmt: skip
got = Tensor.stack(*[getattr(t, name)() for name in pairs]).numpy()
np.testing.assert_allclose(got, np.stack(list(pairs.values())), rtol=3e-5, atol=1e-5)
tanh_form = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
np.testing.assert_allclose(t.gelu().numpy(), tanh_form, rtol=3e-5, atol=1e-6)
np.testing.assert_allclose(t.erf().numpy(), [erf(v) for v in x], rtol=1e-5)
checked = len(pairs) + 2
