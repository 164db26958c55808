"""Runs of a few calls over a few elements, done by the host: no kernel is made or launched.

A loop over small tensors (`if x[i] > x[j]`, `w += 0.1 * error * row`, a table filled by rows) reads
a few numbers in each line. Its calls change with every branch, so that the graphs of its reads are
many, and each is a kernel of some nanoseconds that takes a tenth of a second to compile. Where all
calls that wait are of few steps over few elements in memory within the host's reach, NumPy computes
them (`host_evaluators`), and each result has its memory as after a run.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from math import prod
from operator import attrgetter
from typing import Any

from tilegrad.base.config import current_config
from tilegrad.base.dtype import DType
from tilegrad.base.errors import TransformError
from tilegrad.engine.realize import realize as engine
from tilegrad.engine.run.leaf_memory import OverwrittenError, buffer_of
from tilegrad.engine.run.run import record_of_thread, timer_of_thread
from tilegrad.ir.graph_templates import Template
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import Call, Input, Number, Pool, Value, this_thread
from tilegrad.tensor.storage import host_memory, past
from tilegrad.tensor.storage.host_constants import constant_elements
from tilegrad.tensor.storage.host_evaluators import DTYPES, NotOfHostError, evaluator_of, number_of
from tilegrad.tensor.storage.memory import is_stored
from tilegrad.tensor.storage.new_memory import new_memory
from tilegrad.tensor.storage.segment_take import give_back
from tilegrad.tensor.storage.signatures import is_computed, waiting_calls

__all__ = [
    "calls_below", "constant_number", "elements_in", "elements_of", "evaluated", "is_in_memory",
    "made_of", "may_compute", "quietly", "run_on_host", "store_one",
]  # fmt: skip

# With more results, calls or steps of templates, the host takes as long as a kernel that is new.
_MOST_RESULTS, _MOST_CALLS, _MOST_STEPS = 48, 256, 256
# Steps below a value that is computed for who asks, and not stored; nodes that may wait meanwhile.
_MOST_UNSTORED, _MOST_WAITING = 7, 192
# Elements of an operand.
_MOST_ELEMENTS = 1024
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP, Ops.EXPAND})
_exclusive = engine.exclusive()
_by_time = attrgetter("serial")
_blank, _char = object.__new__, ctypes.c_char


class _Quiet(threading.local):
    """A context of each thread in which NumPy tells of no overflow, as kernels do not. NumPy is
    loaded when there is something to compute.
    """

    context: contextvars.Context | None = None


_quiet = _Quiet()


class _Unseen:
    """The switches that were seen last under which no watcher is to see a run."""

    config: Any = None


_unseen = _Unseen()


def quietly(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of a function of NumPy's for `operands`, without a warning of overflows."""
    context = _quiet.context
    if context is None:
        import numpy

        context = _quiet.context = contextvars.copy_context()
        context.run(numpy.seterr, all="ignore")
    return context.run(function, *operands)


def evaluated(tensor: Any, most: int = _MOST_UNSTORED, *, is_beside: bool = False) -> Any | None:
    """The elements of a tensor whose call waits, where `most` steps over few elements lead to them,
    as an array of its dtype, or a number of NumPy's; None where that is more, or a run is to be
    seen. Nothing is stored. `is_beside` if a run is still to come for what else waits.
    """
    call: Call = tensor._call
    if not tensor._at_once or call.requires_grad or call.value is not None:
        return None
    pool = call.pool
    if pool is not this_thread.pool or device_of(tensor) != "CPU":
        return None
    if call.node is not None and is_computed(call):
        return None
    if not may_compute():
        return None
    with _exclusive:
        # Unread calls would wait forever: once there are many, all of them run.
        if pool.count > _MOST_WAITING and not is_beside and (alive := _many(pool)):
            run_on_host(tensor, call, alive)
            return None
        found = _of_leaves(call)
        if found is not None:
            return found
        calls = calls_below([call], most, is_unstored=True)
        if calls is None:
            return None
        run = _Run()
        if len(calls) > 1:
            calls.sort(key=_by_time)
        try:
            quietly(run.compute, calls)
        except (NotOfHostError, OverwrittenError):
            return None
        return run.arrays[call]


def _of_leaves(call: Call) -> Any | None:
    """The elements of a call over memory and numbers alone, as `_Run` finds them; None where it is
    more than that.
    """
    inputs = call.inputs
    if inputs is None:
        return None
    evaluate = call.template.evaluators.get(call.slot)
    if evaluate is None:
        return None
    operands = []
    run = None
    try:
        for each in inputs:
            if each.__class__ is Call:
                value = each.value
                if value is None:
                    return None
                leaf = value.leaf
                array = elements_in(value.buffer if leaf is None else buffer_of(leaf))
                for op, arg, _ in each.moves:
                    array = array.reshape(arg) if op is Ops.RESHAPE else _moved(array, op, arg)
                if array.size > _MOST_ELEMENTS:
                    return None
                operands.append(array if array.shape else array[()])
            else:
                run = run or _Run()
                operands.append(run.leaf(each))
        return quietly(evaluate, *operands)
    except (NotOfHostError, OverwrittenError):
        return None


def elements_of(tensor: Any, most: int = _MOST_UNSTORED) -> Any | None:
    """As `evaluated`, of any tensor: what is in memory is a view of that, which is not to be
    written to; None too where it is more than a few elements.
    """
    call = tensor._call
    if call is not None and call.value is None and (call.node is None or not is_computed(call)):
        return evaluated(tensor, most)
    if device_of(tensor) != "CPU" or tensor._symbols:
        return None
    try:
        return _Run().leaf(tensor._node if call is None else call)
    except (NotOfHostError, OverwrittenError, TransformError):
        return None


def constant_number(node: UOp) -> Any | None:
    """The value of a constant graph without axes, as a number of Python's; None for other graphs,
    and where kernels have to tell.
    """
    if node.op is Ops.CONST or not node.is_constant or node.shape or not may_compute():
        return None
    array = constant_elements(node)
    return None if array is None else array.item()


def is_in_memory(tensor: Any) -> bool:
    """Whether a tensor is computed, here or elsewhere."""
    call = tensor._call
    return is_stored(tensor._node) if call is None else call.value is not None


def made_of(template: Template, leaves: Sequence[UOp]) -> Any:
    """The result of a template of one result for leaves.

    Raises NotOfHostError where one of them, or a step, is not for the host.
    """
    evaluate = evaluator_of(template, template.results[0], leaves)
    if evaluate is None:
        raise NotOfHostError
    run = _Run()
    return quietly(evaluate, *[run.leaf(each) for each in leaves])


def run_on_host(tensor: Any, asked: Call, alive: list[Call]) -> bool:
    """Compute the calls `alive`, all that wait, for a tensor that asks for the value of one of
    them; False, and nothing has happened, where one of them is not of this kind. Those that have
    waited for two runs may wait on: the values of a `sort` whose order alone is read are in the way
    of no loop.
    """
    if not tensor._at_once or len(alive) > _MOST_RESULTS or device_of(tensor) != "CPU":
        return False
    if asked.template.is_view or not may_compute():
        return False
    if _stored(asked, alive):
        return True
    since = asked.pool.since
    young = [call for call in alive if call is asked or call.serial >= since]
    return len(young) < len(alive) and _stored(asked, young)


def _stored(asked: Call, alive: list[Call]) -> bool:
    """Compute calls for one of them, if the host may compute each."""
    calls = calls_below(alive, _MOST_STEPS)
    if calls is None:
        return False
    run = _Run()
    try:
        quietly(run.compute, sorted(calls, key=_by_time))
    except (NotOfHostError, OverwrittenError):
        return False
    return run.give(asked, calls, alive)


def store_one(asked: Call, call: Call, calls: list[Call]) -> None:
    """Compute `calls`, those below `call` and itself, for a run of the call `asked`, and give this
    one memory; nothing happens where one of them is not for the host.
    """
    run = _Run()
    try:
        quietly(run.compute, sorted(calls, key=_by_time))
    except (NotOfHostError, OverwrittenError):
        return
    run.give(asked, calls, [call])


def _many(pool: Pool) -> list[Call]:
    """The calls that wait, if they stand for many nodes; these are counted anew, without those of
    results that died.
    """
    alive = waiting_calls(pool)
    calls: list[Any] = [*alive]
    seen = set(calls)
    count = 0
    # The list grows while it is walked.
    for call in calls:
        count += call.template.size
        for each in call.inputs or ():
            if each.__class__ is Call and each.value is None and each not in seen:
                seen.add(each)
                calls.append(each)
        if count > _MOST_WAITING:
            return alive
    pool.count = count
    return []


def may_compute() -> bool:
    """Whether no watcher is to see a run."""
    config = current_config()
    if config is not _unseen.config:
        if config.SEGMENTS != 1 or config.TEMPLATES != 1 or config.NOOPT:
            return False
        if config.DEBUG >= 2 or config.CHECK:
            return False
        _unseen.config = config
    return not transforms.depth and record_of_thread() is None and timer_of_thread() is None


def calls_below(alive: list[Call], most: int, *, is_unstored: bool = False) -> list[Call] | None:
    """Calls and those below that wait; None if they have more than `most` steps, or have to do
    with gradients, or with assignments, whose values may be looked at if nothing is stored.
    """
    calls = [*alive]
    # Made when there is a second one.
    seen: set[Call] = set()
    steps = 0
    # The list grows while it is walked.
    for call in calls:
        inputs = call.inputs
        if call.requires_grad or inputs is None:
            return None
        if (call.is_write or call.is_loss) and not is_unstored:
            return None
        steps += call.template.work
        if steps > most:
            return None
        for each in inputs:
            if each.__class__ is Call and each.value is None:
                if each.node is None or not is_computed(each):
                    seen = seen or set(calls)
                    if each not in seen:
                        seen.add(each)
                        calls.append(each)
    return None if len(calls) > _MOST_CALLS else calls


def _has_past(call: Call) -> bool:
    """Whether a gradient may be asked for through a result that requires none: not in PyTorch's
    way, where it had to be said before.
    """
    tensor = call.handle()
    return call.dtype.is_float and not (tensor is not None and tensor._at_once)


class _Run:
    """The arrays of leaves and of calls, and what gradients of these would go to."""

    __slots__ = ("arrays", "bases", "below", "generation", "leaves", "numbers")

    def __init__(self) -> None:
        self.arrays: dict[Any, Any] = {}
        # For each leaf, the memory below it.
        self.below: list[tuple[Input, UOp | Value | None]] = []

    def compute(self, ordered: list[Call]) -> None:
        """Compute all calls, sources first.

        Raises NotOfHostError where one is not for the host.
        """
        arrays = self.arrays
        for call in ordered:
            inputs: Any = call.inputs
            template, slot = call.template, call.slot
            evaluate = template.evaluators.get(slot) or evaluator_of(template, slot, inputs)
            if evaluate is None:
                raise NotOfHostError
            operands = []
            for each in inputs:
                array = arrays.get(each)
                if array is None:
                    array = arrays[each] = self.leaf(each)
                operands.append(array)
            arrays[call] = evaluate(*operands)

    def leaf(self, leaf: Any) -> Any:
        """The elements of a leaf."""
        if leaf.__class__ is Number:
            self.below.append((leaf, None))
            return number_of(leaf.dtype)(leaf.value)
        if leaf.__class__ is Call and leaf.value is not None:
            value = leaf.value
            self.below.append((leaf, value))
            array = elements_in(value.buffer if value.leaf is None else buffer_of(value.leaf))
            for op, arg, _ in leaf.moves:
                array = array.reshape(arg) if op is Ops.RESHAPE else _moved(array, op, arg)
        else:
            node = leaf if leaf.__class__ is UOp else leaf.node
            if node is None:
                raise NotOfHostError
            array = self._node(node, leaf)
        if array.size > _MOST_ELEMENTS:
            raise NotOfHostError
        return array if array.shape else array[()]

    def _node(self, node: UOp, leaf: Input) -> Any:
        """The elements of a node: movements of memory, or a constant."""
        moves = []
        while node.op is not Ops.BUFFER:
            if node.is_constant:
                array = constant_elements(node) if prod(node.shape) <= _MOST_ELEMENTS else None
                if array is None:
                    raise NotOfHostError
                self.below.append((leaf, None))
                break
            stored = engine.realized(node) if node.stored is not None else None
            if stored is not None:
                node = stored
            elif node.op in _MOVES or node.op is Ops.DETACH:
                moves.append((node.op, node.arg))
                node = node.src[0]
            else:
                raise NotOfHostError
        else:
            array = elements_in(buffer_of(node))
            self.below.append((leaf, node))
        for op, arg in reversed(moves):
            array = host_memory.moved(array, op, arg)
        return array

    def give(self, asked: Call, calls: list[Call], alive: list[Call]) -> bool:
        """Let the results that are alive have memory; False where there is no room."""
        made: list[tuple[int, Call, Value]] = []
        for number, call in enumerate(alive):
            if call.template.is_view:
                continue
            buffer = new_memory(self.arrays[call], call.dtype, prod(call.shape))
            if buffer is None:
                return False
            value = _blank(Value)
            value.buffer = buffer
            value.leaf = value.past = None
            made.append((number, call, value))
        waiting, done = asked.pool.waiting, asked.pool.computed
        for _, call, value in made:
            shape = call.shape
            moves = () if len(shape) == 1 else ((Ops.RESHAPE, shape, shape),)
            call.value, call.moves, call.generation = value, moves, 0
            if call.node is not None:
                engine.remember(call.node, value.node(moves))
            each = call.handle()
            if each is not None and each._call is call and call.handle in waiting:
                waiting.discard(call.handle)
                done.append(call.handle)
        if len(done) >= asked.pool.many:
            asked.pool.forget_dead()
        floats = [(at, call, value) for at, call, value in made if _has_past(call)]
        if floats:
            reached = self._reached(calls)
            noted = [(at, value, reached[call]) for at, call, value in floats]
            leaves = [leaf for leaf, _ in self.below]
            bases = [base for _, base in self.below if base is not None]
            past.note_run(noted, leaves, bases, alive)
        # PyTorch's tensors have gradients only if they said so before.
        for _, call, _ in made:
            give_back(call)
        return True

    def _reached(self, calls: list[Call]) -> dict[Call, past.Reached]:
        """For each call with a float result, what a gradient of that goes to."""
        numbers = {call: number for number, call in enumerate(calls)}
        bits: dict[Any, tuple[int, int]] = {}
        base_bit = 1
        for number, (leaf, base) in enumerate(self.below):
            bits[leaf] = 1 << number, 0 if base is None else base_bit
            if base is not None:
                base_bit <<= 1
        found: dict[Call, past.Reached] = {}
        for call in sorted(calls, key=_by_time):
            leaves = bases = below = 0
            for at in call.template.flowing(call.slot) if call.dtype.is_float else ():
                each: Any = (call.inputs or ())[at]
                known = found.get(each)
                if known is None:
                    leaves |= bits[each][0]
                    bases |= bits[each][1]
                else:
                    leaves |= known.leaves
                    bases |= known.bases
                    below |= known.calls | 1 << numbers[each]
            found[call] = past.Reached(leaves, bases, below)
        return found


def _moved(array: Any, op: Ops, arg: Any) -> Any:
    """As `host_memory.moved`, which it leaves what is rare."""
    if op is Ops.SHRINK:
        if len(arg) == 1:
            ((start, stop),) = arg
            return array[start:stop]
        if len(arg) == 2:
            (above, below), (start, stop) = arg
            return array[above:below, start:stop]
    return host_memory.moved(array, op, arg)


@functools.cache
def _arrays() -> tuple[Any, dict[DType, Any]]:
    """NumPy's view of memory, and its dtypes."""
    import numpy

    return numpy.frombuffer, {each: numpy.dtype(each.name) for each in DTYPES}


def elements_in(buffer: Buffer) -> Any:
    """The elements of memory of this machine, which are not copied.

    Raises NotOfHostError for other memory.
    """
    handle = buffer._handle
    known = buffer.elements
    if known is not None and known[0] is handle:
        return known[1]
    from_buffer, kinds = _arrays()
    kind = kinds.get(buffer.dtype)
    if handle is None or kind is None or buffer.allocator.device != "CPU":
        raise NotOfHostError
    array = from_buffer((_char * buffer.nbytes).from_address(handle), kind)
    buffer.elements = handle, array
    return array
