from pathlib import Path

import numpy as np
from tinygrad import Device, Tensor, dtypes

x = np.arange(8, dtype=np.float32)
Path("w.bin").write_bytes(x.tobytes())
t = Tensor(Path("w.bin"))
assert t.shape == (32,) and t.dtype == dtypes.uint8 and t.device.startswith("DISK")
part = t[8:24].bitcast(dtypes.float32).to(Device.DEFAULT)
np.testing.assert_array_equal((part * 2).numpy(), x[2:6] * 2)
checked = 2
