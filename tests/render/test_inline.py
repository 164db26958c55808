"""Which values are written where they are used: never past an assignment that would change them."""

from __future__ import annotations

from tests.render.programs import FLOAT, accumulator, assign, body, const, data, end, load, loop
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.render.cstyle import CUDARenderer
from tilegrad.render.inline import inlined, real

CUDA = CUDARenderer()


def test_a_read_of_an_accumulator_stays_before_its_assignment() -> None:
    out, total, counter = data(0), accumulator(const(0.0, FLOAT)), loop(4)
    before = total + 1.0
    step = assign(total, total * 2.0)
    program = [
        out,
        total,
        counter,
        before,
        step.src[1],
        step,
        out.store(counter, before),
        end(counter),
    ]
    assert body(CUDA.render(program)) == [
        "float acc0 = 0.0f;",
        "for (int ridx0 = 0; ridx0 < 4; ridx0++) {",
        "float alu0 = (acc0+1.0f);",
        "acc0 = (acc0*2.0f);",
        "*(data0+ridx0) = alu0;",
        "}",
    ]


def test_an_assignment_to_another_accumulator_does_not_matter() -> None:
    rows, counter = data(1), loop(4)
    totals = [accumulator(const(0.0, FLOAT), number) for number in range(2)]
    x = load(rows, counter)
    sums = [total + x for total in totals]
    steps = [assign(total, value) for total, value in zip(totals, sums, strict=True)]
    lines = body(CUDA.render([rows, *totals, counter, x, *sums, *steps, end(counter)]))
    assert lines[-3:] == ["acc0 = (acc0+val0);", "acc1 = (acc1+val0);", "}"]


def test_a_read_of_an_accumulator_does_not_enter_a_loop() -> None:
    out, total, counter = data(0), accumulator(const(1.0, FLOAT)), loop(4)
    start = total * 3.0
    step = assign(total, total + start)
    lines = body(CUDA.render([out, total, start, counter, step.src[1], step, end(counter)]))
    assert lines[1] == "float alu0 = (acc0*3.0f);"
    assert "acc0 = (acc0+alu0);" in lines


def test_lanes_of_an_accumulator_are_read_in_time() -> None:
    out, total = data(0), accumulator(const(0.0, FLOAT).broadcast(2))
    lane = total.gep(1)
    step = assign(total, const(5.0, FLOAT).broadcast(2))
    lines = body(CUDA.render([out, total, lane, step, out.store(const(0), lane)]))
    assert lines[1] == "float cast0 = acc0.y;"
    assert lines[-1] == "*(data0+0) = cast0;"


def test_after_the_loop_the_accumulator_itself_is_read() -> None:
    out, total, counter = data(0), accumulator(const(0.0, FLOAT)), loop(4)
    step = assign(total, total + 1.0)
    result = total.after(step, end(counter))
    assert real(result) is total
    value = result * 0.25
    program = [out, total, counter, step.src[1], step, end(counter), result, value]
    program.append(out.store(const(0), value))
    assert value in inlined(list(toposort(program)))
    assert body(CUDA.render(program))[-1] == "*(data0+0) = (acc0*0.25f);"


def test_after_reads_where_it_stands() -> None:
    """A running maximum keeps its old value beside the new one."""
    out, total, counter = data(0), accumulator(const(1.0, FLOAT)), loop(4)
    old = UOp(Ops.AFTER, FLOAT, (total, counter))
    step = assign(total, old * 2.0)
    new = total.after(step)
    value = new * old
    program = [out, total, counter, old, step.src[1], step, new, value]
    assert body(CUDA.render([*program, out.store(counter, value), end(counter)])) == [
        "float acc0 = 1.0f;",
        "for (int ridx0 = 0; ridx0 < 4; ridx0++) {",
        "float alu0 = acc0;",
        "acc0 = (alu0*2.0f);",
        "*(data0+ridx0) = (acc0*alu0);",
        "}",
    ]


def test_a_finished_accumulator_is_read_in_a_later_loop() -> None:
    out, total, first, second = data(0), accumulator(const(0.0, FLOAT)), loop(4), loop(4, 1)
    step = assign(total, total + 1.0)
    result = total.after(step, end(first))
    program = [out, total, first, step.src[1], step, end(first), result, second]
    lines = body(CUDA.render([*program, out.store(second, result * 2.0), end(second)]))
    assert "*(data0+ridx1) = (acc0*2.0f);" in lines


def test_index_arithmetic_may_enter_a_loop() -> None:
    """The compiler moves it out again, and the text is the one that the notes print."""
    rows, counter = data(1), loop(4)
    offset = counter.const(counter.dtype, 3) * 5
    x = load(rows, offset + counter)
    assert "*(data1+(3*5)+ridx0)" in CUDA.render([rows, offset, counter, x, end(counter)])


def test_expand_leaves_only_lanes_in_place() -> None:
    x = load(data(1), const(0), lanes=2)
    value = x.gep(0) + x.gep(1)
    found = inlined(list(toposort([value])), expand=True)
    assert {node.op for node in found} == {Ops.GEP}
