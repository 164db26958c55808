"""Tensors that are saved together and share a storage: it is written once, and they are aliases
again when they are read, as in PyTorch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from tilegrad.ir.sizes import row_major
from tilegrad.ir.uop import sint
from tilegrad.tensor.handle.aliases import strides_in
from tilegrad.torch.copying import look_with_root

__all__ = ["Layout", "Storages", "laid_out"]


class Layout(NamedTuple):
    """Where the elements of a tensor are: the number of a storage and how many elements it has,
    the first element there, and the step along each axis, in elements.
    """

    storage: int
    length: int
    offset: int
    strides: tuple[sint, ...]


def laid_out(tensors: Sequence[Any], apart: Collection[int] = ()) -> tuple[list[Any], list[Layout]]:
    """The storages to write for `tensors`, as tensors, and the layout of each of these. A tensor
    that shares its memory with no other of them has a storage of its own, of no more than its
    elements; so has one whose position is in `apart`, and one that strides over its storage cannot
    say.
    """
    members: dict[int, list[int]] = {}
    for position, tensor in enumerate(tensors):
        if tensor._alias is not None and position not in apart:
            members.setdefault(id(tensor._alias[0]), []).append(position)
    storages: list[Any] = []
    layouts: dict[int, Layout] = {}
    for sharing in members.values():
        if len(sharing) > 1:
            _lay_out_together(tensors, sharing, storages, layouts)
    for position, tensor in enumerate(tensors):
        if position not in layouts:
            sizes = tuple(int(size) for size in tensor._sizes)
            layouts[position] = Layout(len(storages), math.prod(sizes), 0, row_major(sizes))
            storages.append(tensor.detach())
    return storages, [layouts[position] for position in range(len(tensors))]


def _lay_out_together(
    tensors: Sequence[Any], sharing: Sequence[int], storages: list[Any], layouts: dict[int, Layout]
) -> None:
    """Add the storage that the tensors at these positions share, if the root of one of them is
    known, and the layouts of those whose strides say where their elements are there.
    """
    found = next((each for at in sharing if (each := look_with_root(tensors[at]))), None)
    if found is None or found.root is None:
        return
    first = tensors[sharing[0]]
    whole = first._of(found.root, first.device, first._variables).detach().reshape(-1)
    count, added = int(whole._sizes[0]), {}
    for position in sharing:
        tensor, known = tensors[position], strides_in(tensors[position])
        if known is None or tensor.dtype is not whole.dtype or tensor.device != whole.device:
            continue
        strides, offset = known
        sizes = tuple(int(size) for size in tensor._sizes)
        last = offset + sum((size - 1) * step for size, step in zip(sizes, strides))
        if 0 not in sizes and last < count:
            added[position] = Layout(len(storages), count, offset, strides)
    if len(added) > 1:
        storages.append(whole)
        layouts |= added


class Storages:
    """The storages of a file that is read: one that several tensors share is made once. They are
    given for each tensor, by whatever tells them apart.
    """

    def __init__(self, of_tensors: Iterable[Hashable]):
        self._uses = Counter(of_tensors)
        self._made: dict[Hashable, Any] = {}

    def is_shared(self, storage: Hashable) -> bool:
        """Whether several tensors have it."""
        return self._uses[storage] > 1

    def view(
        self,
        storage: Hashable,
        read: Callable[[], Any],
        sizes: Sequence[int],
        strides: Sequence[sint],
        offset: int,
    ) -> Any:
        """The tensor of `sizes` at a layout of a storage, which `read` gives as a vector."""
        if storage not in self._made:
            self._made[storage] = read()
        return _view_at(self._made[storage], sizes, strides, offset)


def _view_at(whole: Any, sizes: Sequence[int], strides: Sequence[sint], offset: int) -> Any:
    """The tensor of `sizes` at a layout of a storage, which is a vector: an alias of it."""
    sizes, count = tuple(sizes), math.prod(sizes)
    if tuple(strides) != row_major(sizes):
        return whole.as_strided(sizes, tuple(strides), offset)
    if (offset, count) != (0, whole.shape[0]):
        whole = whole[offset : offset + count]
    return whole.detach() if sizes == tuple(whole.shape) else whole.reshape(sizes)
