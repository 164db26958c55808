"""From a watched run to a capture: inputs, results and effects of a replay."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from tilegrad.base.errors import CaptureError
from tilegrad.capture.access_paths import AccessPath
from tilegrad.capture.call_code import compile_call
from tilegrad.capture.entry import Effect, Entry, Server, SetGradient, SetMemory
from tilegrad.capture.graph import Replay
from tilegrad.capture.guards import Check, is_value, snapshot
from tilegrad.capture.inputs import Input, is_readable, layout, settle
from tilegrad.capture.modes import CaptureModes
from tilegrad.capture.packs import pack_steps
from tilegrad.capture.record import Before, Run, tensors_in
from tilegrad.capture.results import (
    Build,
    InputTensor,
    MadeTensor,
    Output,
    TensorSignature,
    builder,
)
from tilegrad.capture.slots import Draws, Slots
from tilegrad.device.disk import is_file
from tilegrad.engine.run.group_memory import groups_of
from tilegrad.engine.run.leaf_memory import buffer_of, is_overwritten
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import nodes_of
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.runtime.group_buffer import GroupBuffer
from tilegrad.tensor.handle.aliases import Away, is_alone, is_contiguous, look, same_storage, shared
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables, merge, multiply
from tilegrad.tensor.storage import memory
from tilegrad.tensor.tensor import Tensor

__all__ = ["Again", "Builder"]


class Again(Exception):
    """The run was right, but is no capture: its state was not yet as it will be."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class Builder:
    """Makes an Entry of a run that was given `args` and `kwargs`."""

    def __init__(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.run = run
        self.guards = run.guards
        self.arguments = (args, kwargs)
        self.vanishing: list[str] = []
        self.targets: dict[Hashable, AccessPath] = {}
        self.touched = {id(buffer): buffer for launch in run.record for buffer in launch.buffers}
        # Memory of several devices: launches know its shards.
        groups: Any = groups_of(self.touched)
        self.groups: list[GroupBuffer] = groups
        self.touched |= {id(group): group for group in groups}
        self.symbols: Variables = NO_VARIABLES
        # The entry is made last; builders of results look it up here.
        self.entry: list[Entry] = []
        self.outputs: dict[int, tuple[Buffer, list[TensorSignature]]] = {}
        self.made: list[tuple[TensorSignature, int, int]] = []
        self.leaves: dict[int, UOp] = {}
        self.viewed: set[int] = set()
        # The shapes of results that have memory of their own.
        self.shapes: set[tuple[Any, ...]] = set()
        # How inputs have to look at their storage: the root's shape, and the moves.
        self.looks: dict[int, tuple[Any, ...]] = {}
        self.cleared: list[int] = []
        self._made_of: dict[int, int] = {}
        # Values that are made, by number, and their paths, for each storage.
        self.aliases: dict[int, list[tuple[int, Away]]] = {}

    def build(self, modes: tuple[object, ...], *, is_reused: bool) -> tuple[Server, Entry]:
        """The server of calls in `modes`, and its capture.

        Raises CaptureError if there can be none, Again if the next call may make one.
        """
        run = self.run
        if not run.record:
            raise CaptureError(
                f"jit: {run.name} didn't JIT anything",
                reason="it launched no kernel and no copy: it gives back what it was given",
                remedy="capture a function that computes with its tensors",
            )
        self._check_files()
        self._check_state()
        self._check_values()
        self._forget_gradients()
        self._hold_state()
        self._guard_gradients()
        for node in self.guards.symbols:
            self.symbols = merge(self.symbols, node.unbound()[1])
        for tensor in self.guards.tensors:
            self.symbols = merge(self.symbols, tensor._variables)
        effects = self._effects()
        build = self._builder(run.result, run.name)
        return self._assemble(modes, build, effects, is_reused)

    def _check_files(self) -> None:
        """A file that the run opened is another one at the next call if its name is given to
        another; a replay would go on with the first.
        """
        run = self.run
        for key, buffer in self.touched.items():
            if is_file(buffer.device) and not {key, id(buffer.base)} & run.older.keys():
                raise CaptureError(
                    f"jit: {run.name} opens {buffer.device}, which a replay would not",
                    remedy="make the tensor of the file outside, and pass it or what it holds",
                )

    # state, and changes

    def _check_state(self) -> None:
        """All state must have been in memory before the run: a replay computes none."""
        run = self.run
        for number, tensor in enumerate(self.guards.tensors):
            known = run.known(tensor)
            if number >= run.given and known is not None and not known.is_stored:
                if not known.uop.is_constant:
                    raise Again(f"{self.guards.paths[number][0].label} was still to be computed")
        for number in run.copied:
            if any(tensor is self.guards.tensors[number] for tensor in run.changed):
                # The next run takes it as it is.
                run.hints.in_place.add(number)
                raise Again(f"{self.guards.paths[number][0].label} is a view that is written to")
        for tensor in run.replaced:
            if not is_alone(tensor):
                raise Again("a tensor that it writes to had views in memory of their own")
        for tensor in run.changed:
            if not run.before[id(tensor)].is_stored and memory.is_stored(tensor.uop):
                raise Again("a tensor that it uses got its memory in the call")

    def _check_values(self) -> None:
        """Compare the value of every path with the one before.

        A plain value that the function changes is a side effect: it does not happen in replays, and
        the guard expects what the capture left. A tensor in place of another is set by each replay.
        """
        for check in list(self.guards.checks):
            if check.test in ("call", "symbol"):
                continue
            if check.path.is_argument:
                if check.holds(*self.arguments):
                    continue
                if check.path.is_attribute:
                    self._changed(check)
                else:
                    raise CaptureError(
                        f"jit: {self.run.name} changes its argument {check.path.label}",
                        remedy="return the new value instead, or assign to tensors in place",
                    )
            elif not check.holds():
                self._changed(check)
        for path in self.run.reads.written.values():
            if not self.guards.knows(path):
                if any(self.run.known(tensor) is None for tensor in tensors_in(path.peek())):
                    self.targets[path.identity] = path

    def _changed(self, check: Check) -> None:
        path = check.path
        value = path.peek(*self.arguments)
        if check.test == "tensor" and isinstance(value, Tensor):
            if path.is_argument:
                # The object is held since it was assigned to, and that path is among the written.
                return
            while isinstance(path.holder, AccessPath) and isinstance(path.holder.peek(), tuple):
                path = path.holder
            self.targets[path.identity] = path
        elif check.test == "same" and is_value(value):
            check.expected = snapshot(value)
            self.vanishing.append(path.label)
        elif check.test == "is":
            raise CaptureError(
                f"jit: {self.run.name} replaces {path.label}, which a replay would not",
                remedy="replace it outside",
            )
        else:
            raise Again(f"{path.label} is another kind of value after the call")

    # inputs

    def _forget_gradients(self) -> None:
        """A gradient that the run dropped unread is no input: only its presence counts. So a replay
        may write the next one to its memory, rather than beside it.
        """
        run = self.run
        paths = [path.peek() for path in run.reads.written.values()]
        returned = {id(tensor) for tensor in tensors_in([run.result, paths])}
        for tensor in run.regraded:
            grad = run.before[id(tensor)].grad
            old = None if grad is None else grad()
            number = None if old is None else self.guards.number_of(old)
            if old is None or number is None or number < run.given or id(old) in returned:
                continue
            known = run.known(old)
            if known is not None and known.is_stored and id(known.memory) not in self.touched:
                self.guards.weaken(old)

    def _hold_state(self) -> None:
        """Find the tensors behind older memory that no path is known to."""
        run = self.run
        located = {
            id(known.memory)
            for tensor in self.guards.tensors
            if (known := run.known(tensor)) is not None and known.memory is not None
        }
        written = {id(tensor) for tensor in run.overwritten}
        for number, known in list(run.before.items()):
            if id(known.memory) not in self.touched:
                continue
            tensor = known.reference()
            if tensor is None:
                tensor = self._lost_gradient(number, known)
            if tensor is None:
                continue
            is_alias = id(known.memory) in located and not is_alone(tensor)
            if (id(tensor) in written and not is_alias) or id(known.memory) not in located:
                located.add(id(known.memory))
                self._hold(tensor)
        self._check_lazy(located)

    def _lost_gradient(self, number: int, known: Before) -> Tensor | None:
        """A tensor instead of one that was a gradient before the run, and was dropped by it."""
        for owner in list(self.run.before.values()):
            tensor = owner.reference()
            if owner.grad_id == number and tensor is not None:
                lost = tensor._of(known.uop, tensor.device, tensor._variables, False)
                self.run.before[id(lost)] = replace(known, reference=weakref.ref(lost))
                path = self.guards.paths[self._hold(tensor)][0].attribute("grad")
                self.guards.expand(path, lost)
                return lost
        return None

    def _check_lazy(self, located: set[int]) -> None:
        """Older memory of no stored tensor: is it below one that is still to be computed?"""
        for key, buffer in self.touched.items():
            if key not in self.run.older or key in located or buffer.device == "HOST":
                continue
            waiting = [
                each
                for known in self.run.before.values()
                if _waits_on(known, buffer) and (each := known.reference()) is not None
            ]
            if waiting:
                settle(waiting)
                raise Again("a tensor that it uses was still to be computed")

    def _hold(self, tensor: Tensor) -> int:
        """The input's number of an older tensor."""
        found = self.guards.number_of(tensor)
        if found is not None:
            return found
        for known in self.run.before.values():
            owner = known.reference()
            if owner is not None and known.grad is not None and known.grad() is tensor:
                path = self.guards.paths[self._hold(owner)][0].attribute("grad")
                self.guards.expand(path, tensor)
                break
        return self.guards.hold(tensor, "a tensor")

    def _guard_gradients(self) -> None:
        """Whether there was a gradient before shapes the run."""
        for tensor in self.run.regraded:
            known = self.run.before[id(tensor)]
            path = self.guards.paths[self._hold(tensor)][0].attribute("grad")
            if not self.guards.knows(path):
                if known.grad is None:
                    self.guards.expand(path, None)
                else:
                    self.guards.checks.append(Check(path, "some", None))

    def _inputs(self) -> tuple[list[Input], dict[int, int]]:
        """The inputs, and the slots of their memory."""
        run = self.run
        found: list[Input] = []
        written = {id(tensor) for tensor in run.overwritten}
        slots: dict[int, int] = {}
        for number, tensor in enumerate(self.guards.tensors):
            known = run.known(tensor)
            assert known is not None
            label = self.guards.paths[number][0].label
            signature, _ = TensorSignature.of(tensor, self.symbols, known.uop)
            each = Input(label, signature, known.uop.shape, is_argument=number < run.given)
            each.is_viewed, each.look = number in self.viewed, self.looks.get(number)
            if each.is_viewed or self._may_be_reshaped(each.shape):
                each.is_contiguous = is_contiguous(tensor)
            each.is_written = id(tensor) in written
            if known.memory is None:
                if known.uop.is_constant and tensor._has_elements():
                    each.kind, each.node = "graph", known.uop
            elif id(known.memory) in self.touched or each.is_viewed:
                each.kind, each.layout = "memory", layout(known.uop)
                each.is_slice = not is_readable(known.uop)
                each.slot = slots.setdefault(id(known.memory), len(slots))
            found.append(each)
        return found, slots

    def _may_be_reshaped(self, shape: tuple[Any, ...]) -> bool:
        """Whether a result may be the copy that a reshape made of an input."""
        size = multiply(shape)
        return any(each != shape and multiply(each) == size for each in self.shapes)

    def _steady(self, inputs: Sequence[Input]) -> dict[int, int]:
        """The slots of state that may be packed beforehand, and its bytes: no argument stands
        there, and nothing has written it, neither since the last call nor in this one.
        """
        found: dict[int, int] = {}
        arguments = {each.slot for each in inputs if each.is_argument}
        for each, tensor in zip(inputs, self.guards.tensors, strict=True):
            known = self.run.known(tensor)
            if each.slot >= 0 and each.slot not in arguments and known is not None:
                if known.memory is not None and self.run.is_steady(known.memory):
                    found[each.slot] = known.memory.nbytes
        return found

    # results and effects of a replay

    def _builder(self, value: Any, where: str) -> Build:
        def is_known(value: Any) -> bool:
            return isinstance(value, type) or callable(value) or self.run.reads.is_reached(value)

        return builder(value, self._give, is_known, where)

    def _give(self, tensor: Tensor) -> Build:
        if self.run.known(tensor) is None:
            return self._make(tensor)
        number = self._hold(tensor)
        return InputTensor(number)

    def _make(self, tensor: Tensor) -> Build:
        """How a replay makes a tensor that is as `tensor` is after the run."""
        if not memory.is_stored(tensor.uop):
            return self._constant(tensor)
        signature, node = TensorSignature.of(tensor, self.symbols)
        buffer = buffer_of(node)
        for number, each in enumerate(self.guards.tensors):
            known = self.run.known(each)
            if known is not None and known.memory is buffer:
                return self._view(tensor, signature, number)
        if id(buffer) in self.run.older or id(buffer) not in self.touched:
            return self._constant(tensor)
        found = self._made_of.get(id(tensor))
        if found is None:
            self.shapes.add(tensor.uop.shape)
            self.leaves[id(buffer)] = node
            signatures = self.outputs.setdefault(id(buffer), (buffer, []))[1]
            signatures.append(signature)
            found = self._made_of[id(tensor)] = len(self.made)
            if tensor._alias is not None:
                _, shape, moves = look(tensor)
                group = self.aliases.setdefault(id(tensor._alias[0]), [])
                group.append((found, Away(shape, moves)))
            self.made.append((signature, list(self.outputs).index(id(buffer)), len(signatures) - 1))
        return MadeTensor(found)

    def _view(self, tensor: Tensor, signature: TensorSignature, number: int) -> Build:
        """A tensor over the memory of an input."""
        self.viewed.add(number)
        entry, viewed = self.entry, self.guards.tensors[number]
        is_alias = same_storage(tensor, viewed)
        own, moves = look(viewed), look(tensor).moves
        if is_alias and moves[: len(own.moves)] != own.moves:
            # Moves that are one with those before: the next input has to look as this one does.
            self.looks[number] = own.shape, own.moves
        behind = moves[len(own.moves) :]

        def build(made: Sequence[Tensor], given: Sequence[Tensor]) -> Tensor:
            node = entry[0].inputs[number].staging.node or given[number].uop
            view = signature.tensor(signature.over(memory.base_of(node)), entry[0].values)
            if is_alias:
                storage, _ = shared(given[number])
                if number in self.looks:
                    view._alias = storage, Away(own.shape, moves)
                else:
                    now = look(given[number])
                    view._alias = storage, Away(now.shape, (*now.moves, *behind))
            return view

        return build

    def _constant(self, tensor: Tensor) -> Build:
        """A tensor that is the same at each call; an assignment to it must take other memory."""
        node, device, variables = tensor.uop, tensor.device, tensor._variables
        kind, requires_grad = type(tensor), tensor._requires_grad

        def build(made: Sequence[Tensor], given: Sequence[Tensor]) -> Tensor:
            same = kind._of(node, device, variables, requires_grad)
            same._is_shared = True
            return same

        return build

    def _effects(self) -> list[Effect]:
        """State that a replay sets: paths, gradients, and tensors that take other memory."""
        run = self.run
        found = [
            _set_path(path, self._builder(path.peek(), path.label))
            for path in self.targets.values()
        ]
        for tensor in run.regraded:
            number = self._hold(tensor)
            grad = run.before[id(tensor)].grad
            before = None if grad is None else grad()
            if before is None or self.guards.number_of(before) is None:
                self.cleared.append(number)
            found.append(SetGradient(number, self._builder(tensor.grad, "grad")))
        for tensor in run.replaced:
            found.append(SetMemory(self._hold(tensor), self._make(tensor)))
        return found

    # all together

    def _assemble(
        self, modes: tuple[object, ...], build: Build, effects: list[Effect], is_reused: bool
    ) -> tuple[Server, Entry]:
        run = self.run
        inputs, slots = self._inputs()
        table = Slots(slots, self.touched, run.older, set(self.outputs), self.groups)
        (seed, start), (_, end) = run.drawn
        draws = Draws(seed, start, end)
        symbols = {variable.name for variable in self.symbols}
        steps = [table.step(launch, draws, symbols) for launch in run.record]
        packed, packs = pack_steps(steps, self._steady(inputs), len(table.number))
        program = Replay(packed, run.given, packs, steps, table.members)
        for slot, buffer in table.fixed.items():
            program.set_buffer(slot, buffer)
        entry = Entry(
            guards=self.guards,
            modes=CaptureModes(modes),
            inputs=inputs,
            program=program,
            outputs=[
                Output(table.number[key], buffer, signatures, self.leaves[key], is_reused=is_reused)
                for key, (buffer, signatures) in self.outputs.items()
            ],
            made=self.made,
            aliases=[group for group in self.aliases.values() if len(group) > 1],
            build=build,
            effects=effects,
            draws=draws,
            symbols=[node.unbound()[0] for node in self.guards.symbols],
            asked={key: value for key, value in self.symbols.items() if key in run.reads.asked},
            slices=list(dict.fromkeys(run.record.slices)),
            leftovers=table.temporary,
            cleared=self.cleared,
            vanishing=self.vanishing,
            block_bytes=table.block_bytes,
        )
        self.entry.append(entry)
        serve = compile_call(entry)
        self.guards.release()
        return serve, entry


def _waits_on(known: Before, buffer: Buffer) -> bool:
    if known.is_stored or known.uop.is_constant:
        return False
    leaves = nodes_of(known.uop, Ops.BUFFER)
    return any(not is_overwritten(node) and buffer_of(node) is buffer for node in leaves)


def _set_path(path: AccessPath, build: Build) -> Effect:
    def effect(made: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        path.set(build(made, given))

    return effect
