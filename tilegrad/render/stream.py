"""Stores that go around the caches, for results that no cache will hold until they are read, and
loads ahead of their time.

Such a store writes whole lines to memory without first reading them, which is a third of the
traffic of a copy. Processors ask for two things: addresses that are a multiple of the vector's
size, and a fence before another thread may look. The index shows the first for the element's
position in its buffer; that the buffer itself begins at such an address is tested at each launch,
by an entry that chooses between two renderings of the kernel.

A kernel that passes over a row several times waits for memory in the first pass, and computes in
the others. So the last pass asks for the next row, element by element, while it works on this one:
what it stores takes time that reading may share. A copy of a part of a large operand reads short
runs that are far apart, which no processor foresees: each iteration asks for what later ones will
read. So does a sum over such runs (a channel of all images) for the next run.

A reduction over one long run that no cache holds asks for what follows, to be used once: such lines
do not push others out of the caches, to be fetched once more. A kernel that
also stores does not: there each request takes the place of a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tilegrad.base.dtype import AddressSpace, Pointer
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.proof import linear
from tilegrad.ir.queries import points_to
from tilegrad.ir.uop import UOp

__all__ = ["ahead", "entry", "read_once", "streamed"]

# A row is asked for early if it is at most this share of the last cache: nearer ones are smaller.
_ROW = 1 / 64
# A buffer is large for a copy from this share of the last cache on.
_FAR = 1 / 16
# Distance in bytes between what a copy asks for and what it reads: more than memory takes to
# answer, less than caches hold.
_LEAD, _MOST_LEAD = 4 << 10, 64 << 10
# A run is asked for as a whole if it is a few lines, and not so long that a processor foresees it.
_SHORT_RUN, _LONG_RUN = 256, 4 << 10
# How far ahead a reduction over a long run asks, and from how many bytes on a run is long.
_RUN_LEAD, _ENDLESS_RUN = 2 << 10, 64 << 10
# Iterations further apart than this read lines that crowd each other out of a cache, if many are
# asked for at once.
_RUN = 1 << 10


def streamed(program: Sequence[UOp], cache_bytes: int, vector_bytes: int) -> frozenset[UOp]:
    """The stores of whole vectors to buffers larger than the last cache, if the kernel itself
    reads nothing.
    """
    if not cache_bytes:
        return frozenset()
    read = {node.src[0] for node in program if node.op is Ops.LOAD}
    found = []
    for node in program:
        if node.op is not Ops.STORE or node.arg is not None or node.is_gated:
            continue
        pointer, index, value = node.src
        memory = pointer.dtype
        if (
            isinstance(memory, Pointer)
            and memory.space is AddressSpace.GLOBAL
            and memory.size * memory.base.itemsize > cache_bytes
            and value.dtype.itemsize * value.dtype.lanes == vector_bytes
            and index.dtype.lanes == 1
            and index.divisor % value.dtype.lanes == 0
            and pointer not in read
        ):
            found.append(node)
    return frozenset(found)


def ahead(program: Sequence[UOp], cache_bytes: int) -> dict[UOp, int]:
    """The loads of vectors that a loop makes once more, in an iteration of a loop around it, from a
    buffer larger than the last cache, where that is done for the last time; and how many elements
    further the next iteration reads. And those of copies to scratch, and of runs with jumps
    between.
    """
    found = _ahead_of_runs(program, cache_bytes)
    loops: list[UOp] = []
    # By the memory read in an iteration: the loop that did so first, and the last load with its
    # step.
    readers: dict[tuple[UOp, UOp, UOp], UOp] = {}
    last: dict[tuple[UOp, UOp, UOp], tuple[UOp, int]] = {}
    for node in program if cache_bytes else ():
        if node.op is Ops.RANGE:
            loops.append(node)
        elif node.op is Ops.END:
            loops.pop()
        elif _is_large(node, cache_bytes) and len(loops) > 1:
            around, loop = loops[-2:]
            pointer, index = node.src
            # Two loops of one length are alike.
            alike = loop.replace(arg=(-1, around.axis))
            key = around, pointer, index.substitute({loop: alike})
            first = readers.setdefault(key, loop)
            step = _coefficient(index, around)
            size = node.dtype.itemsize * abs(step or 0)
            if first is not loop and step and size <= cache_bytes * _ROW:
                last[key] = node, step
    return found | dict(last.values())


def _bodies(program: Sequence[UOp]) -> Iterator[tuple[list[UOp], list[UOp]]]:
    """Each loop as it ends, as the loops around it and itself, and the nodes in it behind the loops
    inside.
    """
    loops: list[UOp] = []
    body: list[UOp] = []
    for node in program:
        if node.op is Ops.RANGE:
            loops.append(node)
            body = []
        elif node.op is Ops.END:
            yield loops, body
            loops.pop()
            body = []
        else:
            body.append(node)


def read_once(program: Sequence[UOp], cache_bytes: int) -> dict[UOp, int]:
    """Vector loads along a long run that is read once, in a buffer larger than the last cache and
    in loops without stores; and how many elements ahead they prefetch.
    """
    found: dict[UOp, int] = {}
    specials = {node for node in program if node.op is Ops.SPECIAL}
    for loops, body in _bodies(program) if cache_bytes else ():
        if not any(each.op is Ops.STORE for each in body):
            loads = [each for each in body if _is_large(each, cache_bytes)]
            found |= {load: _RUN_LEAD // load.dtype.itemsize for load in loads
                      if _is_endless(load, loads, loops, specials)}  # fmt: skip
    readers = Counter(node.src[0] for node in program if node.op is Ops.LOAD)
    readers.subtract(node.src[0] for node in found)
    return {load: lead for load, lead in found.items() if not readers[load.src[0]]}


def _is_endless(load: UOp, loads: Sequence[UOp], loops: Sequence[UOp], specials: set[UOp]) -> bool:
    """Whether the last of `loops` reads memory without a gap and for long where `load` does, and no
    other part of the launch reads there. The blocks of a long sum (lower.levels) are one run.
    """
    pointer, index = load.src
    width = run = sum(each.dtype.lanes for each in loads if each.src[0] is pointer)
    for loop in reversed(loops):
        is_block = loop is loops[-1] or loop.axis is Axis.REDUCE
        if not is_block or loop.extent.vmin < 1 or _coefficient(index, loop) != run:
            break
        run *= loop.extent.vmax
    return (
        run > width
        and run * load.dtype.itemsize >= _ENDLESS_RUN
        and all(loop in index.ranges for loop in loops)
        and specials <= set(index.toposort())
    )


def _ahead_of_runs(program: Sequence[UOp], cache_bytes: int) -> dict[UOp, int]:
    """Loads of vectors in nests that fill scratch, and along short runs; and how far in elements
    is what they ask for, the next run of the latter.
    """
    found: dict[UOp, int] = {}
    for loops, body in _bodies(program) if cache_bytes else ():
        loads = [each for each in body if _is_far(each, cache_bytes)]
        for load in loads:
            width = sum(each.dtype.lanes for each in loads if each.src[0] is load.src[0])
            if step := _jump(load, loops, width):
                found[load] = step
        if loads and any(map(_fills_scratch, body)):
            found |= _asked(loads, loops)
    return found


def _jump(load: UOp, loops: Sequence[UOp], width: int) -> int | None:
    """How many elements further the next run is that `load` reads in `loops`, if runs are short and
    the rows beside it do not fill what is between: `width` elements are read in an iteration.
    """
    run, size = load.dtype.lanes, load.dtype.itemsize
    rows = width // max(abs(_coefficient(load.index, loops[-1]) or width), run)
    for loop in reversed(loops):
        step = _coefficient(load.index, loop)
        if step is None or loop.extent.op is not Ops.CONST:
            return None
        if abs(step) > run:
            is_short = _SHORT_RUN <= run * size <= _LONG_RUN
            return step if is_short and abs(step) > run * max(rows, 1) else None
        run = max(run, abs(step) * loop.extent.arg)
    return None


def _asked(loads: Sequence[UOp], loops: Sequence[UOp]) -> dict[UOp, int]:
    """How far ahead `loads` in the last of `loops` ask: some of its trips, or of a loop around it
    where it has too few.
    """
    nbytes = sum(load.dtype.itemsize * load.dtype.lanes for load in loads)
    for loop in reversed(loops):
        if loop.axis is not Axis.STAGE or loop.extent.op is not Ops.CONST:
            break
        trips = -(-_LEAD // nbytes)
        if nbytes * trips > _MOST_LEAD:
            break
        if 2 * trips <= loop.extent.arg:
            steps = {load: _coefficient(load.index, loop) or 0 for load in loads}
            return {
                load: step * trips
                for load, step in steps.items()
                if 0 < abs(step) * load.dtype.itemsize <= _RUN
            }
        nbytes *= loop.extent.arg
    return {}


def _fills_scratch(node: UOp) -> bool:
    return node.op is Ops.STORE and points_to(node.src[0], AddressSpace.SCRATCH)


def _is_far(node: UOp, cache_bytes: int) -> bool:
    """Whether this is a load of a vector from a buffer that a core's own caches do not hold."""
    has_lane_gates = node.is_gated and node.gate.dtype.lanes > 1
    return (
        node.op is Ops.LOAD
        and (not node.is_gated or has_lane_gates)
        and _is_vector_of(node, int(cache_bytes * _FAR))
    )


def _is_large(node: UOp, cache_bytes: int) -> bool:
    """Whether this is a plain load of a vector from a large buffer."""
    return node.op is Ops.LOAD and not node.is_gated and _is_vector_of(node, cache_bytes)


def _is_vector_of(node: UOp, nbytes: int) -> bool:
    """Whether a load is of a vector, from a buffer of more than `nbytes`."""
    if node.dtype.lanes == 1:
        return False
    memory = node.src[0].dtype
    return (
        isinstance(memory, Pointer)
        and memory.space is AddressSpace.GLOBAL
        and memory.size * memory.base.itemsize > nbytes
    )


def _coefficient(index: UOp, loop: UOp) -> int | None:
    """How much `index` grows when `loop` goes on by one; None where that is no constant."""
    terms, _ = linear(index)
    if any(loop in factor.ranges for factor in terms if factor is not loop):
        return None
    return terms.get(loop, 0)


def entry(name: str, streaming: str, plain: str, slots: Sequence[int], vector_bytes: int) -> str:
    """The kernel `name`: `streaming` where the parameters in `slots` are aligned, else `plain`."""
    lines = [f"define void @{name}(ptr noalias %args, i64 %chunk) #0 {{"]
    total = "0"
    for slot in slots:
        lines.append(f"  %at{slot} = getelementptr i64, ptr %args, i64 {slot}")
        lines.append(f"  %address{slot} = load i64, ptr %at{slot}")
        lines.append(f"  %all{slot} = or i64 %address{slot}, {total}")
        total = f"%all{slot}"
    lines += [
        f"  %rest = urem i64 {total}, {vector_bytes}",
        "  %is_aligned = icmp eq i64 %rest, 0",
        "  br i1 %is_aligned, label %stream, label %plain",
        "stream:",
        f"  call void @{streaming}(ptr %args, i64 %chunk)",
        "  fence seq_cst",
        "  ret void",
        "plain:",
        f"  call void @{plain}(ptr %args, i64 %chunk)",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
