import numpy as np
from tinygrad import Tensor, nn

cell = nn.LSTMCell(3, 4)
rng = np.random.default_rng(16)
x, h, c = (rng.standard_normal((2, n)).astype(np.float32) for n in (3, 4, 4))
names = sorted(nn.state.get_state_dict(cell))
assert names == ["bias_hh", "bias_ih", "weight_hh", "weight_ih"]
w = {name: tensor.numpy() for name, tensor in nn.state.get_state_dict(cell).items()}
new_h, new_c = cell(Tensor(x), (Tensor(h), Tensor(c)))
gates = x @ w["weight_ih"].T + w["bias_ih"] + h @ w["weight_hh"].T + w["bias_hh"]
i, f, g, o = np.split(gates, 4, 1)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


want_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
np.testing.assert_allclose(new_c.numpy(), want_c, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(new_h.numpy(), sigmoid(o) * np.tanh(want_c), rtol=1e-4, atol=1e-5)
checked = 3
