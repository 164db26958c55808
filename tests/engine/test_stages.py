"""From a kernel to its program."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.plans import kernels, plan
from tilegrad import Device, Tensor
from tilegrad.engine.program import stages


@pytest.mark.parametrize("most", [400, 100, 1])
def test_a_program_too_large_to_compile_writes_out_less(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few registers first, then no Opts at all; the values stay."""
    a = np.random.default_rng(0).standard_normal((50, 37), np.float32)
    target = Device["CPU"].target

    def product() -> Tensor:
        # By `most`, so that each kernel is compiled.
        return (Tensor(a).realize() @ Tensor(a).realize().T) * most

    (item,) = kernels(plan(product()))
    assert item.ast is not None
    whole = len(stages.to_program(item.ast, target)[1])
    plain = len(stages.to_program(item.ast, target, ())[1])
    assert plain < whole
    monkeypatch.setattr(stages, "_MOST_INSTRUCTIONS", most)
    assert plain <= len(stages.to_program(item.ast, target)[1]) <= max(most, plain)
    np.testing.assert_allclose(product().numpy(), most * (a @ a.T), rtol=1e-4, atol=1e-3)
