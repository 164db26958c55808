import numpy as np
from tinygrad import Tensor
from tinygrad.nn.optim import SGD, OptimizerGroup

a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0], requires_grad=True)
opt = OptimizerGroup(SGD([a], lr=0.1), SGD([b], lr=1.0))
with Tensor.train():
    for _ in range(2):
        opt.zero_grad()
        loss = (a.sum() * 2 + b.sum()).backward()
        loss.realize(*opt.schedule_step())
np.testing.assert_allclose(a.numpy(), [0.6, 1.6], rtol=1e-6)
np.testing.assert_allclose(b.numpy(), [1.0], rtol=1e-6)
assert len(opt.params) == 2 and opt[1].lr.item() == 1
try:
    opt.step()
    raise AssertionError("a step outside training")
except Exception as error:
    text = str(error)
assert "training" in text
checked = 4
