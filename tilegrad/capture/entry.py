"""A capture, ready to be replayed: checks, inputs, steps, and results of a call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilegrad.capture.graph import Replay
from tilegrad.capture.guards import Guards, describe
from tilegrad.capture.inputs import Input, layout, living, settle
from tilegrad.capture.modes import CaptureModes
from tilegrad.capture.results import Build, Cell, Output, TensorSignature
from tilegrad.capture.slots import Draws
from tilegrad.device.registry import Device
from tilegrad.engine.realize.realize import readers_of
from tilegrad.engine.run.group_memory import overwritten
from tilegrad.engine.run.leaf_memory import buffer_of, buffers
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import below_reshapes
from tilegrad.ir.uop import UOp, sint
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.aliases import Away, hold, is_alone, look, show
from tilegrad.tensor.handle.living import owners
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, merge
from tilegrad.tensor.indexing.generator import generator
from tilegrad.tensor.storage import memory, running
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.views.shrinking import is_inside

__all__ = ["Entry", "Mismatch", "set_aside"]

Effect = Callable[[Sequence[Tensor], Sequence[Tensor]], None]
Server = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Result of a call from its arguments; a Mismatch if the capture does not serve it."""


@dataclass(frozen=True)
class SetGradient:
    """The effect of a new gradient for an input."""

    number: int
    build: Build

    def __call__(self, made: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        given[self.number].grad = self.build(made, given)


@dataclass(frozen=True)
class SetMemory:
    """The effect of an input that takes other memory. It comes after everything that looks at the
    memory from before: results, and the values of other such effects.
    """

    number: int
    build: Build

    def __call__(self, made: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        given[self.number].replace(self.build(made, given))


def _gone() -> None:
    """Stands for the node of an input that was never seen."""


@dataclass(frozen=True)
class Mismatch:
    """Why a capture does not serve a call: the number of a check, a text about an input, or that
    the call is made in other modes.
    """

    check: int = -1
    text: str = ""
    is_of_modes: bool = False


@dataclass(eq=False)
class Entry:
    """One capture of a function.

    Attributes:
        made: the signature of each tensor that a replay makes, its output, and its number there.
        aliases: those of them, by number, that share a storage, and their paths in it.
        symbols: symbolic arguments without their values.
        asked: variables whose value Python code has seen, with that value.
        slices: start, end and size of the axis of slices that may lie outside at other values.
        leftovers: slots of memory that something outside might still look at.
        cleared: inputs whose gradient is made anew.
        vanishing: plain values that the function changed, and that replays leave as they are.
    """

    guards: Guards
    modes: CaptureModes
    inputs: list[Input]
    program: Replay
    outputs: list[Output]
    made: list[tuple[TensorSignature, int, int]]
    aliases: list[list[tuple[int, Away]]]
    build: Build
    effects: list[Effect]
    draws: Draws
    symbols: list[UOp]
    asked: dict[UOp, int]
    slices: list[tuple[sint, sint, sint]]
    leftovers: list[tuple[int, Buffer]]
    cleared: list[int]
    vanishing: list[str]
    block_bytes: int
    values: Variables = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)
    _bound: dict[int, Buffer] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    _last: list[UOp | None] = field(default_factory=list)
    _bindings: list[Variables] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    _written_slots: list[int] = field(default_factory=list)
    symbolic: list[int] = field(default_factory=list)
    _sharing: dict[int, list[int]] = field(default_factory=dict)
    # Inputs whose memory is taken as it is, whichever tensor stands there.
    _usual: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seen = [_gone] * len(self.inputs)
        self._last = [None] * len(self.symbols)
        self._bindings = [NO_VARIABLES] * len(self.symbols)
        self.written = [number for number, each in enumerate(self.inputs) if each.is_written]
        self._written_slots = [self.inputs[number].slot for number in self.written]
        slots = [each.slot for each in self.inputs if each.slot >= 0]
        for number, each in enumerate(self.inputs):
            if slots.count(each.slot) > 1:
                self._sharing.setdefault(each.slot, []).append(number)
        self._usual = {
            number
            for number, each in enumerate(self.inputs)
            if each.is_usual and slots.count(each.slot) == 1
        }
        self.symbolic = [n for n, each in enumerate(self.inputs) if each.signature.variables]

    # does it serve this call?

    def bind(self, tensors: tuple[Tensor, ...], changed: list[int]) -> Mismatch | None:
        """Take the memory of inputs that are not those of the last call."""
        if all(self._take(number, tensors[number]) for number in changed):
            return None
        text = self._bind(tensors, changed)
        if text is None:
            return None
        self.seen[:] = [_gone] * len(self.inputs)
        return Mismatch(text=text)

    def bind_variables(
        self, tensors: tuple[Tensor, ...], symbols: tuple[UOp, ...]
    ) -> Mismatch | None:
        """Take the values of symbolic arguments, and of sizes of inputs."""
        text = self._bind_variables(tensors, symbols)
        return None if text is None else Mismatch(text=text)

    def _take(self, number: int, tensor: Tensor) -> bool:
        """Take the memory of an input, if that is all that there is to do: the usual case."""
        known, signature, node = self.inputs[number], self.inputs[number].signature, tensor.uop
        if not (
            number in self._usual
            and node.shape == known.shape
            and node.dtype is signature.dtype
            and tensor.device == signature.device
            and tensor._requires_grad is signature.requires_grad
        ):
            return False
        base = below_reshapes(node)
        if base.op is not Ops.BUFFER:
            return False
        buffer, slot = buffer_of(base), known.slot
        before = self._bound.get(slot)
        if buffer is not before:
            if id(buffer) in self.slots:
                return False
            if before is not None:
                del self.slots[id(before)]
            self.slots[id(buffer)] = slot
            self._bound[slot] = buffer
            self.program.set_buffer(slot, buffer)
        known.staging.node = known.staging.source = None
        self.seen[number] = weakref.ref(node)
        return True

    def _bind(self, tensors: tuple[Tensor, ...], changed: list[int]) -> str | None:
        for number in changed:
            known, tensor = self.inputs[number], tensors[number]
            text = known.differs(tensor)
            if text is None and known.kind == "graph" and tensor.uop is not known.node:
                text = "another constant"
            if text is None and known.is_written and tensor._is_shared:
                text = "it shares its memory, and the capture wrote to it"
            if text is not None:
                return f"{known.label}: {text}"
        wanted = [number for number in changed if self.inputs[number].kind == "memory"]
        found: dict[int, Buffer] = {}
        waiting: list[Tensor] = []
        for number in wanted:
            known, tensor = self.inputs[number], tensors[number]
            if known.is_argument and not known.is_written and not known.is_slice:
                staged = known.staging.fill(tensor, is_fresh=known.is_viewed)
                if staged is not None:
                    found[number] = staged
                    continue
            if not memory.is_stored(tensor.uop):
                waiting.append(tensor)
        if waiting:
            settle(waiting)
        for number in wanted:
            if number not in found:
                buffer = self._memory_of(number, tensors[number])
                if buffer is None:
                    return f"{self.inputs[number].label}: it looks at its memory in another way"
                found[number] = buffer
        text = self._set_slots(found) or self._overlap()
        for number in changed:
            self.seen[number] = weakref.ref(tensors[number].uop)
        return text

    def _overlap(self) -> str | None:
        """The fault of an argument that is a copy of a slice of memory that a replay writes, or
        None.
        """
        if not self.written:
            return None
        written = [self._bound.get(self.inputs[number].slot) for number in self.written]
        for each in self.inputs:
            source = None if each.staging.source is None else each.staging.source()
            if source is not None and any(source is buffer for buffer in written):
                return f"{each.label}: it is a slice of memory that the function writes"
        return None

    def _memory_of(self, number: int, tensor: Tensor) -> Buffer | None:
        known = self.inputs[number]
        if known.is_written:
            tensor._bring_together()
        if layout(tensor.uop) != known.layout:
            if not known.is_argument or known.is_written or known.is_slice:
                return None
            return known.staging.fill(tensor, is_fresh=known.is_viewed)
        return buffer_of(memory.base_of(tensor.uop))

    def _set_slots(self, found: dict[int, Buffer]) -> str | None:
        """Bind slots: inputs that shared memory must still do so, and others must not."""
        moved: dict[int, Buffer] = {}
        for number, buffer in found.items():
            slot = self.inputs[number].slot
            if moved.setdefault(slot, buffer) is not buffer:
                return f"{self.inputs[number].label}: it no longer shares memory with another input"
        for slot in moved:
            before = self._bound.pop(slot, None)
            if before is not None:
                self.slots.pop(id(before), None)
            for number in self._sharing.get(slot, ()):
                if number not in found:
                    label = self.inputs[number].label
                    return f"{label}: it no longer shares memory with another input"
        for slot, buffer in moved.items():
            if id(buffer) in self.slots:
                label = next(each.label for each in self.inputs if each.slot == slot)
                return f"{label}: it shares memory with another input"
            self.slots[id(buffer)] = slot
            self._bound[slot] = buffer
            self.program.set_buffer(slot, buffer)
        return None

    def _bind_variables(self, tensors: tuple[Tensor, ...], symbols: tuple[UOp, ...]) -> str | None:
        for number, node in enumerate(symbols):
            if node is not self._last[number]:
                free, bound = node.unbound()
                if free is not self.symbols[number]:
                    return "a symbolic argument has another form"
                self._last[number], self._bindings[number] = node, bound
        values: Variables = NO_VARIABLES
        for binding in self._bindings:
            values = merge(values, binding)
        for number in self.symbolic:
            values = merge(values, tensors[number]._variables)
        for variable, value in self.asked.items():
            if values.get(variable) != value:
                return f"variable {variable.name}, whose value the function looks at, was {value}"
        if any(not is_inside(each, values) for each in self.slices):
            # The function itself says which.
            return "a window does not fit the bound values"
        self.values = values
        for variable, value in values.items():
            self.program.set_value(("variable", variable.name), value)
        return None

    def why(self, missed: Mismatch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """A line on why the capture did not serve a call."""
        if missed.text:
            return missed.text
        if missed.check < 0:
            return "a value that it read is gone"
        check = self.guards.checks[missed.check]
        value = check.path.peek(args, kwargs)
        if check.test == "call":
            return "the number of arguments changed"
        return f"{check.show()} no more, but {describe(value)}"

    @property
    def nbytes(self) -> int:
        """Bytes that the capture holds: temporaries, results that it may write again, and copies of
        operands that are packed beforehand.
        """
        own = sum(cell.buffer.nbytes for output in self.outputs for cell in output.pool)
        return own + self.block_bytes + self.program.packed_bytes

    # the replay

    def open(self, tensors: tuple[Tensor, ...]) -> None:
        """Make the memory of inputs that are written free to be."""
        if not all(map(memory.is_sole, [tensors[number] for number in self.written])):
            self._set_aside(tensors)
        for slot in self._written_slots:
            buffer = self._bound[slot]
            if (
                buffer.is_watched
                or buffer.is_counted
                or buffer.is_fixed
                or buffer._holder is not None
                or buffer.base
            ):
                buffer.before_write()

    def write(self, number: int, cell: Cell) -> None:
        """Let the program write an output to the memory of `cell`."""
        output = self.outputs[number]
        self.program.set_buffer(output.slot, cell.buffer)
        output.current = cell

    def draw(self) -> None:
        """Take the next random words."""
        seed, offset = generator.take(self.draws.words)
        self.program.set_value(("seed", "low"), seed & 0xFFFFFFFF)
        self.program.set_value(("seed", "high"), seed >> 32)
        for number in self.draws.offsets:
            self.program.set_value(("offset", number), offset + number)

    def give_up_leftovers(self) -> None:
        """Memory of the captured call that somebody still looks at is left to them."""
        seen = {id(buffer) for buffer in buffers()}
        for slot, buffer in self.leftovers:
            if id(buffer) in seen or buffer.is_lent:
                buffer = Device[buffer.device].buffer(buffer.size, buffer.dtype)
            self.program.set_buffer(slot, buffer)
        self.leftovers = []

    def _set_aside(self, tensors: tuple[Tensor, ...]) -> None:
        """Compute, or copy, the values that still need the old inputs that are written; these then
        stand on new leaves.
        """
        written = [tensors[number] for number in self.written]
        leaves = {memory.base_of(tensor.uop) for tensor in written}
        moved = [*written, *aliases_of(written)]
        set_aside(leaves, {id(tensor) for tensor in moved})
        fresh = {node: overwritten(node) for node in leaves}
        for node, new in fresh.items():
            if node in owners:
                owners[new] = owners[node]
        for tensor in moved:
            tensor.uop = tensor.uop.substitute(fresh)
            tensor._previous = ()
        for number, tensor in enumerate(tensors):
            if self.seen[number]() is not tensor.uop:
                is_here = self.inputs[number].is_written
                self.seen[number] = weakref.ref(tensor.uop) if is_here else _gone


def aliases_of(written: list[Tensor]) -> list[Tensor]:
    """The other aliases of tensors in memory that are about to be written, which look there now."""
    roots = {id(tensor._alias[0]): look(tensor).root for tensor in written if tensor._alias}
    if all(is_alone(tensor) for tensor in written):
        return []
    numbers = {id(tensor) for tensor in written}
    found: list[Tensor] = []
    for tensor in living():
        if tensor._alias is not None and id(tensor) not in numbers:
            root = roots.get(id(tensor._alias[0]))
            if root is not None:
                show(tensor, look(tensor), root)
                found.append(tensor)
    return found


def set_aside(leaves: set[UOp], but: set[int]) -> None:
    """Give every live tensor that needs the memory of `leaves` its value elsewhere, except the
    tensors numbered in `but`.
    """
    others = [tensor for tensor in living() if id(tensor) not in but]
    needing = set(readers_of(leaves, [tensor.uop for tensor in others]))
    waiting: list[Tensor] = []
    for tensor in others:
        if tensor.uop not in needing:
            continue
        if not memory.is_stored(tensor.uop):
            waiting.append(tensor)
        else:
            copy = UOp(Ops.CONTIGUOUS, tensor.dtype, (tensor.uop,))
            (copied,) = running.run([copy], tensor._variables)
            hold(tensor, copied, is_computed=True)
    if waiting:
        settle(waiting)
