"""Updates that run over the same elements become one kernel with several outputs.

An optimizer assigns a few buffers per parameter, each from the others at the same position. Where
the loops agree and every shared buffer is touched at one position only, one pass over memory does
them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.ir.args import KernelInfo
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp

__all__ = ["Update", "is_update", "join_updates"]

_MOST_OUTPUTS = 8
_MOST_BUFFERS = 24


@dataclass
class Update:
    """An elementwise kernel: its graph, and the buffers behind its slots, `outputs` of them
    written.
    """

    ast: UOp
    buffers: list[int]
    outputs: int = 1

    @property
    def written(self) -> list[int]:
        return self.buffers[: self.outputs]


def is_update(ast: UOp) -> bool:
    """Whether a kernel stores whole values, element by element, without folds or gates."""
    if len({store.src[0] for store in ast.src}) < len(ast.src):
        return False
    plain = all(
        store.op is Ops.STORE and len(store.src) == 3 and store.arg is None for store in ast.src
    )
    return plain and all(
        node.op not in (Ops.REDUCE, Ops.PREFIX, Ops.END, Ops.DEFINE_LOCAL)
        for node in ast.toposort()
    )


def join_updates(first: Update, second: Update) -> Update | None:
    """Both updates in one kernel, the first before the second in each iteration; None where that is
    not the same.

    before   STORE(m, i, f(m[i]))  and  STORE(p, i, g(p[i], m[i]))
    after    STORE(m, i, x), STORE(p, i, g(p[i], x))                x = f(m[i])
    """
    buffers = list(
        dict.fromkeys([*first.written, *second.written, *first.buffers, *second.buffers])
    )
    outputs = len(dict.fromkeys([*first.written, *second.written]))
    if (
        outputs < first.outputs + second.outputs
        or outputs > _MOST_OUTPUTS
        or len(buffers) > _MOST_BUFFERS
    ):
        return None
    ranges = _ranges(first.ast)
    others = _ranges(second.ast)
    if [part.src for part in ranges] != [part.src for part in others]:
        return None
    a = _by_buffer(first, buffers)
    b = _by_buffer(second, buffers).substitute(dict(zip(others, ranges, strict=True)))
    written = {store.src[0]: (store.src[1], store.src[2]) for store in a.src}
    later = {store.src[0]: store.src[1] for store in b.src}
    if any(load.src[1] is not later[load.src[0]] for load in _loads(a) if load.src[0] in later):
        return None
    known: dict[UOp, UOp] = {}
    for load in _loads(b):
        if load.src[0] in written:
            index, value = written[load.src[0]]
            if load.src[1] is not index or len(load.src) != 2 or load.dtype is not value.dtype:
                return None
            known[load] = value
    b = b.substitute(known)
    info = first.ast.arg
    return Update(UOp.sink(*a.src, *b.src, arg=KernelInfo(info.name, info.order)), buffers, outputs)


def _ranges(ast: UOp) -> list[UOp]:
    place = {number: rank for rank, number in enumerate(ast.arg.order)}
    found = [node for node in ast.toposort() if node.op is Ops.RANGE]
    return sorted(found, key=lambda node: place[node.arg[0]])


def _loads(ast: UOp) -> list[UOp]:
    return [node for node in ast.toposort() if node.op is Ops.LOAD]


def _by_buffer(update: Update, buffers: list[int]) -> UOp:
    """The graph with its parameters at their slots in `buffers`."""
    mapping: dict[UOp, UOp] = {}
    for node in update.ast.toposort():
        if node.op is Ops.DEFINE_GLOBAL:
            mapping[node] = node.replace(arg=buffers.index(update.buffers[node.arg]))
    return update.ast.substitute(mapping)
