"""Kernels that are made and thrown away, so that the first one in earnest finds what the compiler
builds at first use: rules for each op, LLVM's machine, the digest of the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilegrad.base.trace import counters
from tilegrad.device import cpu
from tilegrad.device.null import NullRuntime
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import backend_key
from tilegrad.engine.program.stages import to_program
from tilegrad.ir.text import parse
from tilegrad.schedule.items import Item
from tilegrad.schedule.schedule import make_schedule

__all__ = ["steps"]

# A small classifier: softmax(relu(x @ w)), summed where a mask says so.
_GRAPH = """
%0 = BUFFER : float arg=BufferArg(slot=0, device='CPU', size=384)
%1 = RESHAPE(%0) : float arg=(16, 1, 24)
%2 = EXPAND(%1) : float arg=(16, 40, 24)
%3 = BUFFER : float arg=BufferArg(slot=1, device='CPU', size=960)
%4 = RESHAPE(%3) : float arg=(24, 40)
%5 = PERMUTE(%4) : float arg=(1, 0)
%6 = RESHAPE(%5) : float arg=(1, 40, 24)
%7 = EXPAND(%6) : float arg=(16, 40, 24)
%8 = MUL(%2, %7) : float
%9 = REDUCE_AXIS(%8) : float arg=(Ops.ADD, (2,))
%10 = RESHAPE(%9) : float arg=(16, 40)
%11 = CONST : float arg=0.0
%12 = MAX(%10, %11) : float
%13 = REDUCE_AXIS(%12) : float arg=(Ops.MAX, (1,), Ties.FIRST)
%14 = EXPAND(%13) : float arg=(16, 40)
%15 = CONST : float arg=-1.0
%16 = MUL(%14, %15) : float
%17 = ADD(%12, %16) : float
%18 = EXP(%17) : float
%19 = REDUCE_AXIS(%18) : float arg=(Ops.ADD, (1,))
%20 = EXPAND(%19) : float arg=(16, 40)
%21 = FDIV(%18, %20) : float
%22 = BUFFER : int arg=BufferArg(slot=2, device='CPU', size=16)
%23 = RESHAPE(%22) : int arg=(16, 1)
%24 = EXPAND(%23) : int arg=(16, 40)
%25 = CONST : int arg=1
%26 = CMPEQ(%24, %25) : bool
%27 = WHERE(%26, %21, %11) : float
%28 = REDUCE_AXIS(%27) : float arg=(Ops.ADD, (0, 1))
%29 = RESHAPE(%28) : float arg=()
"""


def steps() -> Iterator[Callable[[], object]]:
    """Steps that a process makes once, and the kernels of a small graph, one after the other."""
    backend = Device.describe("CPU", NullRuntime())
    yield cpu.prepare
    yield lambda: backend_key(backend)
    items: list[Item] = []

    def scheduled() -> None:
        targets = {"CPU": backend.target}
        items.extend(make_schedule(parse(_GRAPH), targets, "CPU", plain=False).items)
        # It serves no graph of the script.
        counters.schedules -= 1

    yield scheduled
    for item in items:

        def compiled(item: Item = item) -> None:
            assert item.ast is not None
            shaped, program = to_program(item.ast, backend.target, None)
            backend.compile(backend.render(shaped.function, program))

        yield compiled
