"""One watched run of a function: its arguments, reads, launches, and changes.

The first call of a function is watched too, though nothing of it is kept: what it reads and has yet
to be computed is computed after it, so that the captured call finds all its state in memory.
"""

from __future__ import annotations

import hashlib
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tilegrad.base.collection import no_collection
from tilegrad.base.errors import CaptureError
from tilegrad.base.origin import call_site, method_names
from tilegrad.base.tracers import install_tracer
from tilegrad.capture.access_paths import AccessPath
from tilegrad.capture.entry import aliases_of, set_aside
from tilegrad.capture.inputs import Staging, is_waiting, living, settle
from tilegrad.capture.watch import Watch
from tilegrad.engine.realize.realize import realized
from tilegrad.engine.run.group_memory import groups_of
from tilegrad.engine.run.leaf_memory import buffer_of, buffers, is_overwritten
from tilegrad.engine.run.run import Recording, recording
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, toposort
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.aliases import Alias, hold
from tilegrad.tensor.handle.living import Owner, owners
from tilegrad.tensor.indexing.generator import generator
from tilegrad.tensor.storage import memory, running
from tilegrad.tensor.tensor import Tensor

__all__ = ["Before", "Hints", "Run", "tensors_in"]


@dataclass(frozen=True)
class Before:
    """A tensor as it was before the run; `memory` and `leaf` only if it was stored.

    It is referred to weakly: what the function drops must not live on as a reader of old values.
    """

    reference: weakref.ref[Tensor]
    uop: UOp
    memory: Buffer | None
    leaf: UOp | None
    grad: weakref.ref[Tensor] | None
    grad_id: int = 0

    @property
    def is_stored(self) -> bool:
        return self.memory is not None

    @property
    def is_used_by_graphs(self) -> bool:
        """Whether who uses the node uses this tensor: equal constants are one node."""
        tensor = self.reference()
        return not self.uop.is_constant or (tensor is not None and bool(tensor._requires_grad))


@dataclass
class Hints:
    """Hints of one run of a function for the next.

    Attributes:
        paths: those of the tensors that it read.
        changed: older tensors that have another value since.
        in_place: arguments, by number, that are views and are written to.
        state: older tensors that it read, or that stood on memory that it used.
        versions: the versions of its state when it ended.
        fingerprint: the kernels it ran, in order.
        reason: why it was not kept, `tries` times in a row.
    """

    paths: list[AccessPath] = field(default_factory=list)
    changed: list[weakref.ref[Tensor]] = field(default_factory=list)
    in_place: set[int] = field(default_factory=set)
    state: list[weakref.ref[Tensor]] = field(default_factory=list)
    versions: weakref.WeakKeyDictionary[Buffer, int] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    fingerprint: object = None
    reason: str = ""
    tries: int = 0


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a structure of lists, tuples and dicts."""
    stack = [value]
    # By identity, held lest another one takes it: a container may be in itself.
    seen: dict[int, Any] = {}
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen[id(value)] = value
            stack.extend(reversed(value.values() if isinstance(value, dict) else value))


def _random_state() -> object:
    """Where the generators of Python and NumPy are."""
    # Through an import, which waits for another thread that imports it just now.
    numpy = import_module("numpy.random") if "numpy.random" in sys.modules else None
    state = numpy.get_state(legacy=False)["state"] if numpy is not None else None
    return random.getstate(), None if state is None else (state["pos"], state["key"].tobytes())


def _digest(buffer: Buffer) -> bytes:
    view = buffer.host_view() if buffer.is_allocated else None
    return b"" if view is None else hashlib.blake2b(view, digest_size=16).digest()


class Run:
    """One watched run. `is_captured` if it is to become a capture. A step that cannot be replayed
    raises CaptureError where the run `is_strict`; else it is noted, and the run goes on to its end.

    Attributes:
        before: every tensor that was alive before, by its id.
        older: memory that was there before, by its id.
        record: the launches.
        given: how many of the inputs are arguments.
        copied: arguments that are slices of other tensors, and stood for copies meanwhile.
        result: the function's result.
        changed: tensors older than the run that have another node now.
        overwritten: those of them whose memory was written to in place.
        replaced: those that took other memory; not those that were given a copy because their
            memory was written to.
        regraded: tensors older than the run whose gradient is another one now.
        drawn: seed and position in the stream of random words, before and after.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        is_captured: bool,
        hints: Hints,
        *,
        is_strict: bool = True,
    ):
        self.name = name
        self.is_strict = is_strict
        self.function = function
        self.is_captured = is_captured
        self.hints = hints
        self.before: dict[int, Before] = {}
        self.older: dict[int, Buffer] = {}
        self.record = Recording(None, is_closed=False)
        self.reads = Watch(self._is_input)
        self.guards = self.reads.guards
        self.given = 0
        self.copied: set[int] = set()
        self.result: Any = None
        self.changed: list[Tensor] = []
        self.overwritten: list[Tensor] = []
        self.replaced: list[Tensor] = []
        self.regraded: list[Tensor] = []
        self.drawn: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
        # State as the last call left it.
        self._versions = hints.versions
        self._replaced: list[tuple[Tensor, UOp, Alias | None, UOp]] = []
        self._is_started = False

    def _is_input(self, tensor: Tensor) -> bool:
        return not self._is_started or self.known(tensor) is not None

    def known(self, tensor: Tensor) -> Before | None:
        """How a tensor was before the run; None if it is younger."""
        found = self.before.get(id(tensor))
        return found if found is not None and found.reference() is tensor else None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> None:
        """Call the function. Its exceptions go through, and nothing is left of the watching."""
        self.guards.arguments(args, kwargs, names)
        self.given = len(self.guards.tensors)
        self.reads.reach(self.function)
        try:
            self._prepare()
            with recording(
                self._refuse_read if self.is_captured else None, is_closed=self.is_captured
            ) as record:
                self.record = record
                record.is_of_capture = True
                self._call(args, kwargs)
                self._settle()
        finally:
            for tensor, original, alias, temporary in self._replaced:
                if tensor.uop is temporary:
                    tensor.uop, tensor._alias = original, alias

    def release(self) -> None:
        """Release the watched objects, so that their memory is free now, not when Python next
        collects cycles. Only the checks of the guards stay.
        """
        self.reads.release()
        self.guards.release()
        self.before, self.older, self._replaced = {}, {}, []
        self.record.on_read = None
        self.record.clear()

    # before

    def _prepare(self) -> None:
        """Bring arguments and state to memory, and note how everything stands."""
        if self.is_captured:
            self._prepare_state()
        self._prepare_arguments()
        for tensor in living():
            node = tensor.uop
            leaf = memory.base_of(node) if memory.is_stored(node) else None
            is_current = leaf is not None and not is_overwritten(leaf)
            self.before[id(tensor)] = Before(
                weakref.ref(tensor),
                node,
                buffer_of(leaf) if leaf is not None and is_current else None,
                leaf if is_current else None,
                None if tensor.grad is None else weakref.ref(tensor.grad),
                0 if tensor.grad is None else id(tensor.grad),
            )
        self.older = {id(buffer): buffer for buffer in buffers()}
        self._is_started = True

    def _prepare_state(self) -> None:
        waiting: list[Tensor] = []
        for path in self.hints.paths:
            value = path.peek()
            if isinstance(value, Tensor) and is_waiting(value):
                waiting.append(value)
        changed = [found for each in self.hints.changed if (found := each()) is not None]
        state = [found for each in self.hints.state if (found := each()) is not None]
        for tensor in [*changed, *state]:
            # Computed along with others: its node knows, the tensor does not.
            if not memory.is_stored(tensor.uop) and realized(tensor.uop) is not None:
                waiting.append(tensor)
        settle(waiting)
        settle([tensor for tensor in changed if is_waiting(tensor)])
        stored = [tensor for tensor in changed if memory.is_stored(tensor.uop)]
        for tensor in stored:
            if tensor._is_shared:
                # It will be written to, and take memory of its own then.
                own = memory.owned(tensor.uop, tensor.device)
                (node,) = running.run([own], tensor._variables)
                hold(tensor, node, is_computed=True)
                tensor._is_shared = False
            tensor._bring_together()
        if stored:
            leaves = {memory.base_of(tensor.uop) for tensor in stored}
            set_aside(leaves, {id(tensor) for tensor in [*stored, *aliases_of(stored)]})

    def _prepare_arguments(self) -> None:
        waiting: dict[int, Tensor] = {}
        for number, tensor in enumerate(self.guards.tensors):
            if tensor._has_elements() and not self._stage(number, tensor):
                if not memory.is_stored(tensor.uop):
                    waiting[number] = tensor
        settle(list(waiting.values()))
        for number, tensor in waiting.items():
            # The base was computed; the tensor may be a slice of it.
            self._stage(number, tensor)

    def _stage(self, number: int, tensor: Tensor) -> bool:
        """Let an argument stand for a copy in memory of its own, if a replay would make one."""
        staging = Staging()
        is_view = memory.is_stored(tensor.uop)
        if is_view and (not self.is_captured or number in self.hints.in_place):
            return False
        buffer = staging.fill(tensor, is_fresh=True)
        if buffer is None or staging.node is None:
            return False
        if is_view:
            self.copied.add(number)
        self._replaced.append((tensor, tensor.uop, tensor._alias, staging.node))
        hold(tensor, staging.node, is_computed=True)
        # Another tensor of the same value that is written to takes memory of its own.
        owners[memory.base_of(staging.node)] = Owner(tensor)
        return True

    # the call

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        outer = sys.gettrace()
        noise = _random_state()
        start = (generator.seed, generator.drawn)
        self.record.tracer = self.reads
        # A collection runs finalizers and callbacks of others: what they read is not this call's.
        with no_collection():
            install_tracer(self.reads)
            try:
                self.result = self.function(*args, **kwargs)
            finally:
                is_ours = sys.gettrace() is self.reads
                install_tracer(outer)
                self.record.tracer = None
        self.drawn = (start, (generator.seed, generator.drawn))
        if self.is_captured:
            try:
                self._check_surroundings(is_ours, noise)
            except CaptureError as error:
                self.refuse(error)

    def refuse(self, error: CaptureError) -> None:
        """Raise `error`, or note it as the reason why this run becomes no capture."""
        if self.is_strict:
            raise error
        self.reads.reads.uncovered(str(error).partition("\n")[0])

    def _check_surroundings(self, is_ours: bool, noise: object) -> None:
        """Raise CaptureError for events beside the graph: a replay would lack them."""
        if self.guards.refusal is not None:
            raise self.guards.refusal
        if not is_ours:
            raise CaptureError(
                f"jit: {self.name} sets a trace function (sys.settrace) while it is captured",
                remedy="start debuggers and coverage outside of it, or turn capturing off: JIT=0",
            )
        # Another thread may have drawn meanwhile; a draw of this one is a call that was seen.
        if self.reads.reason and _random_state() != noise:
            raise CaptureError(
                f"jit: {self.name} draws from the generator of Python or NumPy, which a replay "
                "would not",
                remedy="draw with Tensor.rand and the like, or draw outside and pass the number",
            )
        if self.reads.is_seeded or self.drawn[0][0] != self.drawn[1][0]:
            raise CaptureError(
                f"jit: {self.name} calls manual_seed, which a replay would not",
                remedy="call it outside",
            )

    def _refuse_read(self, node: UOp) -> None:
        names = method_names([call_site()])
        self.refuse(
            CaptureError(
                f"jit: {names[0] if names else 'a read'} needs a value while {self.name} is "
                "captured",
                rule="a replay runs kernels only, and would not come by here",
                remedy="return the tensor and read it outside, or compute with the tensor itself "
                "(where, maximum, ...)",
            )
        )

    # after

    def _settle(self) -> None:
        """Compute the results of the call, the values it left in state, and those it read."""
        found: list[Tensor] = []
        for tensor in tensors_in(self.result):
            known = self.known(tensor)
            if known is None or tensor.uop is not known.uop:
                found.append(tensor)
        for path in self.reads.written.values():
            tensors = tensors_in(path.peek())
            found.extend(tensor for tensor in tensors if self.known(tensor) is None)
        for check in self.guards.checks:
            if check.test == "tensor" and not check.path.is_argument and not check.holds():
                found.extend(tensors_in(check.path.peek()))
        self._compare()
        found.extend(self.changed)
        found.extend(tensor.grad for tensor in self.regraded if tensor.grad is not None)
        for tensor in self.guards.tensors[self.given :]:
            if is_waiting(tensor):
                found.append(tensor)
        settle(found)
        self._compare()
        self.hints.versions = weakref.WeakKeyDictionary()
        for tensor in self.guards.tensors[self.given :]:
            if memory.is_stored(tensor.uop) and not is_overwritten(memory.base_of(tensor.uop)):
                buffer = buffer_of(memory.base_of(tensor.uop))
                self.hints.versions[buffer] = buffer.watch()
        self.hints.changed = [weakref.ref(tensor) for tensor in self.changed]
        self.hints.state = [self.before[key].reference for key in self._own()]
        self.hints.paths = [
            path for paths in self.guards.paths for path in paths if not path.is_argument
        ]

    def is_steady(self, buffer: Buffer) -> bool:
        """Whether nothing has written the memory from the last call to the end of this one, nor can
        do so unseen.
        """
        return buffer.is_private and self._versions.get(buffer) == buffer.version

    def fingerprint(self) -> object:
        """The steps of the run, and the numbers that it brought from Python: equal for two runs
        that do the same.
        """
        older = {id(known.memory) for known in self.before.values()}
        numbers: dict[int, int] = {}
        steps = []
        for launch in self.record:
            key = launch.kernel.key if launch.kernel is not None else launch.device
            operands = tuple(
                [numbers.setdefault(id(each), len(numbers)) for each in launch.buffers]
            )
            brought = [
                _digest(each)
                for each in launch.buffers[1:]
                if launch.kernel is None and each.device == "HOST" and id(each) not in older
            ]
            steps.append((key, operands, brought))
        return steps

    def _own(self) -> list[int]:
        """The older tensors that the run may have changed: those that it has read, their sources,
        and tensors over memory that it used. Other threads change others. They are in the order in
        which they were read: what two equal runs compute at their end, they compute in one order.
        """
        read = [known.uop for tensor in self.guards.tensors if (known := self.known(tensor))]
        nodes = set(toposort(read))
        memories = {id(buffer) for launch in self.record for buffer in launch.buffers}
        memories |= {id(group) for group in groups_of(memories)}
        for node in nodes:
            if node.op is Ops.BUFFER and not is_overwritten(node):
                memories.add(id(buffer_of(node)))
        own = {id(tensor) for tensor in self.guards.tensors if self.known(tensor)}
        for key, known in self.before.items():
            if known.memory is not None:
                if id(known.memory) in memories:
                    own.add(key)
            elif known.uop in nodes and known.is_used_by_graphs:
                own.add(key)
        read_as = {id(tensor): number for number, tensor in enumerate(self.guards.tensors)}
        return sorted(
            filter(own.__contains__, self.before), key=lambda key: read_as.get(key, 1 << 30)
        )

    def _compare(self) -> None:
        """Find the older tensors that are not as they were."""
        own = self._own()
        self.changed, self.overwritten, self.replaced, self.regraded = [], [], [], []
        for key in own:
            known = self.before[key]
            tensor = known.reference()
            if tensor is None:
                continue
            if tensor.grad is not (None if known.grad is None else known.grad()):
                self.regraded.append(tensor)
            if tensor.uop is known.uop:
                continue
            self.changed.append(tensor)
            if known.leaf is not None and memory.is_stored(tensor.uop):
                is_same = buffer_of(memory.base_of(tensor.uop)) is known.memory
                if is_same and is_overwritten(known.leaf):
                    self.overwritten.append(tensor)
                elif not is_same and not is_overwritten(known.leaf):
                    self.replaced.append(tensor)
