"""The update of a parameter and its state as one call.

An optimizer calls some twenty methods for each parameter, and each call takes longer than a small
parameter takes to move. Their result for one parameter is recorded on stand-ins once for each shape
and each set of options, and is a template from then on (`tensor.calls.recorded`): the parameter and
each tensor of its state take one result of it after the next run. So do the numbers that parameters
count with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tilegrad.base.dtype import default_dtypes
from tilegrad.base.dtype_promotion import sum_dtype
from tilegrad.base.origin import call_site, composing
from tilegrad.base.recent import Recent
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.recorded import recorded
from tilegrad.tensor.handle.device import canonical
from tilegrad.tensor.handle.kinds import kind_of
from tilegrad.tensor.handle.tracing import transforms
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.storage import writes
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.undo import note, nothing_noted

__all__ = ["KnownReads", "advance_together", "move_together"]


class _Update(NamedTuple):
    """The template of an update: for each result its number and slot, and the position among the
    operands of the tensor that takes it.
    """

    template: Any
    results: tuple[tuple[int, int, int], ...]


class _Reads(NamedTuple):
    """Inputs of an update: a parameter, its gradient, its state, and the memory of its group; and
    the options that are no tensors.
    """

    operands: list[Any]
    options: tuple[Any, ...]


# The inputs that all parameters of a group and of a set of step counts share, by the numbers of the
# two.
KnownReads = dict[tuple[int, int], _Reads]
# By signature; of an update that is no template, one without results.
_updates: Recent[tuple[Any, ...], _Update] = Recent(lambda: 1024)
_NONE = _Update(None, ())


def move_together(optimizer: Any, index: int, known: KnownReads) -> list[Tensor] | None:
    """Let parameter number `index`, which has a gradient, and its state take their next values by
    the next run; gives these tensors. None, and nothing has happened, where that is no template, or
    a value is to be written in place. In the same step `known` has what its group reads.
    """
    if not writes.assignments_wait() or not _is_of_package(type(optimizer)._update):
        return None
    reads = _reads_of(optimizer, index, known)

    def recorded_update() -> _Update | None:
        return _recorded_update(optimizer, index, reads.operands)

    return _taken_together((type(optimizer), "update"), reads, recorded_update)


def advance_together(optimizer: Any, number: int) -> list[Tensor] | None:
    """The same for the step counts number `number`."""
    counts = optimizer._counts[number]
    if not counts or not writes.assignments_wait():
        return None
    if not _is_of_package(type(optimizer)._advance):
        return None
    operands: list[Any] = [*counts.values()]
    options: list[Any] = [*counts]
    for each in _options_of(optimizer._param_groups[optimizer._group_of_counts[number]]):
        _read(each, operands, options)
    reads = _Reads(operands, tuple(options))

    def recorded_advance() -> _Update | None:
        return _recorded_advance(optimizer, number, operands)

    return _taken_together((type(optimizer), "advance"), reads, recorded_advance)


def _taken_together(
    kind: tuple[type, str], reads: _Reads, recorded_update: Callable[[], _Update | None]
) -> list[Tensor] | None:
    """Let the tensors that an update writes take their values by the next run, as its template
    says; `recorded_update` makes that where it comes for the first time.
    """
    pool = this_thread.pool
    signature: list[Any] = [*kind, reads.options]
    for each in reads.operands:
        call = each._call
        if each._symbols or (call is None and each._node.is_constant):
            return None
        if call is not None and call.pool is not pool:
            return None
        own = kind_of(each._node.dtype, each._node.shape) if call is None else call.kind
        signature += each.__class__, own, each._device, each._requires_grad
    signature += default_dtypes.key, transforms.mode
    key = tuple(signature)
    found = _updates.get(key)
    if found is None:
        found = _updates.put(key, recorded_update() or _NONE)
    targets = [reads.operands[position] for _, _, position in found.results]
    if not targets or not writes.can_wait_for_results(targets):
        return None
    entry = composing.entry or call_site()
    inputs = tuple([each._call or each._node for each in reads.operands])
    for target, (number, slot, _) in zip(targets, found.results, strict=True):
        for each in writes.seen_by(target):
            note(each)
        writes.take(target, number, found.template, inputs, slot, entry)
    return targets


def _is_of_package(formula: Any) -> bool:
    """Whether a formula is one of ours: another one may do more than compute."""
    module: str = formula.__module__
    return module.startswith("tilegrad.")


def _reads_of(optimizer: Any, index: int, known: KnownReads) -> _Reads:
    tensor = optimizer.params[index]
    operands: list[Any] = [tensor, tensor.grad]
    options: list[Any] = []
    for attribute, _ in optimizer._slots:
        _read(getattr(optimizer, attribute)[index], operands, options)
    group, counts = optimizer._group_of[index], optimizer._counts_of[index]
    shared = known.get((group, counts))
    if shared is None:
        of_group: list[Any] = []
        rest: list[Any] = []
        for each in _options_of(optimizer._param_groups[group]):
            _read(each, of_group, rest)
        for each in optimizer._counts[counts].values():
            _read(each, of_group, rest)
        shared = known[group, counts] = _Reads(of_group, tuple(rest))
    operands += shared.operands
    return _Reads(operands, (*options, shared.options))


def _read(value: Any, operands: list[Any], options: list[Any]) -> None:
    """Add what an update reads to the operands or the options."""
    if isinstance(value, Tensor):
        operands.append(value)
        options.append(None)
    else:
        # Numbers that are equal may differ in their class.
        options.append((value.__class__, value))


def _options_of(group: Mapping[str, Any]) -> Iterator[Any]:
    for name, option in group.items():
        if name == "params":
            continue
        if isinstance(option, (tuple, list)):
            yield from option
        else:
            yield option


def _recorded_update(optimizer: Any, index: int, operands: Sequence[Any]) -> _Update | None:
    """The update as a template over `operands`; None if it is none."""
    taken: list[int] = []

    def update(*stand_ins: Any) -> tuple[Any, ...]:
        by_identity = {id(each): one for each, one in zip(operands, stand_ins, strict=True)}
        states = [(at, one, one.uop) for at, one in enumerate(stand_ins) if at > 1]
        tensor, gradient = stand_ins[:2]
        wide = sum_dtype(tensor.dtype)
        gradient = gradient.detach().cast(wide)
        one = _of_one(optimizer, index, by_identity)
        if one._option(0, "maximize"):
            gradient = -gradient
        new, _ = one._update(0, tensor.detach().cast(wide), gradient)
        new = new.cast(tensor.dtype)
        written = [(at, one) for at, one, before in states if one.uop is not before]
        stored = {one.uop: _stored(one, one.uop) for _, one in written}
        taken[:] = [0, *[at for at, _ in written]]
        nodes = [_stored(new, new.uop).substitute(stored), *_written_nodes(written, stored)]
        return tuple([tensor._of(node, tensor.device) for node in nodes])

    return _as_update(update, operands, taken)


def _recorded_advance(optimizer: Any, number: int, operands: Sequence[Any]) -> _Update | None:
    """The step counts of parameters, moved, as a template over `operands`; None if it is none."""
    taken: list[int] = []
    group = optimizer._param_groups[optimizer._group_of_counts[number]]
    counts = optimizer._counts[number]

    def advance(*stand_ins: Any) -> tuple[Any, ...]:
        by_identity = {id(each): one for each, one in zip(operands, stand_ins, strict=True)}
        states = [(at, one, one.uop) for at, one in enumerate(stand_ins)]
        options = {
            name: _replaced(value, by_identity) for name, value in group.items() if name != "params"
        }
        optimizer._advance(
            options, {name: _replaced(one, by_identity) for name, one in counts.items()}
        )
        written = [(at, one) for at, one, before in states if one.uop is not before]
        stored = {one.uop: _stored(one, one.uop) for _, one in written}
        taken[:] = [at for at, _ in written]
        first = stand_ins[0]
        return tuple([first._of(node, first.device) for node in _written_nodes(written, stored)])

    return _as_update(advance, operands, taken)


def _written_nodes(written: Sequence[tuple[int, Any]], stored: Mapping[UOp, UOp]) -> Iterator[UOp]:
    """The values that stand-ins were assigned: each is `stored` once, and read by the others."""
    for _, one in written:
        others = {node: other for node, other in stored.items() if node is not one.uop}
        yield stored[one.uop].substitute(others)


def _as_update(method: Any, operands: Sequence[Any], taken: Sequence[int]) -> _Update | None:
    """The update that `method` makes on stand-ins, whose results go to the operands numbered
    `taken`; None if it is no template.
    """
    with nothing_noted():
        found = recorded(method, [*operands], [*operands[1:]], {})
    if found is None or found.waiting is None or found.has_view or found.tables:
        return None
    return _Update(
        found.graph,
        tuple([
            (kind.number, kind.slot, at) for kind, at in zip(found.waiting, taken, strict=True)
        ]),
    )  # fmt: skip


def _stored(tensor: Any, node: UOp) -> UOp:
    """A value in memory of its own, on the tensor's device."""
    value = node.src[0] if node.op is Ops.CONTIGUOUS else node
    return UOp(Ops.CONTIGUOUS, node.dtype, (value,), canonical(tensor.device))


def _of_one(optimizer: Any, index: int, stand_ins: dict[int, Any]) -> Any:
    """The optimizer as if it had one parameter, with stand-ins of all tensors."""
    made: Any = copy.copy(optimizer)
    group = optimizer._group_of[index]
    options = optimizer._param_groups[group].items()
    made.params = [stand_ins[id(optimizer.params[index])]]
    made._group_of = [0]
    made._param_groups = [
        {name: _replaced(value, stand_ins) for name, value in options if name != "params"}
    ]
    counts = optimizer._counts[optimizer._counts_of[index]].items()
    made._counts_of = [0]
    made._counts = [{name: _replaced(one, stand_ins) for name, one in counts}]
    for attribute, _ in optimizer._slots:
        state = getattr(optimizer, attribute)[index]
        setattr(made, attribute, [_replaced(state, stand_ins)])
    return made


def _replaced(value: Any, stand_ins: dict[int, Any]) -> Any:
    # No closure: one that calls itself would keep the stand-ins alive, among the user's tensors.
    if isinstance(value, (tuple, list)):
        return type(value)([_replaced(each, stand_ins) for each in value])
    return stand_ins[id(value)] if isinstance(value, Tensor) else value
