"""The node: an op, a dtype, sources and an argument. Equal means identical.

Every graph, from the user's tensors to the instructions of a kernel, is made of `UOp`s. They are
immutable and interned by weak reference: threads that build the same node get the same object, and
comparing graphs is comparing identities.
"""

from __future__ import annotations

import struct
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, Literal

from tilegrad.base.dtype import DType, Pointer, as_const, dtypes
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.base.trace import counters
from tilegrad.ir.bounds import bounds_of, divisor_of
from tilegrad.ir.node_facts import BoundVariables, constant_of, digest_of, ranges_of, shape_of
from tilegrad.ir.node_methods import Algebra, Fields, show
from tilegrad.ir.op import Axis, Ops
from tilegrad.ir.walks import toposort, unvisited

__all__ = [
    "UOp", "Variable", "alive", "element_of", "interned", "node_count", "pointer_of", "prod",
    "remade", "sint", "toposort",
]  # fmt: skip

Key = tuple[Any, ...]
_table: dict[Key, weakref.ref[UOp]] = {}
# Called as a method of the key of a dead node, without a Python frame: most nodes live only from
# one pass to the next.
_take_out = _table.pop
# The reference to the node of a key, as `remade` has it; it may be dead.
interned = _table.get
# The number of living nodes.
node_count = _table.__len__
_blank = object.__new__
_FLOAT_BITS = struct.Struct("<d")


class UOp(Algebra, BoundVariables, Fields):
    """One node: `UOp(op, dtype, src, arg)`. The same four give the same object.

    >>> (UOp.variable("n", 1, 8) * 2 + 1).vmax
    17
    """

    __slots__ = (
        "__weakref__", "_below", "_bounds", "_digest", "_divisor", "_is_constant", "_ranges",
        "_shape", "_terms", "arg", "dtype", "holders", "kind", "op", "origin", "simple", "src",
        "stored", "users",
    )  # fmt: skip
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    origin: tuple[Any, ...]
    # The result of `simplify` (`ir/rules`) for this node: True for itself, None if unknown.
    simple: UOp | Literal[True] | None
    # [Movement of] the BUFFER that holds the value, once it was computed
    # (`engine.realize.computed_nodes`).
    stored: UOp | None
    # Weak references to the tensors that hold this node (`tensor.handle.living`).
    holders: Any
    # Weak references to the users of this node, or of the memory that it names, once the index of
    # users has this node (`engine.run.users`).
    users: list[weakref.ref[UOp]] | None
    # Its number in the signatures of calls (`tensor.calls.short_signatures`), 0 before the first.
    kind: int
    # All nodes that a kernel's root needs, sources first.
    _below: tuple[UOp, ...]
    # None if unknown. Nearly every tensor node needs these two.
    _shape: tuple[Any, ...] | None
    _is_constant: bool | None
    _bounds: tuple[Any, Any] | None
    _divisor: int
    _ranges: frozenset[UOp] | None
    # Terms of a sum (`ir.rules.sums`), once they were asked for.
    _terms: tuple[Mapping[UOp, int], int] | None
    _digest: bytes

    def __new__(
        cls, op: Ops, dtype: DType = dtypes.void, src: tuple[UOp, ...] = (), arg: Any = None
    ) -> UOp:
        if op is Ops.CONST:
            if (dtype is not dtypes.index or arg.__class__ is not int) and (
                dtype is not dtypes.bool or arg.__class__ is not bool
            ):
                arg = as_const(arg, dtype.scalar)
            key: Key = (0, dtype, _FLOAT_BITS.pack(arg) if dtype.is_float else arg)
        else:
            key = (op.serial, dtype, src, arg, arg.__class__)
        found = _table.get(key)
        if found is not None and (node := found()) is not None:
            return node
        node = _blank(cls)
        node.op = op
        node.dtype = dtype
        node.src = src
        node.arg = arg
        node.origin = ()
        node.simple = None
        node.stored = None
        node.holders = None
        node.users = None
        node._shape = None
        node._is_constant = None
        node._bounds = None
        node._ranges = None
        node._terms = None
        node.kind = 0
        reference = weakref.ref(node, MethodType(_take_out, key))
        if _table.setdefault(key, reference) is reference:
            return node
        # Another thread was first, or it is about to remove a dead node of the same key. Without
        # its reference this node dies and removes nothing.
        del reference
        time.sleep(0)
        return UOp(op, dtype, src, arg)

    def __reduce__(self) -> tuple[Any, ...]:
        # As rows, because pickle recurses node by node, and graphs are deeper than Python's stack.
        number = {node: position for position, node in enumerate(toposort([self]))}
        rows = [
            (node.op, node.dtype, tuple([number[source] for source in node.src]), node.arg)
            for node in number
        ]
        return _of_rows, (rows,)

    def __repr__(self) -> str:
        return show(self)

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: object) -> UOp:
        return self

    # properties

    def _lazy(self, slot: str, compute: Callable[[UOp], Any]) -> Any:
        """The attribute `slot`, computed for all sources that lack it first."""
        stack = [self]
        while True:
            node = stack[-1]
            known = len(stack)
            for source in node.src:
                if getattr(source, slot, None) is None:
                    stack.append(source)
            if len(stack) > known:
                continue
            stack.pop()
            found = getattr(node, slot, None)
            if found is None:
                found = compute(node)
                setattr(node, slot, found)
            if not stack:
                return found

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of a tensor node: integers, or index nodes."""
        found = self._shape
        if found is None:
            # Usually only the sources lack theirs: that needs no stack.
            for source in self.src:
                if source._shape is None:
                    for below in source.src:
                        if below._shape is None:
                            return self._lazy("_shape", _shape_of)  # type: ignore[no-any-return]
                    source._shape = _shape_of(source)
            found = self._shape = _shape_of(self)
        return found

    @property
    def bounds(self) -> tuple[Any, Any]:
        """(smallest, largest) value."""
        found = self._bounds
        if found is None:
            # Passes go from the sources to the root: usually all sources have theirs.
            for source in self.src:
                if source._bounds is None:
                    return self._lazy("_bounds", bounds_of)  # type: ignore[no-any-return]
            found = self._bounds = bounds_of(self)
        return found

    @property
    def vmin(self) -> Any:
        return self.bounds[0]

    @property
    def vmax(self) -> Any:
        return self.bounds[1]

    @property
    def divisor(self) -> int:
        """A constant that divides every value of this integer node."""
        try:
            return self._divisor
        except AttributeError:
            return self._lazy("_divisor", divisor_of)  # type: ignore[no-any-return]

    @property
    def is_constant(self) -> bool:
        """Whether this is made of constants alone, without random words and memory."""
        found = self._is_constant
        return bool(self._lazy("_is_constant", constant_of)) if found is None else found

    @property
    def ranges(self) -> frozenset[UOp]:
        """The ranges around this node: those it needs and that no END has closed."""
        found = self._ranges
        if found is None:
            for source in self.src:
                if source._ranges is None:
                    return self._lazy("_ranges", ranges_of)  # type: ignore[no-any-return]
            found = self._ranges = ranges_of(self)
        return found

    @property
    def key(self) -> bytes:
        """A digest of the graph below, the same in every process."""
        try:
            return self._digest
        except AttributeError:
            return self._lazy("_digest", digest_of)  # type: ignore[no-any-return]

    # walks

    def toposort(self) -> dict[UOp, None]:
        """This node and all it needs, sources first."""
        if self.op is not Ops.SINK or self.arg is None:
            return toposort([self])
        # Every pass walks the kernel: the walk is cached.
        try:
            known = self._below
        except AttributeError:
            found = toposort([self])
            self._below = tuple(found)[:-1]
            return found
        found = dict.fromkeys(known)
        found[self] = None
        return found

    def substitute(self, mapping: Mapping[UOp, UOp]) -> UOp:
        """This graph with each key of `mapping` replaced by its value."""
        if not mapping:
            return self
        done: dict[UOp, UOp] = dict(mapping)
        now = done.__getitem__
        for node in unvisited(self, done):
            src = tuple(map(now, node.src))
            if src == node.src:
                done[node] = node
                continue
            made = done[node] = UOp(node.op, node.dtype, src, node.arg)
            if node.origin and not made.origin:
                made.origin = node.origin
        counters.visits += len(done)
        return done[self]

    def over(self, src: tuple[UOp, ...]) -> UOp:
        """This node over other sources; itself where these are its own."""
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg)

    def replace(self, **changes: Any) -> UOp:
        """An edited copy: `u.replace(arg=3)`."""
        fields = {"op": self.op, "dtype": self.dtype, "src": self.src, "arg": self.arg, **changes}
        return UOp(**fields)

    def set_apart(self) -> None:
        """Let equal nodes that are made from now on be another object, for notes on this one that
        do not concern them.
        """
        key = (self.op.serial, self.dtype, self.src, self.arg, self.arg.__class__)
        found = _table.get(key)
        if found is not None and found() is self:
            # Without its reference it removes nothing as it dies.
            _table.pop(key, None)

    # making nodes

    @staticmethod
    def const(dtype: DType, value: Any) -> UOp:
        """The constant `value`; a node passes through."""
        return value if isinstance(value, UOp) else UOp(Ops.CONST, dtype, (), value)

    @staticmethod
    def range(extent: Any, number: int = 0, axis: Axis = Axis.LOOP) -> UOp:
        """A loop variable 0 <= r < extent."""
        return UOp(Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, extent),), (number, axis))

    @staticmethod
    def variable(name: str, low: int, high: int, dtype: DType = dtypes.index) -> UOp:
        """A symbolic integer between `low` and `high`, both included; a launch gives its value."""
        if not (isinstance(low, int) and isinstance(high, int)) or low > high:
            raise ShapeError(f"variable {name!r}: no integer lies between {low} and {high}")
        return UOp(Ops.DEFINE_VAR, dtype, (), (name, low, high))

    @staticmethod
    def stack(lanes: Iterable[UOp]) -> UOp:
        """The vector of `lanes`."""
        src = tuple(lanes)
        return UOp(Ops.VECTORIZE, src[0].dtype.vec(len(src)), src)

    @staticmethod
    def sink(*effects: UOp, arg: Any = None) -> UOp:
        return UOp(Ops.SINK, dtypes.void, effects, arg)

    def broadcast(self, lanes: int) -> UOp:
        """This scalar in each of `lanes` lanes."""
        if lanes == 1 or self.dtype.lanes == lanes:
            return self
        if self.op is Ops.CONST:
            return UOp(Ops.CONST, self.dtype.vec(lanes), (), self.arg)
        return UOp(Ops.VECTORIZE, self.dtype.vec(lanes), (self,) * lanes)

    def gep(self, *lanes: int) -> UOp:
        """The lanes `lanes` of this vector."""
        if self.op is Ops.VECTORIZE:
            picked = [self.src[lane] for lane in lanes]
            return picked[0] if len(picked) == 1 else UOp.stack(picked)
        if self.op is Ops.CONST:
            return UOp(Ops.CONST, self.dtype.scalar.vec(len(lanes)), (), self.arg)
        if self.dtype.lanes == 1 or lanes == tuple(range(self.dtype.lanes)):
            return self
        return UOp(Ops.GEP, self.dtype.scalar.vec(len(lanes)), (self,), lanes)

    def alu(self, op: Ops, *others: UOp) -> UOp:
        """The op `op` on this node and `others`, with its result dtype."""
        if op.is_boolean:
            dtype = dtypes.bool.vec(self.dtype.lanes)
        else:
            dtype = others[0].dtype if op is Ops.WHERE else self.dtype
        return UOp(op, dtype, (self, *others))

    def load(self, index: UOp, *gate: UOp, dtype: DType | None = None) -> UOp:
        """The element of this buffer at `index`."""
        return UOp(Ops.LOAD, dtype or element_of(self), (self, index, *gate))

    def store(self, index: UOp, value: UOp, *gate: UOp, combine: Ops | None = None) -> UOp:
        return UOp(Ops.STORE, dtypes.void, (self, index, value, *gate), combine)

    def after(self, *effects: UOp) -> UOp:
        return UOp(Ops.AFTER, self.dtype, (self, *effects)) if effects else self

    def end(self, *ranges: UOp) -> UOp:
        return UOp(Ops.END, dtypes.void, (self, *ranges)) if ranges else self

    def cast(self, dtype: DType) -> UOp:
        dtype = dtype.scalar.vec(self.dtype.lanes)
        return self if dtype is self.dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def bind(self, value: int) -> UOp:
        """This variable with a value.

        Raises ShapeError if the node is no variable, or `value` lies outside its range; DTypeError
        for a value that is no integer.
        """
        if self.op is not Ops.DEFINE_VAR:
            raise ShapeError(f"bind: only a variable takes a value, this is a {self.op} node")
        name, low, high = self.arg
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise DTypeError(
                    f"bind: a value of the variable {name!r} must be an integer, not {value!r}"
                )
            value = value.__index__()
        if not low <= value <= high:
            raise ShapeError(
                f"bind: {value} is outside the variable {name!r}", range=f"{low} to {high}"
            )
        return UOp(Ops.BIND, self.dtype, (self, UOp.const(self.dtype, value)))

    def unbound(self) -> tuple[UOp, dict[UOp, int]]:
        """This symbolic integer without values, and the value of each variable in it."""
        found = dict(node.unbind() for node in self.toposort() if node.op is Ops.BIND)
        bound = {variable.bind(value): variable for variable, value in found.items()}
        return self.substitute(bound), found


def _of_rows(rows: Iterable[tuple[Ops, DType, tuple[int, ...], Any]]) -> UOp:
    """The last of some nodes, whose sources are numbers of earlier ones."""
    made: list[UOp] = []
    for op, dtype, sources, arg in rows:
        made.append(UOp(op, dtype, tuple([made[source] for source in sources]), arg))
    return made[-1]


def pointer_of(node: UOp) -> Pointer:
    """The dtype of a node that points to memory."""
    assert isinstance(node.dtype, Pointer)
    return node.dtype


def element_of(pointer: UOp) -> DType:
    """The dtype of the elements behind `pointer`."""
    return pointer_of(pointer).base


def _shape_of(node: UOp) -> tuple[Any, ...]:
    """The shape of `node`. The constant flag is set too, as nearly every tensor node needs both."""
    node._is_constant = constant_of(node)
    return shape_of(node)


def remade(key: Key, op: Ops, shape: tuple[Any, ...]) -> UOp:
    """The node of `key`, (serial of `op`, dtype, sources, argument, class of the argument), which
    is no CONST, has `shape` and is not constant: a fast `UOp()` for callers that know all of this.
    """
    found = _table.get(key)
    if found is not None and (node := found()) is not None:
        return node
    node = _blank(UOp)
    node.op = op
    _, node.dtype, node.src, node.arg, _ = key
    node.origin = ()
    node.simple = None
    node.stored = None
    node.holders = None
    node.users = None
    node._shape = shape
    node._is_constant = False
    node._bounds = None
    node._ranges = None
    node._terms = None
    node.kind = 0
    reference = weakref.ref(node, MethodType(_take_out, key))
    if _table.setdefault(key, reference) is reference:
        return node
    # As in `UOp()`.
    del reference
    time.sleep(0)
    return UOp(op, node.dtype, node.src, node.arg)


def alive(op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any) -> UOp | None:
    """The node of these four, if it is alive."""
    found = _table.get((op.serial, dtype, src, arg, arg.__class__))
    return None if found is None else found()


sint = int | UOp


def prod(sizes: Iterable[Any]) -> Any:
    """The product of sizes, symbolic ones included."""
    result: Any = 1
    for size in sizes:
        result = size if isinstance(result, int) and result == 1 else result * size
    return result


def Variable(name: str, low: int, high: int) -> UOp:
    """A symbolic integer from `low` to `high`, both included, accepted wherever a size or a number
    is.

    `Variable("n", 1, 8).bind(3)` gives it a value for the tensors made with it; one compiled kernel
    serves all values.

    >>> n = Variable("n", 1, 8)
    >>> Tensor.ones(n.bind(3)).sum().item()
    3.0
    """
    return UOp.variable(name, low, high)
