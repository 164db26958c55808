"""Methods whose graph follows from the shapes and dtypes of their operands: made from templates.

A method such as `softmax` checks its arguments, chooses, and makes nodes by way of dozens of other
methods. All of that follows from its *signature* (`arguments.py`): which method, the Python
arguments, and of each operand shape, dtype, device and whether it requires a gradient. The second
time that a signature comes, the method is called on stand-ins, which have these properties and
nothing else, and what it makes of them is recorded as a `MethodTemplate` (`recorded.py`), which a
table has from then on (`template_table.py`). Its nodes are made by one loop, or only when somebody
asks for them (`postponed.py`).

before   x.softmax()     234 calls of Python functions
after    x.softmax()      17, one for each node and a few around them

A template never says something else than the method: where an operand is more than its signature
(with the value of a `Variable`), or a result is more than its graph, the method itself is called.
An operand that is made of constants alone is part of the signature. `TEMPLATES=2` does both, and
compares.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar, cast

from tilegrad.base.config import current_config
from tilegrad.base.errors import InternalError
from tilegrad.base.origin import call_site, composing, goes_by, users
from tilegrad.ir.args import KernelArg
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, node_count
from tilegrad.tensor.calls.arguments import signature_of
from tilegrad.tensor.calls.changing_constants import ChangingConstants
from tilegrad.tensor.calls.positions import Positions
from tilegrad.tensor.calls.postponed import can_postpone, postponed, postponed_siblings
from tilegrad.tensor.calls.recent_calls import RecentCalls
from tilegrad.tensor.calls.recorded import TELLING, MethodTemplate, Result, is_input
from tilegrad.tensor.calls.short_signatures import short_signature
from tilegrad.tensor.calls.sized import patterns_made
from tilegrad.tensor.calls.template_table import (
    has_no_template,
    known_template,
    new_template,
    rounded_numbers,
    template_of_numbers,
    with_plain_floats,
)
from tilegrad.tensor.handle.aliases import Away, Storage, can_move, deeper, shared
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.handle.kinds import next_number
from tilegrad.tensor.handle.size_arguments import NO_VARIABLES
from tilegrad.tensor.handle.waiting import Call, Number, Pool, this_thread
from tilegrad.tensor.storage.known_indices import note_index
from tilegrad.tensor.storage.pending import pressure, relieve

__all__ = ["compare", "elementwise", "slicing", "templated", "templated_unless"]

Method = TypeVar("Method", bound=Callable[..., Any])
Joins = Callable[[Sequence[Any], Any], Any]


def templated(method: Method) -> Method:
    """Let `method` make its graph from a template, once its signature was seen before."""
    return _templated(method, takes_numbers=False)


def slicing(method: Method) -> Method:
    """As `templated`, of a method that takes slices of a tensor: those of memory at positions that
    change all the time have no template (`positions`).
    """
    return _templated(method, takes_numbers=False, is_slicing=True)


def templated_unless(at_once: Joins) -> Callable[[Method], Method]:
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
    method: Method, *, takes_numbers: bool, at_once: Joins | None = None, is_slicing: bool = False
) -> Method:
    """The function that is called instead of `method`."""
    positions = Positions() if is_slicing else None
    calls = _Calls(method, positions, takes_numbers=takes_numbers, is_join=at_once is not None)
    recent = calls.recent
    known, plain = recent.known, recent.plain

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = current_config()
        if not config.TEMPLATES:
            return method(self, *args, **kwargs)
        if node_count() > pressure.most and isinstance(self, Core):
            relieve(self)
        if positions is not None and positions.are_changing(self, args):
            return method(self, *args, **kwargs)
        if args and at_once is not None and isinstance(self, Core):
            joined = at_once((self, *args), kwargs.get("dim", 0))
            if joined is not None:
                return joined
        frame = sys._getframe(1)
        user = frame.f_code
        # As `call_site`, without its frame, where the user's own line calls.
        entry = composing.entry or (
            (user, frame.f_lasti, code) if user.co_filename in users else call_site(frame, code)
        )
        # The quick way of loops: a call like this one came.
        pool = this_thread.pool
        short, inputs = short_signature(self, args, kwargs, pool)
        if short is not None:
            last = known.get(short)
            if last is None:
                if short in plain:
                    return method(self, *args, **kwargs)
                last, inputs = recent.alike(short, inputs)
            if last is None and takes_numbers and float in short:
                # `1 - 0.9**step` is a million numbers below 1, which are 1 as float32.
                rounded = rounded_numbers(self, args)
                if rounded is not args:
                    args = rounded
                    again, found = short_signature(self, args, kwargs, pool)
                    if again is not None:
                        short, inputs, last = again, found, known.get(again)
            if last is not None and last.holds(config, pool):
                pool.last = last
                if not last.has_view:
                    return postponed(pool, last.kind, self, inputs, entry, None)
                copies = recent.copies(short, last, self)
                if copies is not None:
                    viewed = None if copies else [self]
                    return postponed(pool, last.kind, self, inputs, entry, viewed)
        if short is None:
            if not isinstance(self, Core):
                return method(self, *args, **kwargs)
            plain_args = with_plain_floats(args) if takes_numbers else args
            if plain_args is not args:
                return call(self, *plain_args, **kwargs)
        made = calls.result(self, args, kwargs, short, inputs, pool, config, frame, entry)
        if made is not None:
            return made
        pool.making += 1
        try:
            made = method(self, *args, **kwargs)
        finally:
            pool.making -= 1
        if not pool.making:
            note_index(pool, made, self, (*args, *kwargs.values()))
        return made

    code = goes_by(call, method)
    return cast("Method", call)


class _Calls:
    """The calls of one method, from templates.

    The way of a call: its signature; the template that the table has for it, or one that serves
    many signatures; the inputs; a tensor that waits, or one with nodes.

    Attributes:
        method, number: the method, and its number in signatures.
        takes_numbers: whether numbers among the arguments may be inputs of a template.
        is_join: whether it joins its operands along `dim`.
        positions: of a method that takes slices, where it took them.
        constants: the lines that bring other constants from step to step.
        recent: calls that came.
    """

    __slots__ = (
        "constants", "is_join", "method", "number", "positions", "recent", "takes_numbers"
    )  # fmt: skip

    def __init__(
        self,
        method: Callable[..., Any],
        positions: Positions | None,
        *,
        takes_numbers: bool,
        is_join: bool,
    ):
        self.is_join = is_join
        self.method, self.number, self.takes_numbers = method, next_number(), takes_numbers
        self.positions = positions
        self.constants = ChangingConstants()
        self.recent = RecentCalls()

    def result(
        self,
        first: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        short: Any,
        met: tuple[Any, ...],
        pool: Pool,
        config: Any,
        frame: FrameType,
        entry: Any,
        *,
        is_replaced: bool = False,
    ) -> Any:
        """The result of the method, from its template, or None if the method itself has to be
        called; the next call of that `short` signature, if there is one, with the inputs that it
        `met`, is a recent one. `is_replaced`: whether operands are memory with the values of
        constants.
        """
        signature = signature_of(self.number, first, first._call, args, kwargs, pool)
        if signature is None:
            return None
        key, operands, inputs = signature
        has_constants = len(inputs) < len(operands)
        if has_constants and self.constants.are_changing(inputs, entry):
            given = self.constants.in_memory(first, args, kwargs, operands, entry)
            if given is not None:
                return self.result(*given, None, (), pool, config, frame, entry, is_replaced=True)
        template = known_template(tuple(key))
        is_known = template is not None
        numbers: list[Number] = []
        if template is None:
            if has_constants:
                self.constants.note(operands, entry, pool)
            found = self._serving(key, operands, inputs, args, kwargs, pool, frame)
            if found is None:
                if short is not None:
                    self._note_recorded(key, short, met, config, operands)
                return None
            template, numbers = found
        if not template.is_one and self.positions is not None:
            if self.positions.are_many(first, len(template.results)):
                return None
        kinds = template.waiting
        waits = kinds is not None and can_postpone(pool, config, template.requires_grad)
        copies = template.has_view and _copies(template, operands, inputs if waits else ())
        # A view of memory in the place of a constant is none of the constant.
        if copies is None or (is_replaced and template.has_view):
            return None
        if kinds is None or not waits:
            return self._made_now(template, operands, numbers, args, kwargs, config, entry)
        inputs += (*numbers, *template.tables)
        if not template.is_one:
            made = postponed_siblings(pool, kinds, first, tuple(inputs), entry, operands)
            return tuple.__new__(template.container, made)
        if short is not None:
            self.recent.add(short, met, template, config, operands, is_known=is_known)
            if template.has_view:
                self.recent.add_view(short, first, is_copy=copies)
        viewed = None if copies else operands
        return postponed(pool, kinds[0], first, tuple(inputs), entry, viewed)

    def _note_recorded(
        self, key: list[Any], short: Any, met: tuple[Any, ...], config: Any, operands: list[Any]
    ) -> None:
        """Let the next call of a signature that was recorded just now be a recent one: its template
        serves that, and is none for all sizes; or there is none, and the method is called.
        """
        template = known_template(tuple(key))
        if template is not None:
            self.recent.add(short, met, template, config, operands, is_known=True)
        elif self.positions is None and all(map(is_input, operands)):
            if has_no_template(tuple(key)):
                self.recent.plain.put(short, None)

    def _serving(
        self,
        key: list[Any],
        operands: list[Any],
        inputs: list[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        pool: Pool,
        frame: FrameType,
    ) -> tuple[MethodTemplate, list[Number]] | None:
        """A template for all numbers or all sizes that serves a signature without one of its own,
        and the numbers that are inputs of it.
        """
        if self.takes_numbers and not kwargs:
            found = template_of_numbers(key, self.method, operands, inputs, args, pool, frame)
            if found is not None:
                return found
        if self.positions is not None:
            self.positions.note(operands[0], args, tuple(key))
        before = patterns_made()
        template = new_template(
            key,
            self.method,
            operands,
            inputs,
            args,
            kwargs,
            is_join=self.is_join,
            is_at_once=self.positions is not None and self.positions.are_of_loop(operands[0], args),
        )
        if patterns_made() != before:
            # Calls of one size that came before have the template of all sizes from now on.
            self.recent.forget()
        return None if template is None else (template, [])

    def _made_now(
        self,
        template: MethodTemplate,
        operands: list[Any],
        numbers: list[Number],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        config: Any,
        entry: Any,
    ) -> Any:
        """The result of the method, with its nodes; None if the method itself has to be called."""
        inputs = _nodes(operands)
        if any(each.op in TELLING for each in inputs):
            return None
        taken = [*inputs, *[each.node for each in numbers], *template.tables]
        if len(taken) != template.graph.count:
            # Another thread has made memory of a constant, or the other way round.
            return None
        nodes = template.graph.make(taken, (entry,))
        several = tuple([_tensor(template, each, nodes, operands) for each in template.results])
        if config.TEMPLATES > 1:
            plain = self.method(operands[0], *args, **kwargs)
            # An operand that another thread has assigned to in between is not the one that it was.
            if all(one is other for one, other in zip(_nodes(operands), inputs)):
                compare(several, plain, self.method.__qualname__)
        return several[0] if template.is_one else tuple.__new__(template.container, several)


def _nodes(operands: list[Any]) -> list[UOp]:
    """The nodes that are inputs of a template: constants are part of it."""
    return [each.uop for each in operands if is_input(each)]


def _copies(template: MethodTemplate, operands: list[Any], inputs: Sequence[Any]) -> bool | None:
    """Whether the views that a template gives of operands, which may be views themselves, are
    copies: the elements of a slice may be in no order that a reshape can show. None if the method
    has to say. A result that waits is of `inputs`.
    """
    copies = False
    is_call = len(operands) == 1 and bool(inputs) and inputs[0].__class__ is Call
    call: Call | None = inputs[0] if is_call else None
    for operand in operands:
        storage = operand._alias
        if storage is None or not storage[1] or _is_whole(storage[1]):
            # No view, or one of all elements.
            continue
        path = storage[1]
        if not template.has_reshape or (operand._call is None and operand._node.is_constant):
            continue
        if call is None or not template.graph.is_view:
            return None
        away = call.away(path) if path.__class__ is int else path
        for result in template.results:
            moves = template.graph.moves(result.slot, template.graph.size)[0]
            copies = not can_move(away, moves[::-1])
            if copies and (len(moves) > 1 or not template.is_one):
                return None
    return copies


def _is_whole(path: Any) -> bool:
    """Whether the path of a detached tensor leads to the storage as it is."""
    return path.__class__ is Away and all(op is Ops.DETACH for op, _ in path.moves)


def _tensor(template: MethodTemplate, result: Result, nodes: list[UOp], operands: list[Any]) -> Any:
    """One result of a template, by its node."""
    first = operands[0]
    made = object.__new__(first.__class__)
    made._set(nodes[result.slot], first.device, NO_VARIABLES, result.requires_grad, leaf=False)
    if result.depth is not None:
        if result.view_of is None:
            made._alias = Storage(), result.depth
        else:
            base = operands[result.view_of]
            found: Any = base._alias or shared(base)
            made._alias = found[0], _path_below(found[1], result, template)
            made._is_shared = base._is_shared
    return made


def _path_below(path: Any, result: Result, template: MethodTemplate) -> Any:
    """The path of a view that a template gives of an alias which has a `path`."""
    return deeper(path, template.graph.moves(result.slot, result.depth or 0)[0])


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
    return one.is_same_kernel(two)


def _detached_once(node: UOp) -> UOp:
    while node.op is Ops.DETACH and node.src[0].op is Ops.DETACH:
        node = node.src[0]
    return node


def compare(made: Any, plain: Any, name: str) -> None:
    """Raise InternalError unless the two are the same nodes, and tensors of the same kind."""
    several = made if isinstance(made, tuple) else (made,)
    others = plain if isinstance(plain, tuple) else (plain,)
    for mine, other in zip(several, others, strict=True):
        rest = ["device", "_requires_grad", "_is_leaf", "_is_shared", "_symbols"]
        if not _are_same(mine.uop, other.uop):
            rest.insert(0, "uop")
        for what in rest:
            if getattr(mine, what) is not getattr(other, what) and getattr(mine, what) != getattr(
                other, what
            ):
                raise InternalError(
                    f"template: {name} gives another {what.strip('_').replace('uop', 'node')}",
                    template=repr(getattr(mine, what))[:300],
                    method=repr(getattr(other, what))[:300],
                )
        paths = [None if each._alias is None else each._alias[1] for each in (mine, other)]
        # A tensor that is detached twice is one step further from the memory, and has the same
        # elements.
        if paths[0] != paths[1] and mine.uop is other.uop:
            raise InternalError(f"template: {name} gives another view", paths=paths)
