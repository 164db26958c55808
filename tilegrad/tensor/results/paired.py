"""The pair that `max` and `min` along an axis are in PyTorch: here they give the values alone,
which tell their indices when asked.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Self

from tilegrad.base.errors import DTypeError
from tilegrad.ir.uop import UOp
from tilegrad.tensor.handle.core import describe
from tilegrad.tensor.handle.pairs import ValuesAlone
from tilegrad.tensor.handle.waiting import expand
from tilegrad.tensor.results.several_devices import SeveralDevices
from tilegrad.tensor.views.in_memory import rows_of_memory

__all__ = ["PairedValues"]


_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]


class PairedValues(SeveralDevices):
    """Parts of a pair, and iteration, which refuses to unpack values as one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise DTypeError(
                "iter: a tensor without axes has no parts",
                tensor=describe(self.uop),
                remedy=".item() gives its number",
            )
        if hasattr(self, "_stands_for"):
            self._refuse_pair(sys._getframe(1))
        rows: list[Self] | None = rows_of_memory(self)
        if rows is None:
            rows = [self[number] for number in range(len(self))]
        return iter(rows)

    def _refuse_pair(self, frame: FrameType) -> None:
        """Raise DTypeError where the frame unpacks this as two: a loop over it is none of that."""
        code, at = frame.f_code.co_code, frame.f_lasti
        if code[at] != _UNPACK or code[at + 1] != 2:
            return
        call = self._stands_for.call
        raise DTypeError(
            f"{call}: these are the values alone, not a pair of values and indices",
            tensor=describe(self.uop),
            remedy=f"values = x.{call}; indices = x.arg{call}; list(...) gives the slices",
        )

    @property
    def values(self) -> Self:
        """The values that `max` or `min` along an axis gave: this tensor itself, half of PyTorch's
        pair.

        Returns this tensor, of the shape without the reduced axis.

        Raises AttributeError for any other tensor.

        >>> Tensor([[1, 5], [3, 2]]).max(1).values.tolist()
        [5, 3]
        """
        pair = self._pair_of("values")
        pair.alive = pair.source() if pair.indices is None else None
        return self

    @property
    def indices(self) -> Self:
        """Positions along the axis of the values that `max` or `min` gave, as `argmax` and `argmin`
        give them.

        Returns an int32 tensor of this shape.

        Raises AttributeError for any other tensor, and once the tensor that was reduced is gone.

        >>> Tensor([[1, 5], [3, 2]]).max(1).indices.tolist()
        [1, 0]
        """
        pair = self._pair_of("indices")
        if pair.indices is not None:
            known: Self = pair.indices
            return known
        source = pair.source()
        if source is None:
            raise AttributeError(
                f"{pair.call}: what these values were chosen from is gone: keep it, or ask for "
                f"x.arg{pair.call} beside them",
                name="indices",
                obj=self,
            )
        node = source if isinstance(source, UOp) else expand(source)
        chosen_from = self._of(node, self.device, self._variables)
        found = chosen_from.argmax if pair.name == "max" else chosen_from.argmin
        pair.indices, pair.alive = found(pair.axis, pair.keepdim), None
        return self.indices

    def _pair_of(self, name: str) -> ValuesAlone:
        """The call that gave these values; AttributeError if it was no other."""
        try:
            return self._stands_for
        except AttributeError:
            raise AttributeError(
                f"'Tensor' object has no attribute {name!r}; what max(dim=...) and min(dim=...) "
                "give has it",
                name=name,
                obj=self,
            ) from None
