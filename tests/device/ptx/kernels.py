"""The PTX of a tensor's kernels, made anew each time."""

from __future__ import annotations

from tilegrad import Tensor
from tilegrad.base.config import config
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.kernel import Kernel
from tilegrad.engine.plans.plans import normalise
from tilegrad.ir.uop import UOp
from tilegrad.schedule.schedule import make_schedule

__all__ = ["kernel_texts"]


def kernel_texts(tensor: Tensor, arch: str) -> list[str]:
    """The text of each kernel that computes `tensor`, whatever its device."""
    backend = Device.describe(f"NV:{arch}", NullRuntime())
    name = str(tensor.device)
    graph = normalise(UOp.sink(tensor.uop)).numbered()
    schedule = make_schedule(graph, {name: backend.target}, name, plain=bool(config.NOOPT))
    found = []
    for item in schedule.items:
        assert item.ast is not None
        kernel = Kernel(item.ast, backend.target).hand_coded_optimizations()
        found.append(backend.render(kernel.name, kernel.linearize()))
    return found
