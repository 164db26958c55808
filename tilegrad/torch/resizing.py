"""`resize_` and `set_`: a tensor that looks at its memory, or at another's, in another shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilegrad.base.config import gradients
from tilegrad.base.errors import UnsupportedError
from tilegrad.tensor.handle.aliases import look, same_storage, steps
from tilegrad.torch.storage import Storage

__all__ = ["Resizing"]


class Resizing:
    """Changes of a `torch.Tensor`'s memory other than writes to it."""

    # All of the memory, of a tensor that looks at the first part of it.
    _whole: Any = None
    # The alias of a storage that is all of it.
    _alias_of_all: Callable[[Any], Any]

    def resize_(self: Any, *sizes: Any, memory_format: Any = None) -> Any:
        """Look at the same memory in another shape, in row-major order from the first element on.
        Memory that is too small grows; what is new there is 0.

        Raises RuntimeError for a tensor that requires a gradient, UnsupportedError where memory
        would grow that others look at too.

        >>> import tilegrad.torch as torch
        >>> torch.arange(6).resize_(2, 2).tolist()
        [[0, 1], [2, 3]]
        """
        if self._requires_grad:
            raise RuntimeError("cannot resize variables that require grad")
        shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        if any(size < 0 for size in shape):
            raise RuntimeError(f"resize_: {shape} has a negative size")
        if shape == tuple(self.shape):
            return self
        start, whole = int(self.storage_offset()), self._all_memory()
        end = start + math.prod(shape)
        if end > whole.numel():
            self._refuse_to_grow(whole)
            whole = whole.cat(whole.new_zeros(end - whole.numel()))
        self.replace(whole[start:end].reshape(shape))
        self._whole = whole
        return self

    def resize_as_(self: Any, the_template: Any, memory_format: Any = None) -> Any:
        """As `resize_`, to the shape of another tensor."""
        return self.resize_(tuple(the_template.shape))

    def as_strided(
        self: Any,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> Any:
        """The elements whose positions in memory are `storage_offset` plus the sum of each index
        times its stride; by default from this tensor's first element on.

        Raises IndexBoundsError for a position outside of that memory.

        >>> import tilegrad.torch as torch
        >>> torch.arange(6).reshape(2, 3).T.as_strided((2,), (1,)).tolist()
        [0, 1]
        """
        strides, start = steps(self)
        offset = start if storage_offset is None else storage_offset
        last = offset + sum((n - 1) * step for n, step in zip(size, stride))
        in_order = strides == tuple(math.prod(self.shape[at + 1 :]) for at in range(self.ndim))
        if in_order and start <= offset and last < start + self.numel():
            whole, offset = self, offset - start
        else:
            whole = self._all_memory()
        plain: Any = super(Resizing, whole)
        return plain.as_strided(size, stride, offset)

    def as_strided_(
        self: Any,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> Any:
        """As `as_strided`, what this tensor is from then on."""
        found = self.as_strided(size, stride, storage_offset)
        self.replace(found)
        self._requires_grad, self._is_leaf = found._requires_grad, found._is_leaf
        return self

    def as_strided_scatter(
        self: Any,
        src: Any,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> Any:
        """A copy with `src` at the elements that `as_strided` gives."""
        made = self.clone()
        made.as_strided(size, stride, storage_offset).copy_(src)
        return made

    def _all_memory(self: Any) -> Any:
        """The storage as a vector, an alias of it."""
        if self._whole is not None and same_storage(self._whole, self):
            return self._whole
        found = look(self)
        if found.root is None:
            raise UnsupportedError(
                "resize_: a view that was computed apart from what it is a view of",
                remedy="resize what it is a view of, or a clone() of the view",
            )
        root = self._alias_of_all(found.root)
        return root.reshape(-1)

    def _refuse_to_grow(self: Any, whole: Any) -> None:
        if any(each is not self and each is not whole for each in self._aliases()):
            raise UnsupportedError(
                "resize_: memory grows that other tensors look at too",
                remedy="make a tensor of the new shape, and copy_() what stays",
            )

    def set_(
        self: Any,
        source: Any = None,
        storage_offset: int = 0,
        size: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> Any:
        """Look at the memory of another tensor, or at a part of it by sizes and strides; without
        `source` at none.

        Raises RuntimeError for a tensor of another dtype, and for a leaf that requires a gradient
        where gradients are recorded.
        """
        if self._requires_grad and self.is_leaf and gradients.get():
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        if source is None:
            source = self.detach().new_zeros(0)
        whole = source._tensor._all_memory() if isinstance(source, Storage) else source
        if whole.dtype is not self.dtype:
            raise RuntimeError(
                f"Could not set tensor of type {whole.dtype.name} to a tensor of type "
                f"{self.dtype.name}"
            )
        if size is not None:
            if stride is None:
                stride = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
            if not isinstance(source, Storage):
                whole = source._all_memory()
            whole = whole.as_strided(tuple(size), tuple(stride), storage_offset)
        if self._requires_grad:
            self.data = whole
            return self
        self.replace(whole)
        self._requires_grad, self._is_leaf = whole._requires_grad, False
        return self
