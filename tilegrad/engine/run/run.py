"""Plans are run here: memory is taken, steps are launched in order, and each is counted and, if
asked for, shown. The steps of a loop are launched as if they were unrolled, one iteration
after the other, so a capture of them is one of launches, and has nothing to know of loops.

`recording()` lets a capture see every step with the buffers it used.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tilegrad.base.config import config, current_config
from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import (
    InternalError,
    OutOfMemoryError,
    ShapeError,
    TilegradError,
    located,
)
from tilegrad.base.forks import held_at_fork
from tilegrad.base.origin import Entry, method_names
from tilegrad.base.recent import Recent
from tilegrad.device.registry import Device
from tilegrad.engine.build.pipeline import CompiledKernel
from tilegrad.engine.plans.plan import LoopPlan, Plan, Step
from tilegrad.engine.plans.plans import use_best
from tilegrad.engine.program.blocks import blocks_at
from tilegrad.engine.run import report
from tilegrad.engine.run.in_use import largest
from tilegrad.engine.run.leaf_memory import mark_as_of_function
from tilegrad.engine.run.made_ready import ReadyByLengths, made_ready
from tilegrad.engine.run.nan_check import LaunchWatch
from tilegrad.engine.run.queues import in_order
from tilegrad.engine.run.ready import NoRoomError, Ready
from tilegrad.ir.args import STEP
from tilegrad.ir.lengths import value_of
from tilegrad.ir.uop import UOp, sint
from tilegrad.runtime.allocator import LRUAllocator
from tilegrad.runtime.buffer import Buffer
from tilegrad.runtime.protocol import Runtime

__all__ = [
    "Launch", "Recording", "current_recording", "is_for_replays", "load_program", "ready_plan",
    "record_of_thread", "recording", "run_plan", "run_step", "timer_of_thread",
]  # fmt: skip

LRUAllocator.describe = staticmethod(largest)


class Launch(NamedTuple):
    """One step as it ran: a kernel with its buffers, or a copy of the second buffer into the first.

    `values` are those of the kernel's `variables`, in their order; `origin` says which of the
    user's calls it computes.
    """

    device: str
    kernel: CompiledKernel | None
    buffers: tuple[Buffer, ...]
    variables: tuple[str, ...]
    origin: tuple[Entry, ...]
    values: tuple[int, ...] = ()
    # How many of the buffers, the first, it writes.
    written: int = 1

    @property
    def calls(self) -> tuple[str, ...]:
        """The user's calls, by name."""
        return tuple(method_names(self.origin))

    @property
    def bound(self) -> dict[str, int]:
        """The value of each variable of the kernel."""
        return dict(zip(self.variables, self.values, strict=True)) if self.variables else {}


class Recording(list[Launch]):
    """The steps of a block, in order.

    A capture asks for two things more. Steps that made values before the block are missing from the
    record, so with `known` only the block's own values count as computed
    (engine.realize.computed_nodes). And `on_read` is called before a value is read by the host, as
    a replay would not read it.
    """

    def __init__(self, on_read: Callable[[UOp], None] | None, is_closed: bool):
        super().__init__()
        self.on_read = on_read
        self.known: weakref.WeakKeyDictionary[UOp, UOp] | None = (
            weakref.WeakKeyDictionary() if is_closed else None
        )
        # Slices, as their starts, ends and the sizes of their axes, that lie inside at the bound
        # values of variables but not at all values that these may have.
        self.slices: list[tuple[sint, sint, sint]] = []
        # Whether these are the steps of a capture, or of the call before it, for comparison.
        self.is_of_capture = is_closed
        # Set by a capture that traces Python, so that the engine can turn it off for itself.
        self.tracer: Any = None


_recorder: contextvars.ContextVar[Recording | None] = contextvars.ContextVar(
    "tilegrad_launches", default=None
)
_timer: contextvars.ContextVar[list[tuple[Launch, float]] | None] = contextvars.ContextVar(
    "tilegrad_timer", default=None
)
# Each with the runtime that loaded it: a name may be registered anew. A capture holds its programs
# itself.
_programs: Recent[tuple[str, str], tuple[Runtime, Any]] = Recent(lambda: config.KEEP_KERNELS)
_lock = held_at_fork(threading.Lock(), 50)


def current_recording() -> Recording | None:
    """The record that this thread writes, if any."""
    return _recorder.get()


# The same without a Python frame, for code that runs in every call of a method. A capture, which
# follows Python functions, does not see these calls.
record_of_thread = _recorder.get
timer_of_thread = _timer.get


def is_for_replays() -> bool:
    """Whether a capture will replay the runs of this thread: its kernels are the best from the
    first call on.
    """
    record = _recorder.get()
    return record is not None and record.is_of_capture


@contextmanager
def recording(
    on_read: Callable[[UOp], None] | None = None, *, is_closed: bool = False
) -> Iterator[Recording]:
    """The steps that this thread runs in the block; `is_closed` if nothing computed before may be
    used.
    """
    record = Recording(on_read, is_closed)
    token = _recorder.set(record)
    try:
        yield record
    finally:
        _recorder.reset(token)


@contextmanager
def timed() -> Iterator[list[tuple[Launch, float]]]:
    """The kernels that this thread runs in the block, each with its seconds."""
    record: list[tuple[Launch, float]] = []
    token = _timer.set(record)
    try:
        yield record
    finally:
        _timer.reset(token)


def load_program(device: str, kernel: CompiledKernel) -> Any:
    """The kernel's binary in the device's memory."""
    runtime, key = Device[device].runtime, (device, kernel.key)
    found = _programs.get(key)
    if found is None or found[0] is not runtime:
        with _lock:
            found = _programs.get(key)
            if found is None or found[0] is not runtime:
                found = runtime, runtime.load(kernel.function, kernel.binary)
                _programs.put(key, found)
    return found[1]


def run_plan(
    plan: Plan,
    inputs: Sequence[Buffer],
    variables: Mapping[str, int],
    origin_of: Callable[[Step], tuple[Entry, ...]] = lambda step: (),
    is_writing: bool = False,
    nodes: Sequence[UOp] = (),
) -> list[Buffer]:
    """Run a plan on `inputs` (by number) and give the buffers of its results. `origin_of` gives the
    user's calls behind a step, `nodes` are the graph's in order, for its Python functions.

    Raises the error of a step, with the user's line. A plan that `is_writing` to its inputs takes
    all memory before it begins, so that where there is too little nothing is half written.
    """
    if is_for_replays():
        use_best(plan)
    ready = ready_plan(plan)
    if ready is not None:
        refused: TilegradError | None = None
        try:
            return ready.run(inputs, variables)
        except KeyError:
            # Before the first launch: the steps one by one tell which variable has no value.
            names = {each for step in plan.steps for each in step.names if isinstance(each, str)}
            if not names.difference(variables):
                raise
        except NoRoomError as found:
            first = next(step for step in plan.steps if found.position in step.buffers)
            # Its traceback would keep the memory taken.
            refused = located(found.error.with_traceback(None), origin_of(first))
        if refused is not None:
            try:
                raise refused
            finally:
                del refused
    blocks = {
        device: Device[device].buffer(size, dtypes.uint8) for device, size in plan.blocks.items()
    }
    table = _table(plan, inputs, blocks, variables)
    failure = _run_steps(plan, table, variables, origin_of, is_writing, nodes)
    if failure is not None:
        # The traceback keeps this frame: memory of the run is released now. And the frame must not
        # keep the traceback, or the user's tensors in it would live until garbage is collected.
        table.clear()
        blocks.clear()
        try:
            raise failure
        finally:
            del failure
    return [table[number] for number in plan.outputs]


def ready_plan(plan: Plan) -> Ready | ReadyByLengths | None:
    """The plan ready to run in one call, unless somebody is to see each step."""
    switches = current_config()
    if _recorder.get() is not None or _timer.get() is not None:
        return None
    if switches.DEBUG >= 2 or switches.CHECK >= 2:
        return None
    if not plan.ready:
        try:
            plan.ready.append(made_ready(plan, load_program))
        except OutOfMemoryError:
            # For the code of a program: the steps one by one say which call of the user's has none.
            return None
    found: Ready | ReadyByLengths | None = plan.ready[0]
    if found is not None and Device.at_hand(found.backend.name) is not found.backend:
        plan.ready.clear()
        return ready_plan(plan)
    return found


def _table(
    plan: Plan,
    inputs: Sequence[Buffer],
    blocks: Mapping[str, Buffer],
    variables: Mapping[str, int],
) -> list[Buffer]:
    """The buffers of a plan: its inputs, parts of the blocks, memory of their own."""
    table: list[Buffer] = []
    slots: dict[int, list[int]] = {}
    for memory in plan.buffers:
        if memory.source is not None:
            table.append(inputs[memory.source])
        elif memory.offset is not None:
            table.append(blocks[memory.device].view(memory.offset, memory.size, memory.dtype))
        elif memory.terms is None:
            table.append(Device[memory.device].buffer(memory.size, memory.dtype))
        else:
            size = value_of(memory.terms, variables)
            table.append(Device[memory.device].buffer(size, memory.dtype))
            if memory.slot is not None:
                slots.setdefault(memory.slot, []).append(len(table) - 1)
    for numbers in slots.values():
        _share(table, numbers)
    return table


def _share(table: list[Buffer], numbers: Sequence[int]) -> None:
    """Let buffers that do not live at the same time lie in one memory."""
    if len(numbers) > 1:
        first = table[numbers[0]]
        nbytes = max(table[number].nbytes for number in numbers)
        memory = Device[first.device].buffer(nbytes, dtypes.uint8)
        for number in numbers:
            table[number] = memory.view(0, table[number].size, table[number].dtype)


def _run_loop(
    loop: LoopPlan,
    step: Step,
    outer: Sequence[Buffer],
    variables: Mapping[str, int],
    origin_of: Callable[[Step], tuple[Entry, ...]],
) -> TilegradError | None:
    """Run a loop on its buffers; an error of a step is given back."""
    buffers = [outer[number] for number in step.buffers]
    for buffer in buffers:
        _ = buffer.handle
    blocks = {device: buffers[position] for device, position in loop.blocks.items()}
    tables = [
        _table(loop.plan, [buffers[positions[when]] for positions in loop.positions], blocks, {})
        for when in range(4)
    ]
    for number, when in loop.iterations(variables):
        values = {STEP: number}
        failure = _run_steps(loop.plan, tables[when], values, lambda _: origin_of(step), False, ())
        if failure is not None:
            return failure
    return None


def _run_steps(
    plan: Plan,
    table: Sequence[Buffer],
    variables: Mapping[str, int],
    origin_of: Callable[[Step], tuple[Entry, ...]],
    is_writing: bool,
    nodes: Sequence[UOp],
) -> TilegradError | None:
    """Run the steps; an error is given back, so that no traceback holds their memory."""
    record, switches = _recorder.get(), config.current()
    is_told = record is not None or switches.DEBUG >= 2
    is_checked = switches.CHECK >= 2
    # Memory that no step has written to.
    new = {
        number
        for number, memory in enumerate(plan.buffers if is_checked else ())
        if memory.source is None or not table[number].is_allocated
    }
    step = plan.steps[0] if plan.steps else None
    try:
        if switches.DEBUG >= 2:
            _show_empty(plan, table)
        for step in plan.steps if is_writing else ():
            for number in step.buffers:
                _ = table[number].handle
        for step in in_order(plan):
            if step.is_custom:
                _run_custom(nodes[step.nodes[0]], step, table, origin_of, record)
                continue
            if step.loop is not None:
                # The kernels of an iteration take this memory as an input.
                for number in new.intersection(step.buffers):
                    table[number].copy_in(bytes(table[number].nbytes))
                new.difference_update(step.buffers)
                failure = _run_loop(step.loop, step, table, variables, origin_of)
                if failure is not None:
                    return failure
                continue
            launch = _bound(step, table, origin_of(step) if is_told else (), variables)
            if record is not None:
                record.append(launch)
            watch = None
            if is_checked:
                if launch.kernel is not None:
                    first = [table[number] for number in step.buffers if number in new]
                    watch = LaunchWatch(launch.buffers, first)
                new.difference_update(step.buffers)
            run_step(launch, launch.bound)
            if watch is not None and launch.kernel is not None:
                watch.look(launch.kernel.name)
    except InternalError:
        raise
    except TilegradError as error:
        return located(error, origin_of(step) if step is not None else ())
    return None


def _show_empty(plan: Plan, table: Sequence[Buffer]) -> None:
    """A row per input that is read and was never written: `Tensor.empty` takes its memory now."""
    read = {number for step in plan.steps for number in step.buffers[1:]}
    for number, memory in enumerate(plan.buffers):
        if memory.source is not None and number in read:
            buffer = table[number]
            if not buffer.is_allocated:
                _ = buffer.handle
                name = f"empty {buffer.size:8d} {buffer.dtype.alias}"
                report.row(buffer.device, name, 1, 0, 0, None, (), key=name)


def _bound(
    step: Step, table: Sequence[Buffer], origin: tuple[Entry, ...], variables: Mapping[str, int]
) -> Launch:
    names = step.kernel.variables if step.kernel is not None else ()
    buffers = tuple([table[number] for number in step.buffers])
    try:
        values = tuple([variables[each] if isinstance(each, str) else each for each in step.names])
    except KeyError as error:
        name = error.args[0]
        raise ShapeError(
            f"realize: the variable {name!r} has no value",
            remedy=f"bind it where it is used: {name}.bind(3)",
        ) from None
    return Launch(
        step.device,
        step.kernel,
        buffers,
        names,
        origin,
        values,
        step.written,
    )


def run_step(launch: Launch, variables: Mapping[str, int], *, replay: bool = False) -> None:
    """Run one step and count it."""
    shown = config.current().DEBUG >= 2
    kernel, timer = launch.kernel, _timer.get()
    if kernel is None:
        _copy(launch, shown=shown, replay=replay)
        return
    backend = Device[launch.device]
    program = load_program(launch.device, kernel)
    handles = [buffer.handle for buffer in launch.buffers]
    values = [variables[name] for name in kernel.variables]
    seconds = backend.runtime.launch(
        program,
        handles,
        values,
        kernel.global_size if kernel.blocks is None else blocks_at(kernel.blocks, variables),
        kernel.local_size,
        wait=shown or timer is not None,
    )
    ops, mem = kernel.ops, kernel.mem
    if kernel.costs is not None:
        ops, mem = (value_of(terms, variables) for terms in kernel.costs)
    report.count(ops, mem, seconds)
    if timer is not None and seconds is not None:
        timer.append((launch, seconds))
    if shown:
        report.row(
            launch.device,
            kernel.display,
            len(handles) + len(values),
            ops,
            mem,
            seconds,
            launch.calls,
            key=kernel.key,
            kernels=1,
            replay=replay,
        )


def _run_custom(
    node: UOp,
    step: Step,
    table: Sequence[Buffer],
    origin_of: Callable[[Step], tuple[Entry, ...]],
    record: Recording | None,
) -> None:
    """Run a Python function on the bytes of its inputs; a capture refuses it as it does a read."""
    if record is not None and record.on_read is not None:
        record.on_read(node)
    target, *inputs = [table[number] for number in step.buffers]
    start = report.clock()
    given = [memoryview(each.copy_out()) for each in inputs]
    try:
        made = memoryview(node.arg.function(given))
    except Exception as error:
        # An error of the user's own function, not of the compiler.
        mark_as_of_function(error)
        raise
    if made.nbytes != target.nbytes:
        raise ShapeError(
            f"custom: {node.arg.name} gave {made.nbytes} bytes, not {target.nbytes}",
            shape=node.arg.shape,
        )
    target.copy_in(made.cast("B"))
    seconds = report.clock() - start
    report.count(0, 0, seconds, kernels=0)
    if config.DEBUG >= 2:
        name = f"custom {node.arg.name}"
        calls = tuple(method_names(origin_of(step)))
        report.row("HOST", name, len(step.buffers), 0, target.nbytes, seconds, calls, key=name)


def _copy(launch: Launch, *, shown: bool, replay: bool) -> None:
    target, source = launch.buffers
    start = report.clock()
    moved = target.allocator.runtime.transfer(
        target.to_write(), source.handle, source.allocator.runtime, target.nbytes
    )
    if not moved:
        view = source.host_view()
        target.copy_in(view if view is not None else source.copy_out())
    seconds = report.clock() - start
    report.count(0, target.nbytes, seconds, kernels=0)
    if shown:
        report.show_copy(
            target.device,
            source.device,
            target.nbytes,
            seconds,
            kind="xfer" if moved else "copy",
            replay=replay,
        )
