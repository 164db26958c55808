"""Results of a captured function: tensors over memory that a replay writes.

A call's tensors must not change when the function is called again. So a replay writes memory that
no other tensor reads: the memory of an earlier call if all tensors over it are gone, else new
memory. Reference counts of the nodes tell whether they are gone, as a tensor holds its node, and a
node its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

from tilegrad.base.dtype import DType
from tilegrad.base.errors import CaptureError
from tilegrad.base.references import ONE_ATTRIBUTE
from tilegrad.capture.guards import is_plain
from tilegrad.device.registry import Device
from tilegrad.engine.run.group_memory import like
from tilegrad.engine.run.leaf_memory import buffer_of, is_overwritten, leaf
from tilegrad.ir.op import Ops
from tilegrad.ir.placement import GroupBufferArg
from tilegrad.ir.uop import UOp
from tilegrad.runtime.buffer import Buffer
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES, Variables
from tilegrad.tensor.storage.graphs import replayed
from tilegrad.tensor.tensor import Tensor

__all__ = [
    "Build", "Cell", "InputTensor", "Items", "MadeTensor", "Output", "Same", "TensorSignature",
    "builder",
]  # fmt: skip

Build = Callable[[Sequence[Tensor], Sequence[Tensor]], Any]
"""Makes a value of the tensors that a replay made, and of its inputs."""


@dataclass(frozen=True)
class TensorSignature:
    """A tensor but for its memory: how it looks at a leaf (`steps`, from the leaf upward), and the
    handle's flags.
    """

    kind: type[Tensor]
    steps: tuple[tuple[Ops, Any], ...]
    dtype: DType
    device: str
    requires_grad: bool | None
    is_leaf: bool
    variables: tuple[UOp, ...]
    constants: tuple[tuple[UOp, int], ...]

    @staticmethod
    def of(
        tensor: Tensor, symbols: Mapping[UOp, int], node: UOp | None = None
    ) -> tuple[TensorSignature, UOp]:
        """The signature of a tensor (with `node` in it), and its leaf, if it is stored. Those of
        its variables that are in `symbols` take a value at each replay.
        """
        steps: list[tuple[Ops, Any]] = []
        node = node or tensor.uop
        while node.op is not Ops.BUFFER and node.src:
            if node.op is not Ops.DETACH:
                steps.append((node.op, node.arg))
            node = node.src[0]
        free = tuple(variable for variable in tensor._variables if variable in symbols)
        fixed = tuple(
            (key, value) for key, value in tensor._variables.items() if key not in symbols
        )
        signature = TensorSignature(
            type(tensor), tuple(reversed(steps)), tensor.dtype, tensor.device,
            tensor._requires_grad, tensor._is_leaf, free, fixed,
        )  # fmt: skip
        return signature, node

    def over(self, node: UOp) -> UOp:
        """The same look at another leaf."""
        for op, arg in self.steps:
            node = UOp(op, self.dtype, (node,), arg)
        return node

    def tensor(self, node: UOp, values: Mapping[UOp, int]) -> Tensor:
        """A tensor of this signature around `node`."""
        made = object.__new__(self.kind)
        variables: Variables = NO_VARIABLES
        if self.variables or self.constants:
            variables = {key: values[key] for key in self.variables} | dict(self.constants)
        made._set(node, self.device, variables, self.requires_grad, leaf=self.is_leaf)
        return made


class Cell:
    """Memory of one output, with the nodes that tensors over it take.

    Attributes:
        tensor: the result that was made last, of an output that `is_plain`. It is given again once
            no other reference to it is left: to make a tensor takes longer than many a kernel.
        leaf_count, node_count: references to the leaf and the first node while only `tensor` stands
            on them.
    """

    __slots__ = (
        "_count", "_counts", "_views", "buffer", "leaf", "leaf_count", "node", "node_count",
        "nodes", "slot", "tensor",
    )  # fmt: skip

    def __init__(self, make_leaf: Callable[[], UOp], signatures: Sequence[TensorSignature]):
        # No other reference exists while references are counted.
        self.leaf = make_leaf()
        self.buffer = buffer_of(self.leaf)
        self.slot = self.leaf.arg.slot
        if any(each.requires_grad and not each.is_leaf for each in signatures):
            # Who asks for a gradient through it is told.
            replayed.add(self.leaf)
        self.nodes = [signature.over(self.leaf) for signature in signatures]
        self.node = self.nodes[0]
        self.tensor: Tensor | None = None
        self.leaf_count = self.node_count = 0
        self._views = _between(self.nodes, self.leaf)
        self._count = getrefcount(self.leaf)
        self._counts = [getrefcount(node) for node in self._views]

    def is_free(self) -> bool:
        """Whether there is no other reference to one of the nodes, no view of the memory, and no
        write to it from outside.
        """
        # No name for a node here: that would be one more who holds it.
        if getrefcount(self.leaf) != self._count or is_overwritten(self.leaf):
            return False
        if self.buffer._holder is not None and self.buffer.is_lent:
            return False
        views = self._views
        return not views or [getrefcount(node) for node in views] == self._counts

    def make(self, signature: TensorSignature) -> None:
        """Make the tensor of an output that is plain."""
        self.tensor = signature.tensor(self.node, NO_VARIABLES)
        self.leaf_count, self.node_count = getrefcount(self.leaf), getrefcount(self.node)


def _between(nodes: Sequence[UOp], leaf: UOp) -> list[UOp]:
    """The nodes above a leaf, up to `nodes`: a tensor that takes one in the middle changes the
    count of none at the ends.
    """
    found: dict[UOp, None] = {}
    for node in nodes:
        while node is not leaf:
            found[node] = None
            node = node.src[0]
    return list(found)


class Output:
    """Memory that each replay writes anew for tensors of the given signatures.

    Attributes:
        slot: its number in the program.
        pool: the memories made so far; `current` is the one that the program writes.
        is_plain: whether its one tensor may be given again: not one whose node stands on nodes in
            between.
    """

    MOST = 3

    def __init__(
        self,
        slot: int,
        buffer: Buffer,
        signatures: list[TensorSignature],
        group: UOp,
        *,
        is_reused: bool,
    ):
        self.slot = slot
        self.signatures = signatures
        self.pool: list[Cell] = []
        self.current: Cell | None = None
        self._like = (buffer.device, buffer.size, buffer.dtype)
        self._group = like(group) if isinstance(group.arg, GroupBufferArg) else None
        self._is_reused = is_reused
        first = signatures[0]
        self.is_plain = (
            len(signatures) == 1
            and not is_reused
            and len(first.steps) < 2
            and not (first.variables or first.constants)
        )

    def take(self, inputs: Container[int]) -> Cell:
        """Memory that no tensor sees; with reused outputs, the memory of the last call, unless it
        is among the `inputs`.
        """
        for cell in self.pool:
            if cell.is_free():
                for node in cell.nodes:
                    # The tensor that held it is gone: the next one is the only one again.
                    node.holders = None
                return cell
            if self._is_reused and id(cell.buffer) not in inputs:
                return cell
        cell = Cell(self._new, self.signatures)
        self.pool.append(cell)
        if len(self.pool) > self.MOST:
            # The oldest lives as long as its other references.
            del self.pool[0]
        return cell

    def _new(self) -> UOp:
        """A leaf of new memory."""
        if self._group is not None:
            return like(self._group)
        device, size, dtype = self._like
        return leaf(Device[device].buffer(size, dtype))

    def another(self, inputs: Container[int]) -> Cell:
        """Memory that no other tensor sees, with a tensor; for an output that is plain, where no
        tensor that was made before can be given again.
        """
        for cell in self.pool:
            # One that its user dropped, but changed before.
            if cell.tensor is not None and getrefcount(cell.tensor) == ONE_ATTRIBUTE:
                cell.tensor = None
        cell = self.take(inputs)
        cell.make(self.signatures[0])
        return cell


# Builds of the kinds that a replay's code spells out, rather than to call them.


@dataclass(frozen=True)
class MadeTensor:
    """A tensor that a replay makes."""

    number: int

    def __call__(self, made: Sequence[Tensor], given: Sequence[Tensor]) -> Tensor:
        return made[self.number]


@dataclass(frozen=True)
class InputTensor:
    """An input."""

    number: int

    def __call__(self, made: Sequence[Tensor], given: Sequence[Tensor]) -> Tensor:
        return given[self.number]


@dataclass(frozen=True)
class Items:
    """A list or a tuple of values."""

    kind: type
    items: Sequence[Build]

    def __call__(self, made: Sequence[Tensor], given: Sequence[Tensor]) -> Any:
        return self.kind([build(made, given) for build in self.items])


@dataclass(frozen=True)
class Same:
    """A value that is the same at each call."""

    value: Any

    def __call__(self, made: Sequence[Tensor], given: Sequence[Tensor]) -> Any:
        return self.value


def builder(
    value: Any,
    path: Callable[[Tensor], Build],
    is_known: Callable[[Any], bool],
    where: str,
    around: tuple[int, ...] = (),
) -> Build:
    """How to make a structure like `value` again; `path` says it for each tensor. `around` are the
    identities of the containers that `value` lies in.

    Raises CaptureError for what is neither a tensor, a plain value, a container of these, nor an
    object that existed before; and for a container that contains itself.
    """
    if isinstance(value, Tensor):
        return path(value)
    kind = type(value)
    if id(value) in around:
        raise CaptureError(
            f"jit: {where} gives a {kind.__name__} that contains itself, which a replay cannot "
            "make",
            remedy="give what it holds, not the container",
        )
    if isinstance(value, (dict, list, tuple)):
        around = (*around, id(value))
    if isinstance(value, dict):
        builders = {
            key: builder(item, path, is_known, where, around) for key, item in value.items()
        }
        if kind is dict:
            return lambda made, given: {key: make(made, given) for key, make in builders.items()}
        return lambda made, given: kind((key, make(made, given)) for key, make in builders.items())
    if isinstance(value, (list, tuple)):
        items = [builder(build, path, is_known, where, around) for build in value]
        if hasattr(kind, "_fields"):
            return lambda made, given: kind(*[build(made, given) for build in items])
        return Items(kind, items)
    if is_plain(value) or isinstance(value, UOp) or is_known(value):
        return Same(value)
    raise CaptureError(
        f"jit: {where} gives a {kind.__name__}, which a replay cannot make",
        remedy="give tensors, numbers and strings, alone or in lists, tuples and dicts",
    )
