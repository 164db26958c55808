import numpy as np
from tinygrad import Tensor, nn
from tinygrad.nn.state import get_state_dict

layers = [nn.Linear(4, 6), Tensor.relu, nn.LayerNorm(6), lambda x: x * 2, nn.Linear(6, 2)]
x = np.random.default_rng(15).standard_normal((3, 4)).astype(np.float32)
got = Tensor(x).sequential(layers).numpy()
hidden = np.maximum(x @ layers[0].weight.numpy().T + layers[0].bias.numpy(), 0)
hidden = (hidden - hidden.mean(1, keepdims=True)) / np.sqrt(hidden.var(1, keepdims=True) + 1e-5)
want = 2 * hidden @ layers[4].weight.numpy().T + layers[4].bias.numpy()
np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
assert sorted(get_state_dict(layers)) == [
    "0.bias", "0.weight", "2.bias", "2.weight", "4.bias", "4.weight",
]  # fmt: skip
assert layers[2](Tensor.ones(2, 6)).shape == (2, 6)
checked = 3
