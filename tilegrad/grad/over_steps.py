"""Sums over the steps of a loop: one product after it, where the steps leave the factors.

The gradient of a source that all steps share is a sum over the steps. For a matrix, the term of a
step is a product that sums over the step's examples. It is as large as the matrix: summed step by
step, the total is read and written in every step. The factors of the product are much smaller, and
most are stored already: the carries of the steps, the gradients of rows. So the factors are
stacked, and one product sums over steps and examples at once.

    before   gw' = gw + SUM(g[n, i] * h[n, j], n)     in every step
    after    gw = SUM(g[t, n, i] * h[t, n, j], t, n)
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.grad.lifted import Lifted
from tilegrad.grad.summed_gradients import sum_axes
from tilegrad.ir.movement import shaped
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, prod, toposort

__all__ = ["sum_over_steps", "worth_stacking"]

# A value that is added up in a step is read and written.
_TOUCHES = 2


def _factors(flow: UOp, known: Set[UOp]) -> list[UOp]:
    """The factors of `flow`, which is a sum of values or of products of two, with movement between.
    Where there is a choice, they are `known` ones.
    """
    found: dict[UOp, None] = {}

    waiting = [(flow, False, False)]
    seen: set[tuple[UOp, bool, bool]] = set()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        node, is_summed, is_factor = each
        if node in known:
            found[node] = None
        elif node.op.is_movement or node.op is Ops.CAST:
            waiting.append((node.src[0], is_summed, is_factor))
        elif node.op is Ops.REDUCE_AXIS and node.combine is Ops.ADD and not is_summed:
            waiting.append((node.src[0], True, False))
        elif node.op is Ops.ADD and not is_factor:
            waiting += [(source, is_summed, False) for source in node.src[::-1]]
        elif node.op is Ops.MUL and is_summed and not is_factor:
            waiting += [(source, True, True) for source in node.src[::-1]]
        elif not node.is_constant:
            found[node] = None
    return list(found)


def worth_stacking(flows: Mapping[int, UOp], known: Set[UOp], room: int) -> dict[int, list[UOp]]:
    """The flows whose factors take less memory traffic in every step than their sum; `known`
    factors are stored anyway. All factors together take at most `room`.
    """
    made: dict[int, list[UOp]] = {}
    stacked = set(known)
    for number in sorted(flows, key=lambda number: -_size(flows[number])):
        factors = _factors(flows[number], stacked)
        fresh = sum(_size(factor) for factor in factors if factor not in stacked)
        if fresh <= min(room, _TOUCHES * _size(flows[number])):
            made[number] = factors
            stacked |= set(factors)
            room -= fresh
    return made


def sum_over_steps(
    flow: UOp, steps: int, known: Mapping[UOp, UOp], outside: Mapping[UOp, UOp]
) -> UOp:
    """The sum of `flow` over the steps, in the dtype of sums: `known` has the values of all steps
    of its factors, and `outside` the values behind the leaves that all steps share.
    """
    lifted = Lifted(known, steps)
    for node in toposort([flow], stop=lambda node: node in known):
        if node not in lifted.done and any(source in lifted.done for source in node.src):
            made = lifted.plain(node)
            assert made is not None
            lifted.done[node] = made
    whole = lifted.whole(flow).substitute(dict(outside))
    total = sum_axes(whole.cast(sum_dtype(flow.dtype)), (0,))
    return shaped(total, flow.shape)


def _size(node: UOp) -> int:
    return int(prod(node.shape))
