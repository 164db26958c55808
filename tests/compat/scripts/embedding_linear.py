import numpy as np
from tinygrad import Tensor, nn

table = nn.Embedding(vocab_size=10, embed_size=4)
ids = np.array([[1, 2, 3], [9, 0, 1]])
np.testing.assert_array_equal(table(Tensor(ids)).numpy(), table.weight.numpy()[ids])
layer = nn.Linear(4, 3)
assert layer.weight.shape == (3, 4) and layer.bias.shape == (3,)
assert abs(layer.weight.numpy()).max() <= 0.5
x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
want = x @ layer.weight.numpy().T + layer.bias.numpy()
np.testing.assert_allclose(layer(Tensor(x)).numpy(), want, rtol=1e-5, atol=1e-6)
assert nn.Linear(4, 3, bias=False).bias is None
checked = 5
