"""Unrolled copies of indices: the right ones, in their simplest form."""

from __future__ import annotations

import itertools

import pytest

from tilegrad.base.dtype import dtypes
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.ir.args import KernelInfo
from tilegrad.ir.rules import simplify
from tilegrad.lower.expand import unroll

K = UOp.range(6, 0)
U, V = UOp.range(4, 1, Axis.UPCAST), UOp.range(3, 2, Axis.UPCAST)
INDICES = {
    "linear": K * 24 + U * 6 + V * 2 + 1,
    "negative": K * 24 + U * -3 + V * -1 + 11,
    "cancels": (K + U) * 3 - U * 3 + V,
    "one axis": K * 4 + U,
    "quotient": K * 24 + (U * 3 + V) // 2,
    "remainder": (K + U) % 5 * 3 + V,
    "of axes alone": U * 3 + V,
}


@pytest.mark.parametrize("name", INDICES)
def test_each_copy_is_the_index_at_its_point(name: str) -> None:
    index = INDICES[name]
    a, out = (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(500), (), slot) for slot in (1, 0))
    store = out.store(K * 12 + U * 3 + V, a.load(index))
    unrolled = unroll(UOp.sink(store, arg=KernelInfo("E", (0, 1, 2))))
    found = {node.index for node in unrolled.toposort() if node.op is Ops.LOAD}
    wanted = set()
    for u, v in itertools.product(range(4), range(3)):
        point = {U: UOp.const(dtypes.index, u), V: UOp.const(dtypes.index, v)}
        wanted.add(simplify(index.substitute(point)))
    assert {simplify(each) for each in found} == wanted
    if name not in ("quotient", "remainder"):
        assert found == wanted
    stores = [node for node in unrolled.toposort() if node.op is Ops.STORE]
    assert len(stores) == 12 and len({node.index for node in stores}) == 12


def test_an_index_that_was_stored_before_holds_that_store_once() -> None:
    once = UOp.range(1, 3)
    a, out, chosen = (UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(500), (), slot) for slot in (1, 0, 2))
    chosen = chosen.replace(dtype=dtypes.int.ptr(6))
    write = chosen.store(K * 1, (once + K).cast(dtypes.int)).end(once)
    first = chosen.after(write).load(K).cast(dtypes.index)
    store = out.store(K * 4 + U, a.load(first * 4 + U))
    unrolled = unroll(UOp.sink(store, arg=KernelInfo("E", (0, 1, 3))))
    stores = [node for node in unrolled.toposort() if node.op is Ops.STORE]
    assert len(stores) == 5 and write.src[0] in stores
