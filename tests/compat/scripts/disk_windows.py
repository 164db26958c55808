import numpy as np
from tinygrad import Tensor, dtypes

t = Tensor.empty(4, 4, device="DISK:windows.bin", dtype=dtypes.float32)
t.assign(Tensor.ones(4, 4)).realize()
t[1].assign(Tensor([5.0, 6.0, 7.0, 8.0])).realize()
t[2, 1:3].assign(Tensor([2.0, 3.0])).realize()
wanted = np.ones((4, 4), np.float32)
wanted[1], wanted[2, 1:3] = [5, 6, 7, 8], [2, 3]
np.testing.assert_array_equal(t.numpy(), wanted)
np.testing.assert_array_equal(np.fromfile("windows.bin", np.float32).reshape(4, 4), wanted)

# A header and a body in one file.
raw = Tensor.empty(24, device="DISK:mixed.bin", dtype=dtypes.uint8)
raw[0:8].bitcast(dtypes.int64).assign(Tensor([3], dtype=dtypes.int64)).realize()
raw[8:24].bitcast(dtypes.float32).assign(Tensor([1.0, 2.0, 3.0, 4.0])).realize()
found = np.fromfile("mixed.bin", np.uint8)
assert found[:8].view(np.int64)[0] == 3
np.testing.assert_array_equal(found[8:].view(np.float32), [1, 2, 3, 4])
assert raw[0].item() == 3 and raw[8:24].bitcast(dtypes.float32).tolist() == [1.0, 2.0, 3.0, 4.0]
checked = 6
