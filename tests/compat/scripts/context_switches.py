import numpy as np
from tinygrad import Context, Tensor
from tinygrad.helpers import BEAM, DEBUG, JIT, NOOPT, WINO, ContextVar

MINE = ContextVar("MINE_FOR_A_TEST", 3)
assert DEBUG == 0 and not DEBUG and DEBUG < 2 and int(BEAM) == 0 and JIT.value >= 0
with Context(NOOPT=1, WINO=1, MINE_FOR_A_TEST=5):
    assert NOOPT == 1 and WINO and MINE == 5 and MINE.value > 4
    with Context(WINO=0):
        assert not WINO
    assert WINO
    np.testing.assert_array_equal((Tensor([1, 2, 3]) * 7).numpy(), [7, 14, 21])
assert NOOPT == 0 and not WINO and MINE == 3


@Context(NOOPT=1)
def decorated():
    return NOOPT.value


assert decorated() == 1 and NOOPT.value == 0
try:
    Context(NO_SUCH_SWITCH=1)
    raise AssertionError("an unknown switch")
except ValueError as error:
    text = str(error)
assert "NO_SUCH_SWITCH" in text
MINE.value = 9
assert MINE == 9
NOOPT.value = 1  # forgotten with the script
checked = 12
