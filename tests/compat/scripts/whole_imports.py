# Modules under their whole names, and what is not there.
import tinygrad
import tinygrad.nn as nn
from tinygrad import dtypes as from_top
from tinygrad import nn as same_nn
from tinygrad.dtype import dtypes
from tinygrad.nn import optim, state
from tinygrad.nn.optim import Adam
from tinygrad.tensor import Tensor

assert dtypes is from_top and nn is same_nn is tinygrad.nn and Tensor is tinygrad.Tensor
assert nn.optim is optim and nn.state is state and optim.Adam is Adam
assert tinygrad.helpers.prod([2, 3]) == 6 and "Tensor" in dir(tinygrad)
for line in (
    "from tinygrad import nonsense",
    "from tinygrad.nn.datasets import imagenet",
    "import tinygrad.codegen.kernel",
):
    try:
        exec(line)
        raise AssertionError(line)
    except ImportError as error:
        text = str(error)
    assert line.split()[-1].removesuffix(".kernel") in text and "tilegrad has no" in text
try:
    tinygrad.nn.state.nonsense  # noqa: B018
    raise AssertionError("an attribute")
except AttributeError as error:
    text = str(error)
assert "tinygrad.nn.state.nonsense" in text
assert not hasattr(tinygrad, "nonsense") and getattr(tinygrad, "nonsense", 5) == 5
checked = 8
