"""Which tensors are one storage: a tensor, its views, and how each of them looks at it.

A movement op makes a value of its own in the graph, but the tensor around it is an alias, as in
PyTorch: what is written to one alias is seen by all. So tensors share a `Storage`, a token that has
no content, and each knows its path in it:

* a number: the number of nodes, from the top of its graph, that are movement ops on the storage's
  value. The node below is the root, which may be lazy, constant, or memory. Views cost a number
  more.
* `Away`: the view was computed by itself, into memory of its own, and its graph no longer shows the
  root. The moves that led to it are kept as data.

All members of a storage have the same content at any time: a write gives each a new node
(`tensor.assignment`). Between writes nothing is looked up. Python's reference count of the token
says whether there is more than one member.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from tilegrad.base.origin import goes_by
from tilegrad.base.recent import Bounded
from tilegrad.base.references import ONE_ATTRIBUTE
from tilegrad.ir.op import Ops
from tilegrad.ir.shape_tracker import ShapeTracker
from tilegrad.ir.uop import UOp, alive, sint
from tilegrad.ir.view import View
from tilegrad.tensor.handle.living import holders_of
from tilegrad.tensor.handle.size_arguments import is_one, same

__all__ = [
    "Alias", "Away", "Look", "Move", "Storage", "aliases_of_all", "can_move", "can_view",
    "deeper", "extended", "hold", "is_alone", "is_contiguous", "look", "look_of_call", "moved",
    "moves_to", "overlaps", "same_storage", "set_apart", "shared", "show", "shows", "steps",
    "strides_in", "times_detached", "valued",
]  # fmt: skip

Method = TypeVar("Method", bound=Callable[..., Any])
Move = tuple[Ops, Any]
# Moves that leave each element where it is in the row-major order.
_IN_ORDER = frozenset({Ops.RESHAPE, Ops.DETACH, Ops.CONTIGUOUS})
# Moves after which no two elements are one element of the root.
_ONE_TO_ONE = _IN_ORDER | {Ops.PERMUTE, Ops.SHRINK, Ops.FLIP}
_DETACH: Move = (Ops.DETACH, None)
_lock = threading.Lock()


class Storage:
    """The storage that aliases share. It is compared, and knows some of them: those that were made
    as aliases of all of it, for `aliases_of_all`.
    """

    __slots__ = ("_noted",)
    _noted: list[weakref.ref[Any]]

    def note(self, tensor: Any) -> None:
        """Know an alias. Most storages never have one."""
        try:
            noted = self._noted
        except AttributeError:
            noted = self._noted = []
        # At powers of two, so that the dead never outnumber the living by much.
        if len(noted) >= 8 and not len(noted) & (len(noted) - 1):
            noted[:] = [each for each in noted if each() is not None]
        noted.append(weakref.ref(tensor))

    def noted(self) -> list[Any]:
        """The tensors alive that it knows."""
        noted = [each() for each in getattr(self, "_noted", ())]
        return list({id(each): each for each in noted if each is not None}.values())


class Away(NamedTuple):
    """The path of an alias whose value was computed by itself: the root's shape, and the moves from
    the root to the alias.
    """

    shape: tuple[sint, ...]
    moves: tuple[Move, ...]


Alias = tuple[Storage, int | Away]


class Look(NamedTuple):
    """How an alias looks at its storage: the root's node (None if its graph does not show it) and
    shape, and the moves from the root to the alias.
    """

    root: UOp | None
    shape: tuple[sint, ...]
    moves: tuple[Move, ...]

    @property
    def is_in_order(self) -> bool:
        """Whether the alias has all elements of the root in their order."""
        return all(op in _IN_ORDER for op, _ in self.moves)

    def over(self, root: UOp) -> UOp:
        """The same look at a root of other content; its shape may differ, its order may not."""
        if root.shape != self.shape:
            root = UOp(Ops.RESHAPE, root.dtype, (root,), self.shape)
        return moved(root, self.moves)


def moved(node: UOp, moves: Sequence[Move]) -> UOp:
    """`moves`, one on another, on `node`; CONTIGUOUS asks for a copy, which no alias is."""
    for op, arg in moves:
        if op is not Ops.CONTIGUOUS:
            node = UOp(op, node.dtype, (node,), arg)
    return node


def shared(tensor: Any) -> Alias:
    """The storage of a tensor, that others are about to share, and its path there."""
    found: Alias | None = tensor._alias
    if found is None:
        # Two threads may look at one tensor for the first time.
        with _lock:
            found = tensor._alias
            if found is None:
                found = tensor._alias = (Storage(), 0)
                found[0].note(tensor)
    return found


def extended(path: int | Away, op: Ops, arg: Any) -> int | Away:
    """The path of a view of an alias that has `path`."""
    if isinstance(path, int):
        return path + 1
    return Away(path.shape, (*path.moves, (op, arg)))


def deeper(path: int | Away, moves: Sequence[Move]) -> int | Away:
    """The path of an alias under further movement ops, the last one first; it had `path`."""
    if isinstance(path, int):
        return path + len(moves)
    return Away(path.shape, (*path.moves, *reversed(moves)))


def is_alone(tensor: Any, known: int = 1) -> bool:
    """Whether no more than `known` tensors, this one among them, share its storage."""
    return tensor._alias is None or sys.getrefcount(tensor._alias[0]) < ONE_ATTRIBUTE + known


def valued(method: Method) -> Method:
    """Let the results of `method`, which ends with movement ops on what it has made itself, be
    values of their own: their elements are in memory in their order, as those of any result.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = method(*args, **kwargs)
        for each in made if isinstance(made, tuple) else (made,):
            if each is not None and each._alias is not None and is_alone(each):
                each._alias = None
        return made

    goes_by(call, method)
    return cast("Method", call)


def same_storage(first: Any, second: Any) -> bool:
    """Whether a write to one of two tensors is a write to the other."""
    if first is second:
        return True
    return first._alias is not None is not second._alias and first._alias[0] is second._alias[0]


def aliases_of_all(tensor: Any) -> list[Any] | None:
    """The tensors alive that share the storage of `tensor`, itself among them, where each of them
    looks at all of it as it is; None where another one may not.
    """
    if tensor._alias is None:
        return [tensor]
    members = [each for each in tensor._alias[0].noted() if same_storage(each, tensor)]
    if not is_alone(tensor, len(members)) or not any(each is tensor for each in members):
        return None
    return members if all(map(_is_all, members)) else None


def _is_all(tensor: Any) -> bool:
    """Whether a tensor has the elements of its storage as they are."""
    return all(op is Ops.DETACH for op, _ in moves_to(tensor))


def times_detached(moves: Sequence[Move]) -> int:
    """How often an alias that `moves` lead to was detached from its storage."""
    return sum(op is Ops.DETACH for op, _ in moves)


def moves_to(tensor: Any) -> tuple[Move, ...]:
    """The moves from the root of its storage to a tensor."""
    alias: Alias | None = tensor._alias
    if alias is None or alias[1] == 0:
        return ()
    if not isinstance(alias[1], Away):
        found = look_of_call(tensor)
        if found is not None:
            return found.moves
        # As its node is made, the path may become one that says the moves.
        looked = look(tensor)
        alias = tensor._alias
        if alias is None or not isinstance(alias[1], Away):
            return looked.moves
    return alias[1].moves


def look(tensor: Any) -> Look:
    """How a tensor looks at its storage."""
    node: UOp = tensor.uop
    path: int | Away = 0 if tensor._alias is None else tensor._alias[1]
    if isinstance(path, Away):
        if all(op in _IN_ORDER for op, _ in path.moves):
            # All of the storage: what it was computed to is a root as good as any.
            return Look(
                node, node.shape, tuple(move for move in path.moves if move[0] is Ops.DETACH)
            )
        return Look(None, path.shape, path.moves)
    moves: list[Move] = []
    for _ in range(path):
        # A gradient's step behind a DETACH belongs to that tensor, and not to the way it looks.
        is_mark = node.op is Ops.DETACH and not isinstance(node.arg, int)
        moves.append(_DETACH if is_mark else (node.op, node.arg))
        node = node.src[0]
    return Look(node, node.shape, tuple(reversed(moves)))


def look_of_call(tensor: Any) -> Look | None:
    """How a tensor whose call waits looks at its storage, without its nodes; None otherwise."""
    alias, call = tensor._alias, tensor._call
    if alias is None or not isinstance(alias[1], int) or call is None or call.inputs is None:
        return None
    return Look(None, *call.away(alias[1]))


def hold(tensor: Any, node: UOp, *, is_computed: bool) -> None:
    """Let `node` be the same value of a tensor. If it `is_computed`, it need not show the root;
    else it is the tensor's graph with something below replaced.
    """
    alias: Alias | None = tensor._alias
    if alias is not None and isinstance(alias[1], int) and alias[1]:
        _, shape, moves = look(tensor)
        root = _below(node, moves)
        if root is None or (is_computed and not _is_root(root, tensor)):
            tensor._alias = (alias[0], Away(shape, moves))
    tensor.uop = node


def shows(tensor: Any, node: UOp, moves: Sequence[Move]) -> bool:
    """Whether `node` is `moves` on the value of another member of a tensor's storage: the gradients
    of a view go through the node that it looks at.
    """
    root = _below(node, moves)
    return root is not None and _is_root(root, tensor)


def _is_root(node: UOp, tensor: Any) -> bool:
    """Whether another tensor of the same storage has the value `node`."""
    return any(each is not tensor and same_storage(each, tensor) for each in holders_of(node))


def _below(node: UOp, moves: Sequence[Move]) -> UOp | None:
    """The node below `moves`, the last movement ops of `node`; None if it ends with others."""
    for op, arg in reversed(moves):
        # A gradient's step behind a DETACH does not change where the elements are.
        if node.op is not op or (node.arg != arg and op is not Ops.DETACH):
            return None
        node = node.src[0]
    return node


def set_apart(tensor: Any) -> None:
    """Give a tensor that becomes a leaf a node that no alias has: `x.detach()` twice is one node,
    to which the gradients of both would go. The number in its DETACH is one that no graph has, be
    the leaf of that dead or not, and follows from those that are taken, so that a loop makes equal
    graphs.
    """
    node: UOp = tensor.uop
    is_view = tensor._alias is not None and tensor._alias[1] != 0 and not is_alone(tensor)
    if not is_view and all(each is tensor for each in holders_of(node)):
        return
    storage, path = shared(tensor)
    taken, number = 0, 1
    while alive(Ops.DETACH, node.dtype, (node,), number) is not None:
        taken, number = number, 2 * number
    while number - taken > 1:
        between = (taken + number) // 2
        if alive(Ops.DETACH, node.dtype, (node,), between) is not None:
            taken = between
        else:
            number = between
    tensor._alias = storage, extended(path, Ops.DETACH, number)
    tensor.uop = UOp(Ops.DETACH, node.dtype, (node,), number)


def show(tensor: Any, found: Look, root: UOp) -> None:
    """Let an alias that looks as `found` look at another root, which has the storage's content."""
    tensor.uop = found.over(root)
    if tensor._alias is not None:
        count = sum(op is not Ops.CONTIGUOUS for op, _ in found.moves)
        tensor._alias = tensor._alias[0], count


def is_contiguous(tensor: Any) -> bool:
    """Whether the elements of an alias are side by side in its storage, in row-major order."""
    return can_view(tensor, None)


def can_view(tensor: Any, sizes: tuple[sint, ...] | None) -> bool:
    """Whether a reshape of an alias is an alias: whether strides over its storage can say it. Where
    they cannot, it is a copy. Without `sizes`, as `is_contiguous`.
    """
    alias: Alias | None = tensor._alias
    if alias is None or alias[1] == 0:
        return True
    path, found = alias[1], look_of_call(tensor)
    if found is not None:
        looked = found.shape, found.moves, sizes
        answer = _answers.get(looked)
        if answer is None:
            answer = found.is_in_order or _can_be_seen(found, tensor.shape, sizes)
            _answers.put(looked, answer)
        return answer
    node: UOp = tensor.uop
    shape = node.shape
    if isinstance(path, Away):
        found = look(tensor)
        return found.is_in_order or _can_be_seen(found, shape, sizes)
    # As one flat key, and of a window its size only: where it begins has no say in this.
    key: list[Any] = [sizes]
    is_in_order = True
    for _ in range(path):
        op = node.op
        if op is Ops.RESHAPE:
            key.append(node.arg)
        elif op not in _IN_ORDER:
            is_in_order = False
            key += op.serial, (node.shape if op is Ops.SHRINK else node.arg)
        node = node.src[0]
    if is_in_order:
        return True
    key.append(node.shape)
    known = tuple(key)
    answer = _answers.get(known)
    if answer is None:
        answer = _can_be_seen(look(tensor), shape, sizes)
        _answers.put(known, answer)
    return answer


def _can_be_seen(found: Look, shape: tuple[sint, ...], sizes: tuple[sint, ...] | None) -> bool:
    """As `can_view`, of an alias of a `shape` that looks as `found`."""
    if sizes is None:
        return _is_row_major(_tracker(found.shape, found.moves))
    without_ones = [[size for size in each if size != 1] for each in (shape, sizes)]
    return without_ones[0] == without_ones[1] or _can_reshape(found.shape, found.moves, sizes)


def _is_row_major(tracker: ShapeTracker) -> bool:
    if len(tracker.views) != 1 or tracker.views[0].mask is not None:
        return False
    view = tracker.views[0]
    following: sint = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides)):
        if not is_one(size) and not same(stride, following):
            return 0 in view.shape
        following = following * size
    return True


# By what is asked: reshapes of views recur with the same sizes.
_answers: Bounded[tuple[Any, ...], bool] = Bounded(4096)


def can_move(path: Away, moves: Sequence[Move]) -> bool:
    """Whether `moves` on an alias that has `path` give an alias: so it is unless one is a reshape
    that strides over the storage cannot say.
    """
    key = path, tuple(moves)
    answer = _answers.get(key)
    if answer is None:
        shape, taken = path
        answer = True
        for op, arg in moves:
            if op is Ops.RESHAPE and answer:
                without_ones = [[size for size in each if size != 1] for each in (shape, arg)]
                answer = (
                    all(each in _IN_ORDER for each, _ in taken)
                    or without_ones[0] == without_ones[1]
                    or _can_reshape(shape, taken, arg)
                )
            taken = (*taken, (op, arg))
        _answers.put(key, answer)
    return answer


def _can_reshape(shape: tuple[sint, ...], moves: tuple[Move, ...], sizes: tuple[sint, ...]) -> bool:
    views = _tracker(shape, moves).views
    return len(views) == 1 and views[0].reshape(sizes) is not None


def _tracker(shape: tuple[sint, ...], moves: Sequence[Move]) -> ShapeTracker:
    found = ShapeTracker.from_shape(shape)
    for op, arg in moves:
        if op is Ops.RESHAPE:
            found = found.reshape(arg)
        elif op is Ops.PERMUTE:
            found = found.permute(arg)
        elif op is Ops.EXPAND:
            found = found.expand(arg)
        elif op is Ops.SHRINK:
            found = found.shrink(arg)
        elif op is Ops.PAD:
            found = found.pad(arg)
        elif op is Ops.FLIP:
            found = found.flip(arg)
    return found


def overlaps(found: Look) -> bool:
    """Whether several elements of an alias are, or may be, one element of its storage."""
    if all(op in _ONE_TO_ONE for op, _ in found.moves):
        return False
    views = _tracker(found.shape, found.moves).views
    if len(views) != 1 or views[0].mask is not None:
        return True
    # The steps, smallest first, must each pass over all that the smaller ones reach.
    reach: Any = 0
    axes = zip(views[0].strides, views[0].shape)
    steps: list[tuple[Any, Any]] = [(stride, size) for stride, size in axes if size != 1]
    if not all(isinstance(entry, int) for step in steps for entry in step):
        return any(isinstance(stride, int) and stride == 0 for stride, _ in steps)
    for stride, size in sorted((abs(stride), size) for stride, size in steps):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def steps(tensor: Any) -> tuple[tuple[sint, ...], sint]:
    """The strides of an alias over its storage, and the position of its first element there, in
    elements; as in row-major memory of its own where strides cannot say it, as for a flipped axis.
    """
    found = _strided_view(tensor)
    view = ShapeTracker.from_shape(tensor.shape).views[0] if found is None else found
    # A view's axis of one element has the stride 0; PyTorch counts on as for a longer one.
    strides = list(view.strides)
    following: sint = 1
    for axis in range(len(strides) - 1, -1, -1):
        size = view.shape[axis]
        if size == 1:
            strides[axis] = following
        following = strides[axis] * size if strides[axis] else following
    return tuple(strides), view.offset


def strides_in(tensor: Any) -> tuple[tuple[int, ...], int] | None:
    """As `steps`; None where strides cannot say it, or are not known numbers."""
    if _strided_view(tensor) is None:
        return None
    strides, offset = steps(tensor)
    if not isinstance(offset, int) or not all(isinstance(step, int) for step in strides):
        return None
    return tuple(step for step in strides if isinstance(step, int)), offset


def _strided_view(tensor: Any) -> View | None:
    """How an alias lies in its storage, if strides of at least 0 can say it."""
    found = look_of_call(tensor) or look(tensor)
    views = _tracker(found.shape, found.moves).views
    if len(views) != 1 or views[0].mask is not None or any(step < 0 for step in views[0].strides):
        return None
    return views[0]
