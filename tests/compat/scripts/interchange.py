import numpy as np
from tinygrad import Tensor, dtypes

x = np.arange(6, dtype=np.float32).reshape(2, 3)
t = Tensor(x)
assert t.tolist() == x.tolist() and t.shape == (2, 3) and t.ndim == 2 and t.numel() == 6
assert t.data()[1, 2] == 5 and t.data().format == "f"
assert Tensor(3.5).item() == 3.5 and Tensor([[2]]).item() == 2
assert len(t) == 2 and [row.tolist() for row in t] == x.tolist()
copy = t.numpy()
copy[0, 0] = 99
assert t.numpy()[0, 0] == 0
blob = Tensor(b"\x01\x02\x03")
assert blob.dtype == dtypes.uint8 and blob.tolist() == [1, 2, 3]
assert t.size() == (2, 3) and t.size(1) == 3 and t.element_size() == 4 and t.nbytes() == 24
assert bool(Tensor([1]).item()) and t.is_floating_point()
checked = 9
