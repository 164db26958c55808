"""Assignment: a tensor that keeps its memory and takes another value.

Pending readers get the old value: the engine runs them before the write, in one schedule.
"""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.config import gradients
from tilegrad.base.errors import DTypeError, ShapeError
from tilegrad.device.disk import is_file
from tilegrad.engine.realize.realize import exclusive
from tilegrad.grad.regions import unrecorded, without_outputs
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.tensor.calls.postponed import alias
from tilegrad.tensor.composed.solutions import Algebra
from tilegrad.tensor.handle.aliases import (
    Look,
    is_alone,
    look,
    overlaps,
    same_storage,
    shared,
    show,
    times_detached,
)
from tilegrad.tensor.handle.core import Core, check_devices, compute, describe, live
from tilegrad.tensor.handle.leaf_copies import of_leaf
from tilegrad.tensor.handle.living import ends, owners
from tilegrad.tensor.handle.replaced import become, take_result
from tilegrad.tensor.handle.size_arguments import is_one, merge, same_shape, show_shape
from tilegrad.tensor.handle.tracing import is_open
from tilegrad.tensor.indexing.keys import has_tensor
from tilegrad.tensor.storage import file_tensors, memory, running, writes
from tilegrad.tensor.writing.alias_writes import (
    Write,
    after_write,
    depths_of_leaves,
    is_leaf_with_gradient,
    plain_look,
    show_with_gradient,
    unseen_by_gradients,
    written_to,
)
from tilegrad.tensor.writing.at_once import become_memory, has_written
from tilegrad.tensor.writing.recorded_writes import become_another, can_become_another
from tilegrad.tensor.writing.slice_writes import take_slice
from tilegrad.tensor.writing.undo import is_noting, note

__all__ = ["Assignment"]


# Assignments to parts of one memory that wait: with more, their graph would be slow to schedule.
_MOST_WAITING = 32


class Assignment(Algebra):
    """Assignment, whole and in part."""

    __slots__ = ()

    def replace(self, other: Self) -> Self:
        """Make this tensor an alias of `other`, whatever its shape and dtype; nothing is written to
        memory.

        Args:
            other: the tensor to be from now on.

        Returns this tensor, which has the shape and dtype of `other`.

        >>> x = Tensor([1, 2])
        >>> x.replace(Tensor([3, 4])).tolist()
        [3, 4]
        """
        same = alias(other)
        if same is not None and become(self, same):
            return self
        storage, path = shared(other)
        self.uop, self.device, self._variables = other.uop, other.device, other._variables
        self._previous, self._is_shared, self._alias = (), other._is_shared, (storage, path)
        return self

    def assign(self, value: Any) -> Self:
        """Write `value` into this tensor and all its aliases.

        Views of the same memory take the value with it, made before or after. Values computed from
        them before keep the old value. A tensor in memory is written in place when one of its
        aliases is realized, after everything that still needs its old value; one of at most 1 MiB
        that has no other alias takes other memory, when anything is realized. A tensor in a file is
        written at once, by a value from any device.

        Args:
            value: a tensor of this shape, dtype and device, or what makes one.

        Returns this tensor.

        Raises ShapeError, DTypeError or DeviceError unless `value` has this tensor's shape, dtype
        and device; ShapeError for a view in which an element stands several times (`expand`);
        DTypeError for a view of a leaf that requires a gradient.

        >>> x = Tensor([1, 2, 3, 4])
        >>> x.reshape(2, 2)[1].assign(Tensor([7, 8])).tolist(), x.tolist()
        ([7, 8], [1, 2, 7, 8])
        """
        return self._assign(value)

    def _assign(self, value: Any, *, wants_grad: bool | None = None, is_new: bool = False) -> Self:
        """As `assign`; with `wants_grad`, the aliases require a gradient from now on. A value that
        `is_new` has no other holders.
        """
        if isinstance(value, Core) and not is_new and self._call is None:
            # Else a loop of `x.copy_(f(x))` without reads is one graph.
            become_memory(self)
        if isinstance(value, Core) and writes.can_wait(self, value):
            with exclusive():
                for each in writes.seen_by(self):
                    note(each)
                writes.put_off(self, value)
            return self
        if is_new:
            with exclusive():
                note(self)
                if writes.take_over(self, value):
                    return self
        other = self._assignable(value)
        # Asked before a variable here holds the node.
        is_sole = memory.is_sole(self)
        if other.uop is self.uop:
            return self
        if is_file(self.device):
            if self._has_elements():
                file_tensors.write(self, ..., other)
            return self
        if self._has_elements():
            self._take("assign", other, is_sole=is_sole, wants_grad=wants_grad)
        return self

    def _take(
        self, name: str, other: Self, *, is_sole: bool = False, wants_grad: bool | None = None
    ) -> None:
        """Let this tensor and its aliases see `other`, of its shape and dtype, written to it.

        Args:
            is_sole: whether nothing but this tensor stands on its memory.
            wants_grad: whether aliases require a gradient from now on, as `other` does.
        """
        # No other thread realizes or writes to an alias meanwhile.
        with exclusive():
            self._write(name, other, is_sole=is_sole, wants_grad=wants_grad)

    def _write(self, name: str, other: Self, *, is_sole: bool, wants_grad: bool | None) -> None:
        found = look(self)
        if overlaps(found):
            raise ShapeError(
                f"{name}: several elements of this view are one element of what it views",
                tensor=describe(self.uop),
                remedy="write to what it views, or to a clone() of it",
            )
        aliases = self._aliases()
        if len(aliases) > 1:
            looks = [plain_look(look(each)) for each in aliases]
            found = plain_look(found)
        else:
            found = Look(without_outputs(self.uop), self.shape, ())
            looks = [found]
        value = self._allowed(name, other, found, depths_of_leaves(aliases, looks))
        if times_detached(found.moves):
            # Those that it was detached from take no gradient of it.
            value = other.detach().uop if other._requires_grad else value
        elif value is not other.uop:
            wants_grad = False
        unseen = unseen_by_gradients(found, aliases, looks, wants_grad)
        variables = merge(self._variables, other._variables)
        write = Write(found, aliases, looks, value, variables, unseen, other.uop, bool(wants_grad))
        own = self._own_root(write)
        if wants_grad and own is not None:
            waits = memory.version_of(own).op is Ops.ASSIGN
            if memory.is_stored(own) or (waits and found.is_in_order):
                # The gradient may need what is there: the value is written to other memory.
                own = None
        if not found.is_in_order:
            write = write._replace(resumed=self._resumed(write))
            self._write_view(write, self._in_memory(write) if own is None else own)
        elif own is None:
            self._become_value(write)
        elif memory.is_whole(own) and memory.is_in_order(own):
            # An unread value is not written first.
            target = memory.without_detach(found.over(memory.unwritten(own) if is_sole else own))
            version = memory.version_of(own)
            self._show(write, compute(Ops.ASSIGN, value.dtype, (target, value)))
            memory.supersede(version)
        else:
            self._write_view(write, own)
        if wants_grad:
            for each, is_unseen in zip(aliases, unseen):
                if not (each._requires_grad or is_unseen):
                    each._requires_grad, each._is_leaf = True, False

    def _resumed(self, write: Write) -> list[bool]:
        """For each alias, whether the gradient of the elements that are not written goes on to its
        value before this write, by a graph of its own: where an earlier write to one of them was
        one that gradients took no notice of.
        """
        depth = times_detached(write.found.moves)
        are_seen = [
            bool(gradients.get() and each._requires_grad and not (each._is_leaf or is_unseen))
            and times_detached(seen.moves) == depth
            for each, seen, is_unseen in zip(write.aliases, write.looks, write.unseen)
        ]
        seeing = [each for each, is_seen in zip(write.aliases, are_seen) if is_seen]
        roots = [look(each).root if len(write.aliases) > 1 else each.uop for each in seeing]
        is_apart = any(root is not None and without_outputs(root) is not root for root in roots)
        return are_seen if is_apart else []

    def _aliases(self) -> list[Self]:
        """The tensors alive that share this one's storage, itself among them."""
        if is_alone(self):
            return [self]
        everyone: Any = live()
        return [tensor for tensor in everyone if same_storage(tensor, self)]

    def _allowed(self, name: str, other: Self, found: Look, of_leaves: set[int]) -> UOp:
        """The graph of a value that aliases of a leaf may take; `of_leaves` says how often leaves
        among the aliases were detached.

        Raises DTypeError for a view of a leaf that requires a gradient.
        """
        depth = times_detached(found.moves)
        if all(depth < each for each in of_leaves):
            # There is none, or it was detached from what is written to.
            return other.uop
        is_view = (
            self._requires_grad and not self._is_leaf and times_detached(found.moves) in of_leaves
        )
        if is_view and gradients.get():
            raise DTypeError(
                f"{name}: a view of a leaf that requires a gradient cannot be written to",
                tensor=describe(self.uop),
                remedy="write to a view of its detach(), or to a clone() of it",
            )
        # The leaf keeps a gradient of its own, and none flows on from it.
        is_cut = other._requires_grad or not gradients.get()
        return other.detach().uop if is_cut else other.uop

    def _own_root(self, write: Write) -> UOp | None:
        """The root of the storage as memory that is no other tensor's; None if it has none yet."""
        for each, seen in zip(write.aliases, write.looks):
            if seen.root is not None and each._is_in_own_memory(seen.root):
                return seen.root
        return None

    def _is_in_own_memory(self, root: UOp) -> bool:
        """Whether `root`, which this tensor looks at, is memory, and that of no tensor that is not
        an alias of it.
        """
        if self._is_shared or not memory.is_view(root) or memory.is_superseded(root):
            return False
        reference = owners.get(memory.base_of(root))
        owner = None if reference is None else reference()
        if owner is None:
            # Other aliases of the tensor that is gone may look at the rest of it.
            return memory.is_whole(root) and memory.is_in_order(root)
        return owner._is_shared or same_storage(owner, self)

    def _in_memory(self, write: Write) -> UOp:
        """Memory for a storage that has none: its value written there, or those of the aliases,
        where none of their graphs shows it.
        """
        for each, seen in zip(write.aliases, write.looks):
            if seen.root is not None:
                node = memory.owned(seen.root, self.device)
                running.put_off(node, each._variables)
                return node
        node = memory.empty(self.device, self.dtype, write.found.shape)
        for each, seen in zip(write.aliases, write.looks):
            node = after_write(node, seen.over(node), each.uop, each._variables)
        return node

    def _bring_together(self) -> None:
        """Let this tensor, which is in memory, and its aliases look at one memory."""
        aliases = self._aliases()
        looks = [look(each) for each in aliases]
        unseen = [False] * len(aliases)
        node = self.uop
        write = Write(looks[0], aliases, looks, node, self._variables, unseen, node, False)
        if len(aliases) == 1:
            return
        own = self._own_root(write)
        if own is None:
            root = self._in_memory(write)
            self._show(write, root)
            running.run([memory.version_of(root)], self._variables)
        elif memory.base_of(node) is not memory.base_of(own) or look(self).root is None:
            # It was computed by itself, or does not show that it looks there.
            self._show(write, own)

    def _become_value(self, write: Write) -> None:
        """Let the storage have the value for its content, where nothing is in memory yet."""
        fresh = self._of(write.value, self.device).contiguous().uop
        for leaf in filter(is_leaf_with_gradient, write.aliases):
            fresh = of_leaf(leaf, fresh)
        self._show(write, fresh)
        for each in write.aliases:
            each._variables = merge(each._variables, write.variables)

    def _write_view(self, write: Write, own: UOp) -> None:
        """Let the value be written to the part of the memory `own` at which this tensor looks."""
        version = memory.version_of(own)
        fresh = after_write(own, write.found.over(own), write.value, write.variables)
        self._show(write, fresh, is_partial=True)
        memory.supersede(version)
        latest = memory.version_of(fresh)
        if memory.writes_before(latest) >= _MOST_WAITING and not is_open(latest):
            running.run([latest], write.variables)

    def _show(self, write: Write, root: UOp, *, is_partial: bool = False) -> None:
        """Let the aliases look at `root` instead of at what their storage was. Where a part was
        written, no gradient flows on from a leaf to what it was before.
        """
        every = depths_of_leaves(write.aliases, write.looks)
        of_leaves = every if is_partial else ()
        of_leaf = unrecorded(root, lambda gradient: gradient, None) if of_leaves else root
        resumed = write.resumed or [False] * len(write.aliases)
        for each, seen, is_unseen, is_resumed in zip(
            write.aliases, write.looks, write.unseen, resumed
        ):
            note(each)
            previous = writes.earlier_leaf(each, each.uop)
            old = each.uop if each._requires_grad else None
            target = None
            if times_detached(seen.moves) not in every:
                # A view of a leaf has the gradient of the present value, as the leaf has.
                target = self._target(write, each, seen, is_unseen=is_unseen)
            if target is not None:
                show_with_gradient(each, seen, root, target)
            elif is_unseen:
                show(each, seen, unrecorded(root, seen.over, old))
            elif is_resumed:
                show(each, seen, unrecorded(root, seen.over, written_to(write, seen, each.uop)))
            else:
                show(each, seen, of_leaf if times_detached(seen.moves) in of_leaves else root)
            each._previous, each._is_shared = previous, False
            if each._requires_grad and each._is_leaf:
                ends.add(each.uop)
        if len(write.aliases) > 1:
            running.put_off(root, write.variables)
        else:
            self._variables = write.variables

    def _target(self, write: Write, each: Self, seen: Look, *, is_unseen: bool) -> UOp | None:
        """Where the gradient of a detached alias goes that requires one; None for another one."""
        if not times_detached(seen.moves) or is_leaf_with_gradient(each):
            return None
        if is_unseen:
            return each.uop if each._requires_grad else None
        if not (each._requires_grad or (write.wants_grad)):
            return None
        return write.given if each is self else written_to(write, seen, each.uop)

    def _assignable(self, given: Any) -> Self:
        """`given` as a tensor, if it fits this one exactly; a number fits any shape."""
        value = self._as_tensor(given)
        if value is not given and value.uop.op is Ops.CONST:
            value = value.expand(self.shape)
        if not same_shape(value.shape, self.shape):
            raise ShapeError(
                f"assign: shapes differ: {show_shape(self.shape)} and {show_shape(value.shape)}",
                target=describe(self.uop),
                value=describe(value.uop),
            )
        if value.dtype is not self.dtype:
            raise DTypeError(
                f"assign: dtypes differ: {self.dtype.name} and {value.dtype.name}",
                target=describe(self.uop),
                value=describe(value.uop),
                remedy=f"cast the value: .cast({self.dtype!r})",
            )
        is_constant = value._call is None and value.uop.is_constant
        if not is_constant and not is_file(self.device):
            check_devices("assign", [self, value])
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write `value` to the elements that `key` picks, when this tensor or one of its aliases is
        realized.

        Raises ShapeError if `value` does not stretch to the picked shape, or the picked elements
        stand several times in what this is a view of; DTypeError for a tensor that requires a
        gradient and its views.

        >>> x = Tensor([1, 2, 3]); x[1:] = 0; x.tolist()
        [1, 0, 0]
        """
        if self._requires_grad and self._is_leaf and gradients.get():
            raise DTypeError(
                "setitem: a leaf that requires a gradient cannot be written in part",
                tensor=describe(self.uop),
                remedy="write to a clone() of it, or under tilegrad.no_grad() for no gradient",
            )
        value, wants_grad = self._wants_grad(value)
        if not self._has_elements():
            return
        if is_file(self.device):
            file_tensors.write(self, key, self._as_tensor(value).cast(self.dtype))
            return
        with exclusive():
            note(self)
            if has_written(self, key, value) or take_slice(self, key, value):
                return
        if has_tensor(key):
            if writes.is_put_off(self):
                # Else a loop of writes without reads is one graph.
                self.realize()
            # A template in which a constant is written to has one size.
            become_memory(self)
            is_recorded = can_become_another(self, value)
            made = self._written(key, value)
            with exclusive():
                if writes.take_over(self, made) or (is_recorded and become_another(self, made)):
                    return
                if made is not self and writes.can_wait_for_slice(self, made):
                    writes.put_off(self, made)
                    return
            self._take("setitem", made, wants_grad=wants_grad)
            return
        with exclusive():
            self._write_slices(key, value, wants_grad=wants_grad)

    def _write_slices(self, key: Any, value: Any, *, wants_grad: bool | None) -> None:
        """Write `value` to the elements that numbers and slices pick."""
        view = self[key]
        new = self._as_tensor(value).cast(self.dtype)
        # Axes of size 1 in front of the picked ones are no matter.
        while new.ndim > view.ndim and is_one(new.shape[0]):
            new = new.reshape(new.shape[1:])
        new = new.expand(view.shape)
        check_devices("setitem", [self, new])
        # `x[1:] += 1` has written the slice before it is set to itself.
        if not view._has_elements():
            if wants_grad:
                self._take("setitem", self._beside_empty(new), wants_grad=wants_grad)
        elif new.uop is not view.uop:
            view._take("setitem", new, wants_grad=wants_grad)

    def _wants_grad(self, value: Any) -> tuple[Any, bool]:
        """A value to be written here, cut from its graph where no gradients are recorded; and
        whether this tensor requires a gradient because of it.
        """
        if not (isinstance(value, Core) and self.dtype.is_float and value._requires_grad):
            return value, False
        given: Any = value
        return (given, True) if gradients.get() else (given.detach(), False)

    def _update(self, value: Any, *, is_new: bool = False) -> Self:
        """As `assign`, for what PyTorch refuses to do to a leaf that requires a gradient. A tensor
        that requires none does so after it took a value that does.

        Args:
            is_new: whether `value` has no other holders.

        Raises DTypeError for such a leaf, else as `assign`.
        """
        if is_new and not is_noting() and take_result(self, value):
            return self
        if self._requires_grad and self._is_leaf and gradients.get():
            raise DTypeError(
                "assign: a leaf that requires a gradient cannot be changed in place",
                tensor=describe(self.uop),
                remedy="say assign(value), or write to it under tilegrad.no_grad()",
            )
        value, wants_grad = self._wants_grad(value)
        return self._assign(value, wants_grad=wants_grad, is_new=is_new)
