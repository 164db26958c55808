"""The calls of a method that came before, by short signature: the quick way of loops.

A call that came, and whose result waited, makes the same result again. So does one that differs in
sizes, or in numbers, from calls that have one template for all of these: it is found without them.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import default_dtypes
from tilegrad.base.recent import Bounded
from tilegrad.engine.run.run import record_of_thread
from tilegrad.ir.op import Ops
from tilegrad.tensor.calls.arguments import records_gradients
from tilegrad.tensor.calls.recorded import MethodTemplate, WaitingKind
from tilegrad.tensor.calls.short_signatures import without_numbers, without_sizes
from tilegrad.tensor.calls.sized import MethodPattern
from tilegrad.tensor.calls.template_table import numbers_of
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import Call, Pool

__all__ = ["RecentCall", "RecentCalls", "followers"]

# More calls of a method are not known at a time.
_MOST = 1024
Short = tuple[Any, ...]
Inputs = tuple[Any, ...]


class RecentCall:
    """A call that made one result of some `kind` that waits. Its short signature is the key; with
    that, what is here says the whole signature.
    """

    __slots__ = (
        "config", "constants", "defaults", "has_reshape", "has_view", "kind", "records", "state",
    )  # fmt: skip
    kind: WaitingKind

    def __init__(self, config: Any, template: MethodTemplate, operands: list[Any]):
        assert template.waiting is not None
        self.config, self.kind, self.constants = config, template.waiting[0], template.constants
        self.has_view, self.has_reshape = template.has_view, template.has_reshape
        # Whether gradients were recorded; None where no operand requires one.
        wants_grad = any(each._requires_grad for each in operands)
        self.records = records_gradients() if wants_grad else None
        self.defaults, self.state = default_dtypes.key, transforms.state

    def at(self, pattern: MethodPattern, kind: WaitingKind) -> RecentCall:
        """The same at other sizes, those of a `kind` of call of a pattern."""
        made: RecentCall = object.__new__(RecentCall)
        made.config, made.defaults, made.records = self.config, self.defaults, self.records
        made.state, example = self.state, pattern.example
        made.has_view, made.has_reshape = example.has_view, example.has_reshape
        made.kind, made.constants = kind, ()
        return made

    def holds(self, config: Any, pool: Pool) -> bool:
        """Whether a call with the same short signature makes the same result, which waits."""
        return (
            config is self.config
            and (self.records is None or self.records is records_gradients())
            and self.defaults is default_dtypes.key
            # As `can_postpone`, without its frame: the switches are those that held then, and calls
            # do not wait in a transformed function, which is a state of its own.
            and (pool.trains or not self.kind.requires_grad)
            and self.state is transforms.state
            and record_of_thread() is None
            and (not pool.is_full or pool.takes_calls())
        )


# Tables of calls that templates of other methods serve, by their sizes (`RecentCalls.follow`).
followers: list[RecentCalls] = []


class RecentCalls:
    """The calls of one method.

    Attributes:
        known: those that came twice, by short signature.
        plain: short signatures that have no template, as the method gives an operand as it is, say.
    """

    __slots__ = ("_are_copies", "_of_numbers", "_of_sizes", "known", "plain")

    def __init__(self) -> None:
        self.known: Bounded[Short, RecentCall] = Bounded(_MOST)
        self.plain: Bounded[Short, None] = Bounded(_MOST)
        # Calls with a template for all numbers, or for all sizes: one of each, by its short
        # signature without these.
        self._of_numbers: Bounded[Short, RecentCall] = Bounded(_MOST)
        self._of_sizes: Bounded[Short, RecentCall] = Bounded(_MOST)
        # Reshapes of a view, by how that looks at its storage: whether they copy.
        self._are_copies: Bounded[tuple[Short, int, Any], bool] = Bounded(_MOST)

    def alike(self, short: Short, inputs: Inputs) -> tuple[RecentCall | None, Inputs]:
        """The entry of `known` for a call that came with other numbers or at other sizes only, and
        its inputs.
        """
        if self._of_numbers:
            key, values = without_numbers(short)
            last = self._of_numbers.get(key)
            if last is not None:
                numbers = numbers_of(last.constants, values)
                return (None, inputs) if numbers is None else (last, (*inputs, *numbers))
        if self._of_sizes:
            key, sizes = without_sizes(short, inputs)
            last = self._of_sizes.get(key)
            if last is not None:
                served = last.kind.pattern.family.find(sizes)
                if served is not None:
                    pattern, unknowns = served
                    kind = pattern.kind_that_came(unknowns)
                    if kind is None:
                        return last.at(pattern, pattern.kind_at(unknowns)), inputs
                    return self.known.put(short, last.at(pattern, kind)), inputs
        return None, inputs

    def add(
        self,
        short: Short,
        inputs: Inputs,
        template: MethodTemplate,
        config: Any,
        operands: list[Any],
        *,
        is_known: bool,
    ) -> None:
        """Note a call with a template that serves others: those of its signature if that
        `is_known`, else those that differ in sizes or numbers.
        """
        if template.waiting is None or not template.is_one or template.tables:
            return
        if config.TEMPLATES != 1 or not config.SEGMENTS or config.NOOPT:
            # No call waits (`can_postpone`).
            return
        if template.has_view and len(operands) > 1:
            return
        made = RecentCall(config, template, operands)
        if made.constants:
            self._of_numbers.put(without_numbers(short)[0], made)
        elif is_known:
            self.known.put(short, made)
        elif made.kind.pattern is not None:
            self._of_sizes.put(without_sizes(short, inputs)[0], made)

    def follow(self, short: Short, call: RecentCall, *, is_of_numbers: bool) -> None:
        """Note a call that another method's template served, of inputs and arguments like these; of
        numbers as inputs, for all of these.
        """
        if is_of_numbers:
            self._of_numbers.put(without_numbers(short)[0], call)
        else:
            self.known.put(short, call)

    def forget(self) -> None:
        """Forget the calls of one size, and those of methods around this one."""
        self.known.clear()
        self.plain.clear()
        for each in followers:
            each.known.clear()

    def add_view(self, short: Short, operand: Any, *, is_copy: bool) -> None:
        """Note whether a view of a view is a copy."""
        path = 0 if operand._alias is None else operand._alias[1]
        steps = _steps(operand._call, path)
        if steps is not None:
            self._are_copies.put((short, path, steps), is_copy)

    def copies(self, short: Short, call: RecentCall, operand: Any) -> bool | None:
        """Whether a view that `call` made of another operand is a copy of this one, whose elements
        may be in no order that a reshape can show; None if that is not known.
        """
        path = 0 if operand._alias is None else operand._alias[1]
        if not path or (path.__class__ is int and not call.has_reshape):
            return False
        return self._are_copies.get((short, path, _steps(operand._call, path)))


def _steps(call: Call | None, path: Any) -> tuple[Any, ...] | None:
    """A key of the last `path` movement ops on the storage of a call's result, where these are a
    number: the calls that have them, by number and kind, or by template at certain sizes. None if
    some belong to no call.
    """
    found: list[Any] = []
    count = path if path.__class__ is int else 0
    while count:
        if call is None:
            return None
        if call.inputs is None:
            moves_of = call.moves
            if call.value is None or len(moves_of) < count:
                return None
            # Where a slice begins has no say in this.
            for op, arg, shape in moves_of[-count:]:
                found += op, None if op is Ops.SHRINK else arg, shape
            found.append(moves_of[-count - 1][2] if len(moves_of) > count else None)
            return (*found,)
        found += call.number if call.pattern is None else call.template, call.kind
        moves, slot = call.template.moves(call.slot, count)
        count -= len(moves)
        if count:
            below = call.inputs[slot]
            call = below if isinstance(below, Call) else None
    return (*found,) or None
