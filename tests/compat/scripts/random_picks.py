import numpy as np
from tinygrad import Tensor

Tensor.manual_seed(5)
assert sorted(Tensor.randperm(10).tolist()) == list(range(10))
weights = Tensor([0.0, 1.0, 3.0])
drawn = weights.multinomial(400, replacement=True).numpy()
share = np.bincount(drawn, minlength=3) / 400
assert share[0] == 0 and abs(share[1] - 0.25) < 0.08
checked = 2
