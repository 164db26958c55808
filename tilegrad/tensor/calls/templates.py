"""Methods whose graph follows from the shapes and dtypes of their operands: made from templates.

A method such as `softmax` checks its arguments, chooses, and makes nodes by way of dozens of other
methods. All of that follows from its *signature*: which method, the Python arguments, and of each
operand shape, dtype, device and whether it requires a gradient. The second time that a signature
comes, the method is called on stand-ins, which have these properties and nothing else, and what it
makes of them is recorded (`ir.templates`). From then on the nodes are made by one loop.

before   x.softmax()     234 calls of Python functions
after    x.softmax()      17, one for each node and a few around them

A template never says something else than the method: where an operand is more than its signature
(with the value of a `Variable`), or a result is more than its graph, the method itself is called.
An operand that is made of constants alone is part of the signature. `TEMPLATES=2` does both, and
compares.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Sequence
from struct import Struct
from types import FrameType, MethodType
from typing import Any, TypeVar, cast

from tilegrad.base.config import current_config, gradients
from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import call_site, composing, goes_by, users
from tilegrad.engine.run.run import record_of_thread
from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.templates import Template
from tilegrad.ir.uop import UOp, node_count
from tilegrad.tensor.calls.recorded import (
    TELLING,
    Recorded,
    Result,
    WaitingKind,
    recorded,
    recorded_with_numbers,
)
from tilegrad.tensor.calls.sized import of_sizes
from tilegrad.tensor.handle import waiting
from tilegrad.tensor.handle.aliases import Storage, can_move, shared
from tilegrad.tensor.handle.core import Core, device_of, set_device
from tilegrad.tensor.handle.sizes import NO_VARIABLES
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import (
    Call,
    Number,
    Pool,
    next_number,
    next_serial,
    this_thread,
)
from tilegrad.tensor.storage.pending import pressure, relieve

__all__ = ["alias", "elementwise", "templated", "templated_unless"]

Method = TypeVar("Method", bound=Callable[..., Any])

# More signatures than this are not known at a time: the first ones go first.
_MOST = 4096
records_gradients = gradients.get
_DOUBLE = Struct("<d")
# So many entries of a signature are of the method and its tensor.
_HEAD = 8
# More short signatures of a method are not known at a time.
_MOST_RECENT = 256
_PLAIN = frozenset({int, str, bool, type(None), type(Ellipsis), DType})
blank = object.__new__


# By signature; None where there is no template.
_known: dict[tuple[Any, ...], Recorded | None] = {}
# By signature without the values of numbers, the templates for all of these.
_of_numbers: dict[tuple[Any, ...], Recorded | None] = {}
# By such a signature and the caller's line, the numbers that came last.
_values: dict[tuple[Any, ...], list[float]] = {}
# By dtype, shape and whether a gradient is required: another tensor of the same value.
_aliases: dict[tuple[Any, ...], WaitingKind] = {}
_SAME = Template([], [], (0,), 1, is_view=True)
# Signatures that came once. Those of arguments that never come again push no template out.
_met: dict[tuple[Any, ...], None] = {}


def templated(method: Method) -> Method:
    """Let `method` make its graph from a template, once its signature was seen before."""
    return _templated(method, takes_numbers=False)


def templated_unless(at_once: Callable[[Sequence[Any], Any], Any]) -> Callable[[Method], Method]:
    """As `templated`, of a method that joins tensors along `dim`: `at_once` is asked first for the
    result, and answers None where it has none.
    """
    return lambda method: _templated(method, takes_numbers=False, at_once=at_once)


def elementwise(method: Method) -> Method:
    """As `templated`, of a method whose numbers are operands like tensors: what it does depends on
    their kind, and not on their values. Those that change from call to call are inputs of one
    template.
    """
    return _templated(method, takes_numbers=True)


def _templated(
    method: Method,
    *,
    takes_numbers: bool,
    at_once: Callable[[Sequence[Any], Any], Any] | None = None,
) -> Method:
    number, new = next_number(), blank
    recent: dict[Any, _Recent] = {}

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = current_config()
        mode = config.TEMPLATES
        if not mode or not isinstance(self, Core):
            return method(self, *args, **kwargs)
        if node_count() > pressure.most:
            relieve(self)
        if args and at_once is not None:
            joined = at_once((self, *args), kwargs.get("dim", 0))
            if joined is not None:
                return joined
        pending = self._call
        short: Any = None
        if pending is not None and not kwargs:
            # The signature in short, where that is possible: see `_Recent`.
            other = self
            given: tuple[Any, ...] = (pending,)
            if not args:
                short = pending.kind
            elif len(args) == 1:
                (value,) = args
                kind = value.__class__
                if kind is self.__class__:
                    also = value._call
                    if also is not None:
                        other = value
                        if value is self:
                            short = (pending.kind,)
                        elif also.pool is pending.pool and device_of(value) == device_of(self):
                            short, given = (pending.kind, also.kind), (pending, also)
                elif kind in _PLAIN or (kind is float and value):
                    short = pending.kind, kind, value
            last = None if short is None else recent.get(short)
            if (
                last is not None
                and last.config is config
                and self.__class__ is last.tensor_class
                and self._requires_grad is last.grad
                and other._requires_grad is last.also_grad
                and device_of(self) == last.device
                and last.is_open(pending.pool)
            ):
                frame = sys._getframe(1)
                user = frame.f_code
                entry = composing.entry or (
                    (user, frame.f_lasti, code)
                    if user.co_filename in users
                    else call_site(frame, code)
                )
                return _waiting(pending.pool, last.kind, self, given, entry, None)
        constant: UOp | None = None
        if pending is None:
            node = self._node
            dtype, shape = node.dtype, node._shape or node.shape
            if node._is_constant is not False and node.is_constant:
                constant = node
        else:
            dtype, shape = pending.dtype, pending.shape
        wants_grad = self._requires_grad and (records_gradients() or "none recorded")
        defaults = dtypes.default_float, dtypes.default_int, transforms.mode
        key = [
            number,
            self.__class__,
            dtype,
            shape,
            wants_grad,
            device_of(self),
            defaults,
            constant,
        ]
        operands = [self]
        if args and not _add(args, key, operands):
            return method(self, *args, **kwargs)
        if kwargs:
            key += kwargs
            if not _add(kwargs.values(), key, operands):
                return method(self, *args, **kwargs)
        if constant is not None and all(map(_is_constant, operands)):
            # Whoever knows the signature would keep the nodes, and their lines, alive.
            return method(self, *args, **kwargs)
        signature = tuple(key)
        found = _known.get(signature)
        numbers: list[Number] | None = None
        if found is None:
            short = None
            if takes_numbers and not kwargs:
                frame = sys._getframe(1)
                found, numbers = _with_numbers(key[:_HEAD], method, operands, args, frame)
            if found is None or numbers is None:
                found = None
                if signature not in _known:
                    has_constant = any(map(_is_constant, operands))
                    found = None if has_constant else of_sizes(key, operands, method, args, kwargs)
                    if found is None:
                        _meet(signature, method, operands, args, kwargs)
                    elif _has_met(signature):
                        _remember(signature, found)
                if found is None:
                    return method(self, *args, **kwargs)
        kinds = found.waiting
        waits = kinds is not None and mode == 1 and config.SEGMENTS and not config.NOOPT
        if waits:
            pool = this_thread.pool
            # Who records sees what runs, and a transformed function makes a graph.
            waits = (
                (pool.trains or not any(each.requires_grad for each in found.results))
                and (not pool.is_full or pool.takes_calls())
                and record_of_thread() is None
                and not transforms.depth
            )
        inputs: list[Any] = []
        is_copy = False
        for operand in operands:
            pending = operand._call if waits else None
            if pending is None or pending.pool is not pool:
                pending = None
                node = operand._node
                op = node.op
                if operand._symbols:
                    return method(self, *args, **kwargs)
                if node._is_constant is not False and node.is_constant:
                    # It is part of the signature, and of the template.
                    continue
                if op in TELLING:
                    return method(self, *args, **kwargs)
            if found.has_view and operand._alias is not None:
                path = operand._alias[1]
                if path.__class__ is not int:
                    return method(self, *args, **kwargs)
                if path and found.has_reshape:
                    if pending is None or not found.template.is_view or len(operands) > 1:
                        return method(self, *args, **kwargs)
                    for result in found.results:
                        moves = found.template.moves(result.slot, found.template.size)[0]
                        is_copy = not can_move(pending.away(path), moves[::-1])
                        if is_copy and (len(moves) > 1 or not found.is_one):
                            return method(self, *args, **kwargs)
            inputs.append(pending or node)
        if numbers is not None:
            inputs += numbers if waits else [each.node for each in numbers]
        frame = sys._getframe(1)
        user = frame.f_code
        # As `call_site`, without its frame, where the user's own line calls.
        entry = composing.entry or (
            (user, frame.f_lasti, code) if user.co_filename in users else call_site(frame, code)
        )
        if waits and kinds is not None:
            if not found.is_one:
                made = _siblings(pool, kinds, self, tuple(inputs), entry, operands)
                return tuple.__new__(found.container, made)
            if short is not None and not found.has_view:
                if len(recent) >= _MOST_RECENT:
                    recent.clear()
                recent[short] = _Recent(config, kinds[0], operands)
            return _waiting(
                pool, kinds[0], self, tuple(inputs), entry, None if is_copy else operands
            )
        nodes = found.template.make(inputs, (entry,))
        plain_result = found.plain
        if plain_result is not None:
            one = new(self.__class__)
            one._set(nodes[plain_result[0]], self.device, NO_VARIABLES, plain_result[1], leaf=False)
            if mode == 1:
                return one
            made = [one]
        else:
            made = [_tensor(each, nodes, operands) for each in found.results]
        if mode > 1:
            plain = method(self, *args, **kwargs)
            # What another thread has assigned to in between is not the operand that it was.
            given_now = [each._node for each in operands if not each._node.is_constant]
            if all(one is other for one, other in zip(given_now, inputs)):
                _compare(tuple(made), plain, method.__qualname__)
        return made[0] if found.is_one else tuple.__new__(found.container, made)

    code = goes_by(call, method)
    return cast("Method", call)


def alias(tensor: Any) -> Any:
    """Another tensor of all of the storage of one whose call waits; None if none waits."""
    call, pool = tensor._call, this_thread.pool
    requires_grad = tensor._requires_grad
    if call is None or call.pool is not pool or (requires_grad and not pool.trains):
        return None
    config = current_config()
    if config.TEMPLATES != 1 or not config.SEGMENTS or config.NOOPT or transforms.depth:
        return None
    if record_of_thread() is not None or (pool.is_full and not pool.takes_calls()):
        return None
    key = call.dtype, call.shape, requires_grad
    kind = _aliases.get(key)
    if kind is None:
        if len(_aliases) >= _MOST:
            _aliases.clear()
        same = Result(0, requires_grad, 0, 0, call.shape, call.dtype)
        kind = _aliases[key] = WaitingKind(_SAME, same, next_number())
    entry = composing.entry or call_site(sys._getframe(1))
    return _waiting(pool, kind, tensor, (call,), entry, [tensor])


def _add(values: Any, key: list[Any], operands: list[Any]) -> bool:
    """Add the signature of arguments; False if one is of no kind that has one."""
    for value in values:
        kind = value.__class__
        if kind in _PLAIN:
            key += kind, value
        elif kind is float:
            # 0.0 and -0.0 are two arguments, NaN is one.
            key.append(_DOUBLE.pack(value))
        elif kind is tuple or kind is list or _is_sizes(value):
            key += kind, len(value)
            if not _add(value, key, operands):
                return False
        elif kind is slice:
            start, stop, step = value.start, value.stop, value.step
            for end in (start, stop, step):
                if end is not None and end.__class__ is not int:
                    return False
            key += slice, start, stop, step
        elif isinstance(value, Core):
            call = value._call
            if call is None:
                node = value._node
                dtype, shape = node.dtype, node._shape or node.shape
            else:
                dtype, shape = call.dtype, call.shape
            number = 0
            while number < len(operands) and operands[number] is not value:
                number += 1
            if number == len(operands):
                operands.append(value)
            wants_grad = value._requires_grad and (records_gradients() or "none recorded")
            key += kind, number, dtype, shape, wants_grad, device_of(value)
            if call is None and node._is_constant is not False and node.is_constant:
                key.append(node)
        else:
            return False
    return True


def _is_constant(tensor: Any) -> bool:
    return tensor._call is None and tensor._node.is_constant


def _is_sizes(value: Any) -> bool:
    """Whether an argument is a tuple of a class of its own, such as the sizes of `tilegrad.torch`,
    that is no more than its elements.
    """
    return isinstance(value, tuple) and not hasattr(value, "_fields")


def _with_numbers(
    first: list[Any], method: Any, operands: list[Any], args: tuple[Any, ...], frame: FrameType
) -> tuple[Recorded | None, list[Number] | None]:
    """The template of a call for all values of its numbers, and those, if there is one; the second
    value at one line of the caller makes it. `first` is the signature of the method and its tensor.
    """
    key = first
    values: list[float] = []
    for each in args:
        kind = each.__class__
        if kind is float or kind is int:
            values.append(each)
            key.append(kind)
        elif isinstance(each, Core):
            _add((each,), key, operands)
        else:
            return None, None
    if not values or any(each.dtype.is_float and each.dtype.itemsize < 4 for each in operands):
        # In less than 32 bits it depends on the value whether a number would be rounded.
        return None, None
    signature = tuple(key)
    found = _of_numbers.get(signature)
    if found is None:
        if signature in _of_numbers:
            return None, None
        line = id(frame.f_code), frame.f_lasti, signature
        before = _values.get(line)
        if before is None or before == values:
            if len(_values) >= _MOST:
                _values.clear()
            _values[line] = values
            return None, None
        if len(_of_numbers) >= _MOST:
            _of_numbers.clear()
        found = _of_numbers[signature] = recorded_with_numbers(method, operands, args)
        if found is None:
            return None, None
    numbers: list[Number] = []
    for value, (dtype, is_negated) in zip(values, found.constants):
        one = Number.of(-value if is_negated else value, dtype)
        if one is None:
            return None, None
        numbers.append(one)
    return found, numbers


class _Recent:
    """A call of a method on operands that know calls, and perhaps a plain value, that made a result
    of some `kind`. The kinds of the operands and the value are its key; with what is here, and what
    `is_open` looks at, they say the whole signature, and that the call waits.
    """

    __slots__ = (
        "also_grad", "config", "defaults", "device", "grad", "kind", "recorded", "tensor_class",
    )  # fmt: skip

    def __init__(self, config: Any, kind: WaitingKind, operands: Sequence[Any]):
        self.config, self.kind = config, kind
        self.tensor_class, self.device = operands[0].__class__, device_of(operands[0])
        self.grad, self.also_grad = operands[0]._requires_grad, operands[-1]._requires_grad
        self.recorded = bool(self.grad or self.also_grad) and records_gradients()
        self.defaults = dtypes.default_float, dtypes.default_int, transforms.mode

    def is_open(self, pool: Pool) -> bool:
        """Whether what holds beside the operands is what held then, and calls wait."""
        return (
            pool is this_thread.pool
            and (not pool.is_full or pool.takes_calls())
            and (not (self.grad or self.also_grad) or records_gradients() is self.recorded)
            and (pool.trains or not self.kind.requires_grad)
            and self.defaults == (dtypes.default_float, dtypes.default_int, transforms.mode)
            and not transforms.depth
            and record_of_thread() is None
        )


def _waiting(
    pool: Pool,
    kind: WaitingKind,
    first: Any,
    inputs: tuple[Any, ...],
    entry: Any,
    operands: list[Any] | None,
) -> Any:
    """The tensor of a call whose nodes nobody has asked for; a view of one of `operands`, if they
    are given.
    """
    call: Call = blank(Call)
    call.template, call.slot = kind.template, kind.slot
    call.number, call.pattern, call.kind = kind.number, kind.pattern, kind.kind
    call.inputs, call.entry, call.serial = inputs, (entry,), next_serial()
    call.shape, call.dtype, call.pool = kind.shape, kind.dtype, pool
    call.node = call.value = None
    call.generation = 0
    made = blank(first.__class__)
    call.requires_grad = made._requires_grad = kind.requires_grad
    call.is_loss = call.is_write = False
    call.siblings = ()
    set_device(made, device_of(first))
    made._call = call
    made._symbols = NO_VARIABLES
    made._previous = ()
    made._is_leaf = made._is_shared = False
    made._gradient = made._alias = None
    depth = kind.depth
    if depth is not None:
        if kind.view_of is None:
            made._alias = Storage(), depth
        elif operands is not None:
            _look(made, kind, operands)
    # As `Pool.add`, without its frame.
    identity, references = id(made), pool.waiting
    call.handle = references[identity] = weakref.ref(made, MethodType(references.pop, identity))
    pool.has_new = True
    pool.count += kind.size
    if pool.count >= waiting.MOST_NODES:
        pool.is_full = True
    return made


def _siblings(
    pool: Pool,
    kinds: tuple[WaitingKind, ...],
    first: Any,
    inputs: tuple[Any, ...],
    entry: Any,
    operands: list[Any],
) -> list[Any]:
    """The tensors of a call that has several results."""
    made = [_waiting(pool, kind, first, inputs, entry, operands) for kind in kinds]
    pool.count -= kinds[0].size * (len(kinds) - 1)
    siblings = [weakref.ref(each._call) for each in made]
    for each in made:
        each._call.siblings = siblings
    return made


def _tensor(result: Result, nodes: list[UOp], operands: list[Any]) -> Any:
    first = operands[0]
    made = object.__new__(first.__class__)
    made._set(nodes[result.slot], first.device, NO_VARIABLES, result.requires_grad, leaf=False)
    if result.depth is not None:
        # As `_look`, without its frame.
        if result.view_of is None:
            made._alias = Storage(), result.depth
        else:
            base = operands[result.view_of]
            alias: Any = base._alias or shared(base)
            made._alias = alias[0], alias[1] + result.depth
            made._is_shared = base._is_shared
    return made


def _look(made: Any, result: WaitingKind, operands: list[Any]) -> None:
    """Let a view share the storage of its operand."""
    base = operands[result.view_of or 0]
    alias: Any = base._alias or shared(base)
    # Of what was computed by itself, all is an alias that looks as it does.
    made._alias = alias[0], alias[1] + result.depth if result.depth else alias[1]
    made._is_shared = base._is_shared
    if result.is_all:
        alias[0].note(made)


def _meet(
    signature: tuple[Any, ...], method: Any, operands: list[Any], args: Any, kwargs: Any
) -> None:
    """Note a signature; the second time, record what the method makes."""
    if _has_met(signature):
        _remember(signature, recorded(method, operands, args, kwargs))


def _has_met(signature: tuple[Any, ...]) -> bool:
    """Whether a signature comes for the second time; it is noted the first time."""
    if signature in _met:
        _met.pop(signature, None)
        return True
    if len(_met) >= _MOST:
        _met.clear()
    _met[signature] = None
    return False


def _remember(signature: tuple[Any, ...], found: Recorded | None) -> None:
    """Remember the template of a signature, or that there is none."""
    if len(_known) >= _MOST:
        for each in list(itertools.islice(_known, _MOST // 4)):
            _known.pop(each, None)
    _known[signature] = found


def _are_same(mine: UOp, other: UOp) -> bool:
    """Whether two graphs are one, with DETACH of DETACH as one: a template detaches what its
    operand already did. Equal nodes are one object, so only what differs is walked.
    """
    pairs = [(mine, other)]
    met: set[tuple[UOp, UOp]] = set()
    while pairs:
        one, two = pair = _detached_once(pairs[-1][0]), _detached_once(pairs.pop()[1])
        if one is two or pair in met:
            continue
        met.add(pair)
        if one.op is not two.op or len(one.src) != len(two.src):
            return False
        if one.replace(src=two.src) is not two and not _are_one_kernel(one.arg, two.arg):
            return False
        pairs += zip(one.src, two.src)
    return True


def _are_one_kernel(one: Any, two: Any) -> bool:
    """Whether two arguments are the same kernel, whose gradient is made anew by each call."""
    if not (isinstance(one, KernelArg) and isinstance(two, KernelArg)):
        return False
    return (one.name, one.shape, one.ast) == (two.name, two.shape, two.ast)


def _detached_once(node: UOp) -> UOp:
    while node.op is Ops.DETACH and node.src[0].op is Ops.DETACH:
        node = node.src[0]
    return node


def _compare(made: Any, plain: Any, name: str) -> None:
    """Raise InternalError unless the two are the same nodes, and tensors of the same kind."""
    several = made if isinstance(made, tuple) else (made,)
    others = plain if isinstance(plain, tuple) else (plain,)
    for mine, other in zip(several, others, strict=True):
        rest = ["device", "_requires_grad", "_is_leaf", "_is_shared", "_symbols"]
        if not _are_same(mine._node, other._node):
            rest.insert(0, "_node")
        for what in rest:
            if getattr(mine, what) is not getattr(other, what) and getattr(mine, what) != getattr(
                other, what
            ):
                raise InternalError(
                    f"template: {name} gives another {what.strip('_')}",
                    template=repr(getattr(mine, what))[:300],
                    method=repr(getattr(other, what))[:300],
                )
        paths = [None if each._alias is None else each._alias[1] for each in (mine, other)]
        # What is detached twice is one step further from the memory, and the same elements.
        if paths[0] != paths[1] and mine._node is other._node:
            raise InternalError(f"template: {name} gives another view", paths=paths)
