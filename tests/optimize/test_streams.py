"""Which axis the lanes of a reduce run along."""

from __future__ import annotations

import numpy as np

from tests.optimize.test_rows import loop
from tilegrad import Context, Tensor
from tilegrad.base.dtype import dtypes
from tilegrad.base.trace import recording
from tilegrad.ir import Axis, Ops, UOp
from tilegrad.optimize.heuristic_streams import _score


def test_no_number_of_small_rows_makes_up_for_a_gather() -> None:
    """The mean of embedded rows, normalised by numbers of each row: features are neighbours in
    memory, the rows of the table are anywhere.
    """
    i, j, k = loop(32, 0), loop(64, 1), loop(32, 2, Axis.REDUCE)
    words = UOp(Ops.DEFINE_GLOBAL, dtypes.int.ptr(1024), (), 1)
    word = UOp(Ops.CAST, dtypes.index, (UOp(Ops.LOAD, dtypes.int, (words, i * 32 + k)),))
    table = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(2000 * 64), (), 2)
    value = UOp(Ops.LOAD, dtypes.float, (table, word * 64 + j))
    for slot in range(3, 9):
        rows = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1024), (), slot)
        value = value * UOp(Ops.LOAD, dtypes.float, (rows, i * 32 + k))
    fold = UOp(Ops.REDUCE, dtypes.float, (value, k), Ops.ADD)
    assert _score(fold, j) > _score(fold, k)


def test_gathered_rows_are_not_copied_first() -> None:
    """A sum of 64 embedded rows, each index checked against the table: a gate that depends on data
    is no padding, and a copy would be of elements that nobody uses twice.
    """
    table = Tensor(np.zeros((500, 64), np.float32)).realize()
    index = Tensor(np.zeros((32, 64), np.int64)).realize()
    with Context(DISABLE_COMPILER_CACHE=1), recording() as record:
        table[index].sum(1).realize()
    texts = [each.after for each in record if each.name == "render"]
    assert texts and not any("scratch" in text for text in texts)
