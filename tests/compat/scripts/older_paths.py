# Where scripts of older versions import from.
import numpy as np
from tinygrad.features.jit import TinyJit as older
from tinygrad.helpers import dtypes
from tinygrad.jit import TinyJit
from tinygrad.ops import Device, GlobalCounters, Ops, UOp
from tinygrad.shape.symbolic import Variable
from tinygrad.tensor import Tensor

assert TinyJit is older and Device.DEFAULT and GlobalCounters.kernel_count >= 0
assert isinstance(Variable("n", 1, 2), UOp) and Ops.ADD
t3 = Tensor([1, 2, 3, 4, 5], dtype=dtypes.int32)
t5 = (t3 + 1) * 2
t6 = (t5 * t3).relu().log_softmax()
np.testing.assert_allclose(t6.numpy(), [-56, -48, -36, -20, 0], atol=1e-4)
checked = 3
