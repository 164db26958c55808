"""Sums whose terms a condition chooses, as the gradients of padded convolutions: products of
matrices on targets with blocks.
"""

from __future__ import annotations

import pytest

from tests.optimize.kernels import CUDA, METAL, good_opts, program, shaped
from tests.schedule.plans import kernel_of
from tilegrad import Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.device.nv import nv_target
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.queries import reductions_of
from tilegrad.ir.uop import UOp
from tilegrad.optimize.opts.gated_products import without_choices
from tilegrad.optimize.opts.opt import OptOps
from tilegrad.target import Target

NV = nv_target("sm_80")


def gradient(dtype: str, target: Target) -> UOp:
    """The kernel for the gradient of a padded convolution by its image."""
    image = Tensor.empty(2, 64, 16, 16, dtype=dtype).requires_grad_()
    weight = Tensor.empty(64, 64, 3, 3, dtype=dtype)
    image.conv2d(weight, padding=1).backward(Tensor.empty(2, 64, 16, 16, dtype=dtype))
    assert image.grad is not None
    return kernel_of(image.grad, target)


@pytest.mark.row("S1.5", "M9.1")
@pytest.mark.parametrize("target", [NV, CUDA, METAL], ids=lambda target: target.name)
def test_a_convolutions_gradient_runs_on_matrix_units(target: Target) -> None:
    made = program(gradient("half", target), None, target)
    assert any(node.op is Ops.WMMA for node in made)


def test_in_float32_it_has_tiles_in_shared_memory() -> None:
    opts = good_opts(gradient("float", NV), NV)
    assert sum(opt.op is OptOps.STAGE for opt in opts) == 2


def term(factor: str) -> UOp:
    """A sum of products chosen by `k < 5`; `factor` makes the left factor 0 elsewhere."""
    k = UOp.range(8, 0, Axis.REDUCE)
    zero, inside = UOp.const(dtypes.float, 0), k < 5
    a, b = (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(8), (), slot) for slot in (1, 2))
    left = {
        "same": a.load(k, zero, inside),
        "more": a.load(k, zero, inside & (k < 4)),
        "less": a.load(k),
        "other": a.load(k, UOp.const(dtypes.float, 1), inside),
        "another": a.load(k, zero, k < 6),
    }[factor]
    chosen = inside.where(left * b.load(k), zero)
    return UOp(Ops.REDUCE, dtypes.float, (chosen, k), Ops.ADD)


@pytest.mark.parametrize(
    ("factor", "is_plain"),
    [("same", True), ("more", True), ("less", False), ("other", False), ("another", False)],
)
def test_only_a_factor_that_is_0_elsewhere_makes_the_choice_idle(
    factor: str, is_plain: bool
) -> None:
    found = without_choices(UOp.sink(term(factor)))
    (reduction,) = reductions_of(found)
    assert (reduction.src[0].op is Ops.MUL) == is_plain


def test_the_shape_stays_legal() -> None:
    shaped(gradient("half", NV), None, NV)
