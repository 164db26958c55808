"""`torch.Tensor` by an index: tensors on the CPU and tensors of no axes among the indices, and
writes to what is trained.
"""

from __future__ import annotations

from typing import Any

from tilegrad.base.dtype import dtypes
from tilegrad.base.errors import KindError
from tilegrad.engine.run.run import current_recording
from tilegrad.tensor.handle.core import Core, device_of
from tilegrad.tensor.handle.tracing import is_transforming
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.tensor.writing.at_once import has_written
from tilegrad.tensor.writing.host_writes import write_on_host
from tilegrad.torch import thread_modes
from tilegrad.torch.device_names import is_meta, is_processor
from tilegrad.torch.steps import note

__all__ = ["Subscripts"]

_state = thread_modes.state


class Subscripts(OurTensor):
    """A tensor with PyTorch's indices."""

    def __getitem__(self, key: Any) -> Any:
        kind = key.__class__
        if kind is slice:
            if isinstance(key.start, Core) or isinstance(key.stop, Core):
                key = _in_numbers(key)
        elif kind is tuple:
            if any(isinstance(each, Core) for each in key):
                key = tuple([self._index_here(each) for each in key])
        elif isinstance(key, Core):
            key = _as_mask(key)
            if not key.ndim and key.dtype is dtypes.bool:
                return self.unsqueeze(0)[_of_one(key)]
            key = self._index_here(key)
        elif key.__class__ is bool:
            return self.unsqueeze(0)[: int(key)]
        return super().__getitem__(key)

    def _index_here(self, entry: Any) -> Any:
        """An entry of a key: indices on the CPU are moved to where the tensor is."""
        entry = _as_mask(entry)
        if not isinstance(entry, OurTensor) or not entry.ndim:
            return self._as_number(entry)
        here, there = device_of(self), device_of(entry)
        is_moved = here != there and is_processor(there) and not is_meta(here)
        return OurTensor.to(entry, here) if is_moved else entry

    def _as_number(self, entry: Any) -> Any:
        """The value of an index that is an integer tensor of no axes: what a number picks is a
        view. Where a graph is recorded it stays a tensor, which picks a copy.
        """
        if not isinstance(entry, OurTensor) or entry.ndim or not entry.dtype.is_int:
            return entry
        is_read = not (is_meta(device_of(self)) or is_meta(device_of(entry)))
        if not is_read or is_transforming() or current_recording() is not None:
            return entry
        return entry.item()

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, Core):
            key = _as_mask(key)
        elif key.__class__ is tuple:
            key = tuple([_as_mask(each) for each in key])
        if not self._requires_grad:
            # `x[i] += 1` has written to the part before it sets that to itself.
            if isinstance(value, Core) and has_written(self, key, value):
                return
            if write_on_host(self, key, value):
                return
        if key.__class__ is tuple:
            if any(isinstance(each, Core) and each.ndim for each in key):
                key = tuple([self._index_here(each) for each in key])
        elif isinstance(key, Core):
            if key.ndim:
                key = self._index_here(key)
            elif key.dtype is dtypes.bool:
                # All of it, or nothing: a mask of a new axis in front.
                self.unsqueeze(0)[_of_one(key)] = value
                return
        elif key.__class__ is bool:
            self.unsqueeze(0)[: int(key)] = value
            return
        if isinstance(value, OurTensor) and device_of(value) != (here := device_of(self)):
            value = value if is_meta(here) else OurTensor.to(value, here)
        if _state.made is not None and self._requires_grad and self._is_leaf:
            stored = value.detach() if isinstance(value, OurTensor) else value
            self.detach()[key] = stored
            return
        super().__setitem__(key, value)
        if self._requires_grad:
            note(self, "CopySlices", (self, value))

    def index_put(self, indices: Any, values: Any, accumulate: bool = False) -> Any:
        """A tensor with `values` where `indices` say."""
        return super().index_put([_as_mask(each) for each in indices], values, accumulate)

    def index_put_(self, indices: Any, values: Any, accumulate: bool = False) -> Any:
        """Write `values` where `indices` say."""
        return super().index_put_([_as_mask(each) for each in indices], values, accumulate)

    def __contains__(self, item: Any) -> bool:
        if not isinstance(item, (OurTensor, bool, int, float, complex)):
            raise KindError(
                f"Tensor.__contains__: a tensor or a number may be among its elements, not a "
                f"{type(item).__name__}"
            )
        return bool((self == item).any().item())

    def __delitem__(self, key: Any) -> None:
        raise TypeError("Tensor does not support deleting items")


def _as_mask(entry: Any) -> Any:
    """Bytes as an index are a mask, as in PyTorch."""
    is_bytes = isinstance(entry, Core) and entry.dtype is dtypes.uint8
    return entry.cast(dtypes.bool) if is_bytes else entry


def _of_one(mask: Any) -> Any:
    """A mask of no axes as one of an axis with one element."""
    return mask.reshape(1)


def _in_numbers(key: Any) -> Any:
    """A slice whose bounds are integers, instead of tensors of one element."""
    start, stop = [
        each.__index__() if isinstance(each, OurTensor) else each for each in (key.start, key.stop)
    ]
    return slice(start, stop, key.step)
