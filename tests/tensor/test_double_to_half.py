"""A double becomes a half by one rounding, though it passes through a float."""

import numpy as np

from tilegrad import Tensor, dtypes


def test_double_to_half_rounds_once() -> None:
    ties = 1 + 2.0**-11 + np.array([0.0, 2.0**-40, -(2.0**-40)])
    values = np.concatenate([ties, -ties, [1e5, 6e-8, 2.0**-25, 0.0, np.inf, np.nan]])
    found = Tensor(values).cast(dtypes.half).numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, values.astype(np.float16))
