import numpy as np
from tinygrad import Tensor, function


@function
def scale(x, y):
    return x * 2 + y


@function(precompile=True)
def twice(x):
    return scale(x, x)


np.testing.assert_array_equal(twice(Tensor([1.0, 2.0])).numpy(), [3, 6])
try:
    function(lambda x: x, grad_fxn=lambda grad, call: grad)
    raise AssertionError("a derivative that is ignored")
except ValueError as error:
    text = str(error)
assert "apply" in text
checked = 2
