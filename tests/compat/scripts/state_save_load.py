import numpy as np
from tinygrad import Tensor, nn
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load, safe_save


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(4, 5), nn.Linear(5, 2)

    def __call__(self, x):
        return self.l2(self.l1(x).relu())


net, other = Net(), Net()
state_dict = get_state_dict(net)
safe_save(state_dict, "model.safetensors")
loaded = safe_load("model.safetensors")
assert sorted(loaded) == ["l1.bias", "l1.weight", "l2.bias", "l2.weight"]
load_state_dict(other, loaded, verbose=False)
x = Tensor.rand(3, 4)
np.testing.assert_array_equal(other(x).numpy(), net(x).numpy())
try:
    load_state_dict(other, {"l1.weight": loaded["l1.weight"]})
    raise AssertionError("names were missing")
except Exception as error:
    text = str(error)
assert "l2.bias" in text
load_state_dict(other, {"l1.weight": Tensor.zeros(5, 4)}, strict=False)
assert not other.l1.weight.numpy().any()
checked = 4
