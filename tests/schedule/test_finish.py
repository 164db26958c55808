"""A kernel's last passes: a list in which each has its position for a reason."""

from __future__ import annotations

from tests.schedule.plans import plan
from tilegrad import Tensor
from tilegrad.base.trace import PassRecord, recording
from tilegrad.schedule.finish import PASSES

NAMES = [name for name, _ in PASSES]


def recorded(*tensors: Tensor, plain: bool = False) -> list[PassRecord]:
    """The passes of the list, of each kernel one after the other."""
    with recording() as record:
        plan(*tensors, plain=plain)
    found = [each for each in record if each.name in NAMES]
    # The rewrites within a pass stand under its name, before it.
    return [each for each, after in zip(found, [*found[1:], None]) if not is_same(each, after)]


def is_same(one: PassRecord, other: PassRecord | None) -> bool:
    return other is not None and one.name == other.name


def changed(record: list[PassRecord]) -> set[str]:
    return {each.name for each in record if each.before is not each.after}


def test_every_kernel_passes_the_list_in_its_order() -> None:
    x = Tensor.empty(64, 64)
    names = [each.name for each in recorded(x.softmax(1), (x @ x).relu())]
    count = len(names) // len(NAMES)
    assert count > 1
    assert names == NAMES * count


def test_without_optimization_few_run() -> None:
    x, w = Tensor.empty(1, 2, 9, 9), Tensor.empty(2, 2, 3, 3)
    gradient = x.conv2d(w, stride=2).gradient(x, gradient=Tensor.ones(1, 2, 4, 4))[0]
    assert "schedule.strided" in changed(recorded(gradient))
    names = {each.name for each in recorded(gradient, plain=True)}
    assert names == {"schedule.collapse", "schedule.gates", "schedule.repeats"}


def test_passes_change_the_kernels_that_they_are_for() -> None:
    x = Tensor.empty(8, 64)
    assert "schedule.collapse" in changed(recorded(Tensor.arange(64).contiguous()))
    assert "schedule.share_loops" in changed(recorded(x.sum(1) + x.square().sum(1)))
    assert "schedule.divided" in changed(recorded(x.repeat(1, 2).contiguous()))
    first, second = x.chunk(2, -1)
    gates = (first.exp() * second.sigmoid()).sum()
    assert "schedule.concatenation" in changed(recorded(gates.gradient(x)[0]))
