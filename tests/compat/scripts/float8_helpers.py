import math

import numpy as np
from tinygrad import Tensor, dtypes
from tinygrad.dtype import float_to_bf16, float_to_fp8, float_to_fp16, fp8_to_float, truncate

SPLITS = {
    dtypes.fp8e4m3: (4, 3), dtypes.fp8e5m2: (5, 2), dtypes.fp8e4m3fnuz: (4, 3),
    dtypes.fp8e5m2fnuz: (5, 2), dtypes.half: (5, 10), dtypes.bfloat16: (8, 7),
    dtypes.float32: (8, 23), dtypes.float64: (11, 52),
}  # fmt: skip
for dtype, split in SPLITS.items():
    assert dtypes.finfo(dtype) == split
for dtype in dtypes.fp8s:
    bits = [b for b in range(256) if not math.isnan(fp8_to_float(b, dtype))]
    # Each number that there is has its own bits again.
    values = [fp8_to_float(b, dtype) for b in bits]
    assert [float_to_fp8(v, dtype) for v in values] == bits
    made = Tensor(values, dtype=dtypes.float32).cast(dtype).cast(dtypes.float32).numpy()
    np.testing.assert_array_equal(made, np.array(values, np.float32))
assert [float_to_fp8(v, dtypes.fp8e4m3) for v in (0.1, 1.5, 500.0, math.inf)] == [29, 60, 126, 127]
assert [float_to_fp8(v, dtypes.fp8e5m2) for v in (0.1, 1e9, -math.inf)] == [46, 123, 252]
assert [float_to_fp8(v, dtypes.fp8e4m3fnuz) for v in (1.5, 500.0, math.inf)] == [68, 127, 128]
assert float_to_fp16(1.00001) == 1.0 and float_to_fp16(65520.0) == math.inf
assert float_to_bf16(1.01) == 1.0078125
assert truncate[dtypes.int8](200) == -56 and truncate[dtypes.uint8](300) == 44
checked = 20
