"""`torch.Tensor`: tilegrad's tensor with PyTorch's semantics where the two differ.

Differences: reductions of one axis and sorts give named pairs, indices are int64, `grad` of a loss
of one element in any shape, `data`, `requires_grad` that is a bool, devices and shapes that print
as PyTorch's, operands without axes that give way in dtype, and the modes of thread_modes.py. All
else is the class below, whose methods never call what is overridden here with another meaning;
`where` of two conditions, which both use, looks at who calls.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy

from tilegrad.base.dtype import DType, dtypes, spellings
from tilegrad.base.errors import DTypeError
from tilegrad.engine.run.leaf_memory import OverwrittenError
from tilegrad.engine.run.run import current_recording
from tilegrad.grad.regions import unrecorded
from tilegrad.ir.uop import UOp
from tilegrad.nn.tree import Paired
from tilegrad.tensor import tensor as ours
from tilegrad.tensor.calls.postponed import alias
from tilegrad.tensor.handle.absent_names import declare_absent
from tilegrad.tensor.handle.aliases import can_view, is_alone, same_storage, shared
from tilegrad.tensor.handle.core import device_of, set_device
from tilegrad.tensor.handle.living import Some, with_gradient
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.handle.waiting import this_thread
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.tensor.views.in_memory import rows_of_memory
from tilegrad.torch import tensor_printing, thread_modes
from tilegrad.torch.absent_hints import hint_of
from tilegrad.torch.argument_methods import is_called_within
from tilegrad.torch.converting import Converting
from tilegrad.torch.copying import copied_with_aliases
from tilegrad.torch.device_names import as_device, device, is_meta, name_of
from tilegrad.torch.differentiable import Differentiable, follow_retained, retaining
from tilegrad.torch.dtype_spelling import spelled
from tilegrad.torch.expanded import Expanded
from tilegrad.torch.function_protocol import Overridable
from tilegrad.torch.hints import METHODS
from tilegrad.torch.later_leaves import leave_earlier_results
from tilegrad.torch.methods import adjust
from tilegrad.torch.mixed_operands import MixedOperands
from tilegrad.torch.promotion import kind_of
from tilegrad.torch.reduction_methods import Reductions
from tilegrad.torch.resizing import Resizing
from tilegrad.torch.size import Size
from tilegrad.torch.steps import noted_methods, step_of
from tilegrad.torch.storage import InMemory
from tilegrad.torch.subscripts import Subscripts

__all__ = ["Tensor", "as_ours", "with_ours", "written"]

_state = thread_modes.state
_MOST_MADE = 1 << 12


class _Kind(type(ours.Tensor)):  # type: ignore[misc]
    """The type of `Tensor`: complex numbers are tensors, too."""

    def __instancecheck__(cls, value: object) -> bool:
        return super().__instancecheck__(value) or (cls is Tensor and isinstance(value, Paired))

    def __subclasscheck__(cls, kind: type) -> bool:
        return super().__subclasscheck__(kind) or (
            cls is Tensor and Paired in getattr(kind, "__mro__", ())
        )


class _AbsentNames:
    """Attributes of PyTorch's tensors that are absent here, by name."""

    __slots__ = ()


declare_absent(METHODS, _AbsentNames)


class Tensor(  # type: ignore[misc]
    Subscripts, MixedOperands, InMemory, Resizing, Expanded, Converting, Reductions,
    Overridable, Differentiable, _AbsentNames, metaclass=_Kind,
):  # fmt: skip
    """An array of one dtype on one device, computed when its values are asked for.

    `torch.tensor(data)` makes one. As in PyTorch, the class itself gives float32 of a list, and
    memory of some shape of integers.

    >>> import tilegrad.torch as torch
    >>> values, indices = torch.tensor([[1.0, 5.0], [7.0, 2.0]]).max(dim=1)
    >>> values.tolist(), indices.tolist()
    ([5.0, 7.0], [1, 0])
    """

    _at_once = True
    # Whether a module trains this.
    _is_parameter = False

    @staticmethod
    def _hint_of(name: str) -> str | None:
        return hint_of(f"torch.Tensor.{name}")

    def __new__(cls, *data: Any, **options: Any) -> Self:
        """A tensor; of a class that a program derives with its values already, so that the
        `__init__` there is its own.
        """
        made = super().__new__(cls)
        if cls is not Tensor:
            Tensor.__init__(made, *data, **options)
        return made

    def __init__(
        self,
        *data: Any,
        device: Any = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ):
        if type(self) is not Tensor and hasattr(self, "_requires_grad"):
            # `__new__` has made it.
            return
        if device is None and dtype is None:
            # PyTorch's old constructor.
            if all(isinstance(size, int) and not isinstance(size, bool) for size in data) and data:
                data = (numpy.zeros(data, numpy.float32),)
            elif len(data) == 1 and not isinstance(data[0], (OurTensor, UOp)):
                dtype = dtypes.default_float
        name = None if device is None else name_of(device)
        (given,) = data or (None,)
        super().__init__(given, name, dtype, requires_grad)

    def _set(
        self, uop: UOp, device: str, variables: Any, requires_grad: bool | None, *, leaf: bool
    ) -> None:
        made = _state.made
        if made is not None:
            requires_grad = None if requires_grad else requires_grad
            made.append(weakref.ref(self))
            if not len(made) % _MOST_MADE:
                made[:] = [each for each in made if each() is not None]
        ours.Tensor._set(self, uop, device, variables, requires_grad, leaf=leaf)

    # what is known without computing

    if not TYPE_CHECKING:

        @property
        def device(self) -> device:
            """The device, which prints as PyTorch's."""
            return as_device(device_of(self))

        @device.setter
        def device(self, name: str) -> None:
            set_device(self, name)

        @property
        def shape(self) -> Size:
            """The sizes."""
            call = self._call
            return Size(self._node.shape if call is None else call.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        found = super().size(dim)
        return Size(found) if dim is None else found

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` keeps a gradient for this tensor, or flows through it."""
        return bool(self._requires_grad)

    @requires_grad.setter
    def requires_grad(self, wanted: bool | None) -> None:
        if wanted is not None and not isinstance(wanted, bool):
            raise RuntimeError("requires_grad must be a bool")
        if not wanted and self._requires_grad and not self._is_leaf:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables: use detach() for a "
                "tensor that requires no gradient."
            )
        if wanted and not self._requires_grad and self.dtype.is_float:
            leave_earlier_results(self)
        ours.Tensor.requires_grad.__set__(self, wanted)  # type: ignore[attr-defined]

    @property  # type: ignore[override]
    def data(self) -> Self:
        """The same memory without gradients; to assign is to take another tensor's."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, OurTensor):
            shown = type(value).__name__
            raise TypeError(f"Variable data has to be a tensor, but got {shown}")
        if same_storage(self, value) and self.shape == value.shape:
            return
        wanted, is_leaf = self._requires_grad, self._is_leaf
        if not wanted:
            self.replace(as_ours(value).detach())
            ours.Tensor.requires_grad.__set__(self, wanted)  # type: ignore[attr-defined]
            return
        old = self.uop
        earlier = (*self._earlier_references(), weakref.ref(old))
        self._requires_grad = None
        self.replace(as_ours(value).detach())
        if not is_leaf and value.shape == old.shape:
            # A tensor that was computed keeps its gradient.
            self.uop = unrecorded(self.uop, lambda gradient: gradient, old)
            self._requires_grad, self._is_leaf = True, False
            return
        ours.Tensor.requires_grad.__set__(self, wanted)  # type: ignore[attr-defined]
        self._previous = earlier

    # where values come out

    def numpy(self, force: bool = False) -> Any:
        """The values as a NumPy array of its own, which may be written to.

        Raises RuntimeError for a tensor that requires a gradient, unless `force`.
        """
        if self._requires_grad and not force:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. "
                "Use tensor.detach().numpy() instead."
            )
        if is_meta(device_of(self)):
            raise TypeError(
                "can't convert meta device type tensor to numpy: it has a shape and no values"
            )
        found = super().numpy()
        return found if found.flags.writeable else found.copy()

    def item(self) -> Any:
        """The value of the only element.

        Raises RuntimeError on the device `meta`.
        """
        if is_meta(device_of(self)):
            raise RuntimeError(
                "Tensor.item() cannot be called on meta tensors: they have a shape and no values"
            )
        return super().item()

    def tolist(self) -> Any:
        """The values as nested lists.

        Raises NotImplementedError on the device `meta`.
        """
        if is_meta(device_of(self)):
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return super().tolist()

    def __repr__(self) -> str:
        is_parameter = getattr(self, "_is_parameter", False)
        notes = "" if self.is_leaf else f"grad_fn=<{step_of(self).name()}>"
        if self._requires_grad and self._is_leaf:
            notes = "requires_grad=True"
        if is_meta(device_of(self)):
            text = tensor_printing.without_values(self.shape, self.dtype, notes)
            return f"Parameter containing:\n{text}" if is_parameter else text
        array = numpy.asarray(self.detach().float() if self.dtype.is_float else self.detach())
        text = tensor_printing.text_of(array, self.dtype, device_of(self), notes)
        return f"Parameter containing:\n{text}" if is_parameter else text

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return str(self) if self.ndim else format(self.item(), spec)

    def __eq__(self, other: object) -> Any:
        try:
            return super().__eq__(other)
        except DTypeError:
            if isinstance(other, (OurTensor, bool, int, float)):
                raise
            return NotImplemented  # None and texts are not equal to a tensor.

    def __ne__(self, other: object) -> Any:
        try:
            return super().__ne__(other)
        except DTypeError:
            if isinstance(other, (OurTensor, bool, int, float)):
                raise
            return NotImplemented

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Iterator[Self]:
        # Pairs have a class of their own here.
        if not self.ndim:
            return super().__iter__()
        rows: list[Self] | None = rows_of_memory(self)
        return iter([self[index] for index in range(len(self))] if rows is None else rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment: detach() this one first."
            )
        copied: Self = copied_with_aliases(self, memo)
        copied._is_leaf = True
        copied.__dict__.update(self.__dict__)
        if self._requires_grad:
            copied.requires_grad = True
        # The copy of a parameter begins without a gradient, as in PyTorch.
        if self._gradient is not None and not getattr(self, "_is_parameter", False):
            copied.grad = self._gradient.detach().clone()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> Self:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user can be copied")
        made: Self = self.detach()
        made._is_leaf = True
        made.__dict__.update(self.__dict__)
        if self._requires_grad:
            made.requires_grad = True
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # Attributes that a program or a module has set on it: a parameter comes back as one.
        return (*super().__reduce__(), dict(self.__dict__))

    # writing

    def _update(self, value: Any, *, is_new: bool = False) -> Self:
        dtype = self.dtype
        if isinstance(value, OurTensor) and value.dtype is not dtype:
            if kind_of(value.dtype) == kind_of(dtype):
                value = value.cast(dtype)
        if _state.made is None or not self._requires_grad:
            super()._update(value, is_new=is_new)
            if len(retaining):
                follow_retained(self)
            return self
        return self.assign(value.detach() if isinstance(value, OurTensor) else value)

    def _take(
        self, name: str, other: Any, *, is_sole: bool = False, wants_grad: bool | None = None
    ) -> None:
        super()._take(name, other, is_sole=is_sole, wants_grad=wants_grad)
        if not this_thread.stand_ins:  # These have no value, and an error that is kept keeps them.
            written.tensors.add(self)
        if len(retaining):
            follow_retained(self)
        if not _state.is_stepping and self._moves_leaf():
            _settle(self)

    def _moves_leaf(self) -> bool:
        """Whether what is written to this tensor is written to one that is trained."""
        if self._requires_grad and self._is_leaf:
            return True
        aliases = () if is_alone(self) else self._aliases()
        return any(each._requires_grad and each._is_leaf for each in aliases)

    def _alias_of_all(self, root: UOp) -> Any:
        made = _alias_of(self)
        storage, _ = shared(self)
        made.uop, made._alias = root, (storage, 0)
        storage.note(made)
        return made

    def _alike(self) -> Tensor:
        """A view of all of it, which is a tensor of its own and no leaf; detached where nothing is
        recorded, as other views are then.
        """
        if self._requires_grad and _state.made is not None:
            return self.detach()
        waiting: Tensor | None = alias(self)
        return _alias_of(self) if waiting is None else waiting

    def view(self, *sizes: Any, **options: Any) -> Any:
        """The same memory in another shape; with a dtype alone, the same bits in that dtype.

        Raises RuntimeError where strides over that memory cannot say the shape.
        """
        if len(sizes) == 1 and isinstance(sizes[0], DType):
            return self.bitcast(sizes[0])
        found = super().view(*sizes, **options)
        if self._alias is not None and not can_view(self, found.shape):
            raise RuntimeError(
                f"view: the elements of this tensor {tuple(self.shape)} are not in memory in an "
                f"order that {tuple(found.shape)} can view: use reshape, or contiguous() first"
            )
        return found

    def where(self, *args: Any, **options: Any) -> Any:
        """This tensor where a condition holds, else `other`; of a condition that is given no other
        one, the choice itself.
        """
        condition = options.get("condition", args[0] if args else None)
        if isinstance(condition, OurTensor) and condition.dtype is dtypes.bool:
            # Two conditions: tilegrad's own methods choose by the first, programs by the second.
            if self.dtype is dtypes.bool and is_called_within(sys._getframe(1)):
                return super().where(*args, **options)
            other = options.get("other", args[1] if len(args) > 1 else options.get("y"))
            return OurTensor.where(as_ours(condition), self, other)
        return super().where(*args, **options)


class _Written(threading.local):
    """The tensors that this thread has written to; a step of an optimizer in it computes those that
    are alive. Those of another thread may be half of a step of its own.
    """

    def __init__(self) -> None:
        self.tensors = Some()


written = _Written()


def _settle(tensor: Tensor) -> None:
    """Compute what was written to a tensor that is trained, now: a program that moves its
    parameters itself would pile up a graph otherwise. All gradients are computed with it, in one
    schedule.
    """
    if is_transforming() or current_recording() is not None:
        return
    grads = [each.grad for each in with_gradient if each.grad is not None]
    try:
        if grads:
            ours.Tensor.realize(*grads)
    except OverwrittenError:
        # Gradients that can never be computed raise an error where they are read.
        for each in grads:
            with contextlib.suppress(OverwrittenError):
                each.realize()
    tensor.realize()


def as_ours(tensor: Any) -> Any:
    """A tensor of tilegrad's as one of this class, an alias of it; what is one stays itself."""
    if isinstance(tensor, Tensor) or not isinstance(tensor, OurTensor):
        return tensor
    made = _alias_of(tensor)
    made._is_leaf, made._previous = tensor._is_leaf, tensor._previous
    if tensor._gradient is not None:
        made.grad = as_ours(tensor._gradient)
    return made


def _alias_of(tensor: Any) -> Tensor:
    """Another tensor of the same memory and the same gradient."""
    made = object.__new__(Tensor)
    storage, path = shared(tensor)
    ours.Tensor._set(
        made, tensor.uop, device_of(tensor), tensor._variables, tensor._requires_grad, leaf=False
    )
    made._alias, made._is_shared = (storage, path), tensor._is_shared
    storage.note(made)
    return made


def with_ours(value: Any) -> Any:
    """A tensor, or the tensors in a tuple, a list or a dict, as tensors of this class."""
    if isinstance(value, OurTensor):
        return as_ours(value)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return type(value)(*[with_ours(each) for each in value])
        return tuple([with_ours(each) for each in value])
    if type(value) is list:
        return [with_ours(each) for each in value]
    if type(value) is dict:
        return {key: with_ours(each) for key, each in value.items()}
    return value


Tensor._adopt = staticmethod(as_ours)
adjust(Tensor)
noted_methods(Tensor)
spellings.append(spelled)
