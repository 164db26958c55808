"""At which positions a method slices tensors: where these are other ones again and again, as those
of the batches of a data set are, they are no part of templates.

A template has its positions as constants, and calls of different templates are different segments:
each batch would be one of its own. The nodes of a slice of memory have its position in the memory
instead, and all batches are one segment (`tensor.storage.signatures`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tilegrad.tensor.calls.arguments import records_gradients
from tilegrad.tensor.handle.core import Core
from tilegrad.tensor.storage.segment_take import stands_on_memory

__all__ = ["Positions"]

# Slices at more positions change all the time, not within a step; the same of the results of one
# call, which a loop goes over.
_MOST, _MOST_RESULTS = 48, 16
# Slices of more lengths are those of a loop whose sizes change (`table[:length]`).
_MOST_LENGTHS = 3
_MOST_FAMILIES = 512
Family = tuple[Any, ...]


class Positions:
    """The positions at which a method was called, for each family: tensors of a shape, and indices
    of some kinds. `changing` are the families whose positions change.
    """

    __slots__ = ("_counts", "_lengths", "_seen", "changing")

    def __init__(self) -> None:
        self._seen: dict[Family, set[tuple[Any, ...]]] = {}
        self._lengths: dict[Family, set[tuple[int, ...]]] = {}
        self.changing: set[Family] = set()
        # By family without sizes, how many calls had no template.
        self._counts: Counter[Family] = Counter()

    def note(self, tensor: Any, args: tuple[Any, ...], signature: tuple[Any, ...]) -> None:
        """Note a call that has no template so far."""
        family = _family(tensor, args)
        if len(self._seen) >= _MOST_FAMILIES or len(self.changing) >= _MOST_FAMILIES:
            self._seen.clear()
            self._lengths.clear()
            self.changing.clear()
        seen = self._seen.setdefault(family, set())
        seen.add(signature)
        lengths = self._lengths.setdefault(family, set())
        lengths.add(_lengths(tensor.shape, args))
        if len(seen) > _MOST or len(lengths) > _MOST_LENGTHS:
            self._seen.pop(family, None)
            self._lengths.pop(family, None)
            self.changing.add(family)

    def are_changing(self, tensor: Any, args: tuple[Any, ...]) -> bool:
        """Whether slices of this family of a tensor in memory are views of it, and no template's
        results.
        """
        return bool(
            self.changing
            and isinstance(tensor, Core)
            and not (tensor._requires_grad and records_gradients())
            and _family(tensor, args) in self.changing
            and stands_on_memory(tensor)
        )

    def are_of_loop(self, tensor: Any, args: tuple[Any, ...]) -> bool:
        """Whether slices of a waiting value with a gradient are those of a loop over a sequence,
        `e[:, t]`, which has another length each time: then each comes once. Count the call.
        """
        call = tensor._call
        if call is None or call.value is not None or not tensor._requires_grad:
            return False
        if len(self._counts) >= _MOST_FAMILIES:
            self._counts.clear()
        kind = len(tensor.shape), *_family(tensor, args)[1:]
        self._counts[kind] += 1
        return self._counts[kind] >= _MOST

    @staticmethod
    def are_many(tensor: Any, results: int) -> bool:
        """The same of that number of slices that one call gives."""
        return results > _MOST_RESULTS and not tensor._requires_grad and stands_on_memory(tensor)


def _lengths(shape: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[int, ...]:
    """How many elements slices pick along their axes."""
    keys = args[0] if len(args) == 1 and args[0].__class__ is tuple else args
    found: list[int] = []
    for size, key in zip(shape, keys):
        if key.__class__ is slice and key.step != 0 and size.__class__ is int:
            found.append(len(range(*key.indices(size))))
    return (*found,)


def _family(tensor: Any, args: tuple[Any, ...]) -> Family:
    kinds: list[Any] = [tensor.shape]
    for each in args:
        kind = each.__class__
        kinds.append((*map(type, each),) if kind is tuple else kind)
    return tuple(kinds)
