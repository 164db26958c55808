"""View and ShapeTracker: the texts that the notes print, one movement op at a time, and errors."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.values import evaluate_grid, positions
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import ShapeError
from tilegrad.ir import Ops, UOp
from tilegrad.ir.rules import simplify
from tilegrad.ir.shape_tracker import ShapeTracker
from tilegrad.ir.text import render
from tilegrad.ir.view import View, merge_dims

TRUE = UOp.const(dtypes.bool, True)


def tracker(*views: View) -> ShapeTracker:
    return ShapeTracker(views)


def texts(moved: ShapeTracker, idxs: list[UOp] | None = None) -> tuple[str, str]:
    index, valid = moved.to_indexed_uops(idxs)
    return render(index), render(valid)


# the notes' examples


@pytest.mark.row("M1.1")
def test_index_of_one_view() -> None:
    assert texts(tracker(View.create((2, 2), (2, 1)))) == ("((ridx0*2)+ridx1)", "True")


@pytest.mark.row("M1.2")
def test_index_of_reshapes() -> None:
    flat = ShapeTracker.from_shape((8,))
    idx = [UOp.variable(f"idx{axis}", 0, size - 1) for axis, size in enumerate((2, 2, 2))]
    assert texts(flat, [UOp.variable("idx0", 0, 7)]) == ("idx0", "True")
    two = [idx[0], UOp.variable("idx1", 0, 3)]
    assert texts(flat.reshape((2, 4)), two)[0] == "((idx0*4)+idx1)"
    assert texts(flat.reshape((2, 2, 2)), idx)[0] == "((idx0*4)+(idx1*2)+idx2)"


@pytest.mark.row("M1.3")
def test_permute_swaps_strides_only() -> None:
    view = View.create((3, 2)).permute((1, 0))
    assert (view.shape, view.strides, view.offset, view.mask) == ((2, 3), (1, 2), 0, None)
    assert view.permute((1, 0)) == View.create((3, 2))


@pytest.mark.row("M1.4")
def test_expand_is_stride_zero() -> None:
    row = ShapeTracker.from_shape((4,)).reshape((1, 4)).expand((4, 4))
    assert row.views == (View.create((4, 4), (0, 1)),)
    assert row.real_strides() == (0, 1)
    # every other row of a grid that is 4 wide
    grid = ShapeTracker.from_shape((4, 4)).reshape((2, 2, 4)).shrink(((0, 2), (0, 1), (0, 4)))
    rows = grid.reshape((2, 4))
    assert len(rows.views) == 1
    assert rows.real_strides() == (8, 1)


@pytest.mark.row("M1.5")
def test_linear_reshapes_stay_one_view() -> None:
    moved = ShapeTracker.from_shape((4, 2)).reshape((2, 2, 2)).reshape((2, 4))
    assert len(moved.views) == 1
    assert moved.contiguous


@pytest.mark.row("M1.6")
def test_reshape_that_needs_a_second_view() -> None:
    turned = View.create((3, 2)).permute((1, 0))
    assert turned.reshape((3, 2)) is None
    moved = ShapeTracker.from_shape((3, 2)).permute((1, 0)).reshape((3, 2))
    assert [(view.shape, view.strides) for view in moved.views] == [
        ((2, 3), (1, 2)),
        ((3, 2), (2, 1)),
    ]


@pytest.mark.row("M1.7", "M1.10")
def test_index_of_two_views() -> None:
    moved = ShapeTracker.from_shape((3, 2)).permute((1, 0)).reshape((3, 2))
    text = "(((((ridx0*2)+ridx1)%3)*2)+(((ridx0*2)+ridx1)//3))"
    assert texts(moved) == (text, "True")
    assert moved.expr == text
    assert positions(moved).tolist() == [[0, 2], [4, 1], [3, 5]]
    assert (moved.shape, moved.size, moved.contiguous) == ((3, 2), 6, False)
    # the strides are not those of one view
    assert moved.real_strides() == (None, None)


@pytest.mark.row("M1.8")
def test_division_simplifies_by_ranges() -> None:
    views = (View.create((4, 2), (1, 4)), View.create((2, 4)))
    idx = [UOp.variable("idx0", 0, 1), UOp.variable("idx1", 0, 3)]
    assert texts(tracker(*views), idx)[0] == "(((idx1%2)*4)+(idx0*2)+(idx1//2))"
    assert positions(tracker(*views)).tolist() == [[0, 4, 1, 5], [2, 6, 3, 7]]


def test_a_position_is_divided_only_where_it_carries() -> None:
    """Zeros between the elements of both axes, then a border: outside of the valid box a position
    would carry from an axis into the one before, and inside no division is needed but that by 2.
    """
    rows, columns = 5, 7
    moved = ShapeTracker.from_shape((rows, columns)).reshape((rows, 1, columns))
    moved = moved.pad(((0, 0), (0, 1), (0, 0))).reshape((2 * rows, columns))
    moved = moved.shrink(((0, 2 * rows - 1), (0, columns))).reshape((2 * rows - 1, columns, 1))
    moved = moved.pad(((0, 0), (0, 0), (0, 1))).reshape((2 * rows - 1, 2 * columns))
    moved = moved.shrink(((0, 2 * rows - 1), (0, 2 * columns - 1))).pad(((2, 2), (2, 2)))
    for text in texts(moved):
        assert {int(each) for each in re.findall(r"(?://|%)(\d+)", text)} == {2}
    expected = np.full((2 * rows + 3, 2 * columns + 3), -1)
    expected[2:-2:2, 2:-2:2] = np.arange(rows * columns).reshape(rows, columns)
    assert positions(moved).tolist() == expected.tolist()


@pytest.mark.row("M1.11")
def test_pad_makes_a_mask() -> None:
    padded = View.create((2, 2)).pad(((1, 1), (1, 1)))
    assert padded.mask == ((1, 3), (1, 3))
    assert (padded.shape, padded.strides, padded.offset) == ((4, 4), (2, 1), -3)
    assert positions(tracker(padded)).tolist() == [
        [-1, -1, -1, -1],
        [-1, 0, 1, -1],
        [-1, 2, 3, -1],
        [-1, -1, -1, -1],
    ]


@pytest.mark.row("M2.1", "M2.2")
def test_merge_dims() -> None:
    assert merge_dims((2, 2, 2), (4, 2, 1)) == ((8, 1, 8),)
    assert merge_dims((2, 2, 2), (0, 0, 1)) == ((4, 0, 0), (2, 1, 2))


@pytest.mark.row("M2.3")
def test_merge_dims_with_masks() -> None:
    assert merge_dims((2, 1, 3, 1), (3, 0, 1, 0)) == ((6, 1, 6),)
    assert merge_dims((3, 4), (0, 1)) == ((3, 0, 0), (4, 1, 4))
    assert merge_dims((3, 4), (0, 1), ((1, 2), (0, 4))) == ((12, 1, 4),)
    assert merge_dims((3, 4), (0, 1), ((1, 3), (0, 4))) == ((3, 0, 0), (4, 1, 4))
    # a masked inner axis leaves gaps, so it does not merge with a wide outer one
    assert merge_dims((3, 4), (4, 1), ((0, 3), (0, 3))) == ((3, 4, 3), (4, 1, 4))
    assert merge_dims((3, 4), (4, 1), ((1, 3), (0, 4))) == ((12, 1, 12),)


@pytest.mark.row("M2.3")
@given(st.data())
def test_merging_keeps_the_elements(data: st.DataObject) -> None:
    """Same number of elements, same positions in the same order, for random views."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    strides = tuple(data.draw(st.integers(0, 8)) for _ in shape)
    mask = tuple(
        tuple(sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))))
        for size in shape
    )
    mask = data.draw(st.sampled_from([None, mask]))
    merged: Any = merge_dims(shape, strides, mask)  # type: ignore[arg-type]
    assert math.prod(size for size, _, _ in merged) == math.prod(shape)
    assert all(size != 1 for size, _, _ in merged)
    assert all(0 <= backed <= size for size, _, backed in merged)
    view = View.create(shape, strides, 0, mask)  # type: ignore[arg-type]
    indices = np.indices(shape)
    wanted = sum(index * stride for index, stride in zip(indices, strides))
    for index, (low, high) in zip(indices, mask or ()):
        wanted = np.where((index >= low) & (index < high), wanted, -1)
    assert positions(tracker(view)).tolist() == wanted.tolist()
    assert positions(tracker(view.minify())).reshape(-1).tolist() == wanted.reshape(-1).tolist()


@pytest.mark.row("M2.4")
def test_broadcast_by_hand() -> None:
    moved = ShapeTracker.from_shape((2,)).reshape((1, 1, 2)).expand((2, 2, 2))
    assert moved.views[0].strides == (0, 0, 1)
    assert texts(moved) == ("ridx2", "True")
    with pytest.raises(ShapeError, match=r"reshape: \(2, 3\) has 6 elements, \(4, 2\) has 8"):
        View.create((2, 3)).reshape((4, 2))


def test_merged_axes_of_a_square() -> None:
    assert View.create((4, 4)).minify().shape == (16,)


@pytest.mark.row("M10.4")
def test_symbolic_size() -> None:
    k = UOp.variable("k", 1, 100)
    x, y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 2)
    view = View.create((k, 3))
    assert (view.strides, view.contiguous) == ((3, 1), True)
    assert texts(tracker(view), [x, y]) == ("((x*3)+y)", "True")


@pytest.mark.row("M10.5")
def test_symbolic_mask() -> None:
    x, y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 2)
    view = View.create((UOp.variable("k", 1, 100), 3), None, 0, ((0, 2), (0, 2)))
    assert texts(tracker(view), [x, y])[1] == "((x<2) and (y<2))"


@pytest.mark.row("M10.6")
def test_mask_that_pins_an_axis() -> None:
    x, y = UOp.variable("x", 0, 99), UOp.variable("y", 0, 2)
    view = View.create((UOp.variable("k", 1, 100), 3), (3, 1), 0, ((1, 2), (0, 2)))
    assert texts(tracker(view), [x, y]) == ("(y+3)", "(((x*-1)<0) and (x<2) and (y<2))")
    index, valid = tracker(view).to_indexed_uops([x, y])
    grid = {x: np.arange(10)[:, None], y: np.arange(3)[None]}
    assert evaluate_grid(valid, grid).nonzero()[0].tolist() == [1, 1]
    assert np.broadcast_to(evaluate_grid(index, grid), (10, 3))[1].tolist() == [3, 4, 5]


# movement, one op at a time


def test_flip_runs_backwards() -> None:
    assert positions(ShapeTracker.from_shape((2, 3)).flip((False, True))).tolist() == [
        [2, 1, 0],
        [5, 4, 3],
    ]


def test_masks_go_through_every_op() -> None:
    """Pad, then each other op, then pad again: one view, and NumPy's elements."""
    moved = ShapeTracker.from_shape((2, 3)).pad(((1, 0), (0, 1)))
    moved = moved.permute((1, 0)).flip((True, False)).shrink(((0, 4), (0, 2))).pad(((1, 1), (0, 0)))
    moved = moved.reshape((6, 2, 1)).expand((6, 2, 2))
    base = np.pad(np.arange(6).reshape(2, 3), ((1, 0), (0, 1)), constant_values=-1)
    base = np.pad(base.T[::-1][:, :2], ((1, 1), (0, 0)), constant_values=-1)
    assert positions(moved).tolist() == np.broadcast_to(base[..., None], (6, 2, 2)).tolist()
    assert len(moved.views) == 1


def test_masked_axis_reshapes_only_where_legal() -> None:
    padded = View.create((2, 3)).pad(((1, 1), (0, 0)))
    assert padded.reshape((12,)) == View.create((12,), (1,), -3, ((3, 9),))
    split = padded.reshape((2, 2, 3))
    assert split is None
    assert View.create((4,)).pad(((2, 2),)).reshape((4, 2)) == View.create(
        (4, 2), (2, 1), -2, ((1, 3), (0, 2))
    )
    # the mask of the inner axis has gaps in the flat order
    assert View.create((2, 3)).pad(((0, 0), (1, 0))).reshape((8,)) is None


def test_stacked_views_merge_again() -> None:
    there = ShapeTracker.from_shape((3, 2)).permute((1, 0)).reshape((3, 2))
    assert len(there.views) == 2
    back = there.reshape((2, 3)).permute((1, 0))
    assert back == ShapeTracker.from_shape((3, 2))


def test_shrink_of_a_stacked_view_merges() -> None:
    """Two views are needed for all rows, one for a row."""
    moved = ShapeTracker.from_shape((4, 4)).permute((1, 0)).reshape((16,))
    assert len(moved.views) == 2
    assert len(moved.shrink(((4, 8),)).views) == 1


def test_view_addition() -> None:
    turned, flat = View.create((3, 2)).permute((1, 0)), View.create((6,))
    assert turned + View.create((2, 3)) == turned
    assert turned + flat is None
    assert flat + View.create((3, 2), (1, 0)) == View.create((3, 2), (1, 0))
    reversed_rows = View.create((4, 3)).flip((True, False))
    assert reversed_rows + View.create((2, 3), (6, 1)) == View.create((2, 3), (-6, 1), 9)
    both = ShapeTracker((turned,)) + ShapeTracker((View.create((2, 3)),))
    assert both.views == (turned,)


def test_one_form() -> None:
    """Views that say the same are equal."""
    assert View.create((1, 4), (99, 1)) == View.create((1, 4), (0, 1))
    assert View.create((2, 4), (4, 1), 0, ((0, 2), (0, 4))).contiguous
    pinned = View.create((3, 4), (4, 1), 0, ((1, 2), (0, 4)))
    assert (pinned.strides, pinned.offset) == ((0, 1), 4)
    empty = View.create((3, 4), (4, 1), 7, ((1, 1), (0, 4)))
    assert (empty.strides, empty.offset, empty.mask) == ((0, 0), 0, ((0, 0), (0, 0)))
    assert View.create((0, 3)).contiguous
    assert View.create((), ()).size == 1


def test_print() -> None:
    assert repr(View.create((2, 3)).pad(((1, 0), (0, 0)))) == (
        "View(shape=(3, 3), strides=(3, 1), offset=-3, mask=((1, 3), (0, 3)))"
    )


def test_expr_names_the_condition() -> None:
    padded = ShapeTracker.from_shape((2,)).pad(((1, 1),))
    assert padded.expr == "(ridx0+-1) if (((ridx0*-1)<0) and (ridx0<3))"


# symbolic sizes


def symbolic_positions(moved: ShapeTracker, **values: int) -> list[Any]:
    """As `positions`, with the variables set."""
    variables = {
        node: values[node.arg[0]]
        for size in moved.shape
        if isinstance(size, UOp)
        for node in size.toposort()
        if node.op is Ops.DEFINE_VAR
    }
    setting = {node: UOp.const(dtypes.index, value) for node, value in variables.items()}
    shape = [simplify(UOp.const(dtypes.index, s).substitute(setting)).arg for s in moved.shape]
    loops = [UOp.range(size, axis) for axis, size in enumerate(moved.shape)]
    index, valid = moved.to_indexed_uops(loops)
    grid: dict[UOp, Any] = dict(zip(loops, np.indices(shape)))
    grid |= {node: np.array(value) for node, value in variables.items()}
    found = np.where(evaluate_grid(valid, grid), evaluate_grid(index, grid), -1)
    return np.broadcast_to(found, shape).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_symbolic_movement(n: int) -> None:
    size = UOp.variable("n", 1, 5)
    moved = ShapeTracker.from_shape((size, 4)).reshape((size, 2, 2)).permute((2, 0, 1))
    assert len(moved.views) == 1
    wanted = np.arange(n * 4).reshape(n, 2, 2).transpose(2, 0, 1)
    assert symbolic_positions(moved, n=n) == wanted.tolist()
    flipped = ShapeTracker.from_shape((size, 2)).flip((True, False))
    assert symbolic_positions(flipped, n=n) == np.arange(n * 2).reshape(n, 2)[::-1].tolist()
    padded = ShapeTracker.from_shape((size,)).pad(((1, 2),))
    wanted = np.pad(np.arange(n), (1, 2), constant_values=-1)
    assert symbolic_positions(padded, n=n) == wanted.tolist()
    back = padded.shrink(((1, size + 1),))
    assert back == ShapeTracker.from_shape((size,))
    stacked = ShapeTracker.from_shape((size, 2)).permute((1, 0)).reshape((size * 2,))
    assert symbolic_positions(stacked, n=n) == np.arange(n * 2).reshape(n, 2).T.ravel().tolist()


@pytest.mark.parametrize("n", [1, 3])
def test_symbolic_strides(n: int) -> None:
    """Rows as long as the variable is at most, of which n elements are used."""
    size = UOp.variable("n", 1, 5)
    rows = tracker(View.create((3, size), (5, 1)))
    wanted = np.arange(15).reshape(3, 5)[:, :n]
    assert symbolic_positions(rows, n=n) == wanted.tolist()
    assert symbolic_positions(rows.permute((1, 0)), n=n) == wanted.T.tolist()
    split = rows.reshape((3, 1, size)).expand((3, 2, size))
    assert len(split.views) == 1
    assert symbolic_positions(split, n=n) == np.stack([wanted, wanted], 1).tolist()


def test_symbolic_split_keeps_one_view() -> None:
    n = UOp.variable("n", 1, 5)
    turned = View.create((n * 4, 3)).permute((1, 0))
    split = turned.reshape((3, n, 4))
    assert split is not None
    assert [render(UOp.const(dtypes.index, stride)) for stride in split.strides] == ["1", "12", "3"]
    assert split.reshape((3, n * 4)) == turned
    assert View.create((n, n, 2)).permute((2, 0, 1)).reshape((2, n * n)) is not None


def test_symbolic_reshape_compares_sizes() -> None:
    n = UOp.variable("n", 1, 5)
    with pytest.raises(ShapeError, match=r"reshape: \(n, 4\) has \(n\*4\) elements, \(n, 3\) has"):
        ShapeTracker.from_shape((n, 4)).reshape((n, 3))


# errors name both sizes


@pytest.mark.parametrize(
    ("move", "message"),
    [
        (
            lambda v: v.permute((0, 0)),
            r"permute: \(0, 0\) does not name each axis of \(2, 3\) once",
        ),
        (lambda v: v.expand((2, 4)), r"expand: \(2, 3\) does not fit \(2, 4\)"),
        (lambda v: v.expand((2, 3, 1)), r"expand: 3 values for the 2 axes of \(2, 3\)"),
        (lambda v: v.pad(((-1, 0), (0, 0))), r"pad: \(\(-1, 0\), \(0, 0\)\) is negative"),
        (
            lambda v: v.shrink(((0, 2), (1, 4))),
            r"shrink: 1 to 4 does not lie in axis 1 of \(2, 3\)",
        ),
        (
            lambda v: v.shrink(((2, 1), (0, 3))),
            r"shrink: 2 to 1 does not lie in axis 0 of \(2, 3\)",
        ),
        (lambda v: v.flip((True,)), r"flip: 1 values for the 2 axes of \(2, 3\)"),
        (lambda v: v.reshape((-2, -3)), r"reshape: \(2, 3\) has 6 elements, \(-2, -3\) has 6"),
        (lambda v: View.create((2,), (1, 1)), r"view: 1 sizes and 2 strides"),
        (lambda v: View.create((2,), None, 0, ()), r"view: 1 sizes and 0 mask"),
        (lambda v: View.create((-2,)), r"view: a size of \(-2,\) is negative"),
        (lambda v: tracker(v).to_indexed_uops([TRUE]), r"index: 1 values for the 2 axes"),
    ],
)
def test_errors(move: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        move(View.create((2, 3)))
