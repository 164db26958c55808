import numpy as np
from tinygrad import Device, Tensor

assert Device[Device.DEFAULT].count() >= 1
assert Device["CPU"].count() >= 1

# A device that interprets, lane by lane.
a = Tensor([[1.0, 2.0], [3.0, 4.0]], device="PYTHON")
assert a.device == "PYTHON"
np.testing.assert_array_equal((a @ a + 1).numpy(), np.array([[8, 11], [16, 23]], np.float32))
np.testing.assert_array_equal(a.to("CPU").sum(0).numpy(), np.array([4, 6], np.float32))
assert a.to("CPU").device == "CPU"

# Devices that compile and run nothing.
for name in ("NULL", "NULL:1", "NULL:CUDA"):
    b = (Tensor.empty(8, 8, device=name) @ Tensor.empty(8, 8, device=name)).relu().realize()
    assert b.shape == (8, 8) and b.device == name
checked = 6
