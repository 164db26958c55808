import numpy as np
from tinygrad import Context, Tensor

assert not Tensor.training
x = Tensor.ones(1000)
np.testing.assert_array_equal(x.dropout(0.5).numpy(), np.ones(1000))
with Context(TRAINING=1):
    assert Tensor.training
    dropped = x.dropout(0.25).numpy()
assert not Tensor.training
np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
assert 0.6 < (dropped > 0).mean() < 0.9
with Tensor.train():
    assert Tensor.training
    with Tensor.train(False):
        assert not Tensor.training


@Tensor.train()
def mode():
    return Tensor.training


assert mode() and not Tensor.training
Tensor.training = True  # forgotten with the script
assert Tensor.training
checked = 8
