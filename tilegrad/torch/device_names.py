"""`torch.device`: a text that tilegrad knows as a device, with the parts that PyTorch's has."""

from __future__ import annotations

from typing import Any, Self

from tilegrad.base.errors import DeviceError
from tilegrad.device.registry import Device
from tilegrad.tensor.handle.device import canonical

__all__ = ["META", "as_device", "device", "has_gpu", "is_meta", "is_processor", "name_of"]

# tilegrad's device of PyTorch's "meta": shapes and dtypes, and memory that is a number.
META = "NULL"


# Kinds that programs ask for, whether or not they are here.
_THEIRS = frozenset(["cpu", "cuda", "hip", "meta", "mps", "xla", "xpu"])
_WHAT_THERE_IS = 'torch.device("cuda" if torch.cuda.is_available() else "cpu") takes what there is'


class device(str):
    """A device: `device("cpu")`, `device("cuda", 1)`, `device("cuda:1")`. It prints as PyTorch's,
    and is the text that tilegrad calls it by.

    >>> import tilegrad.torch as torch
    >>> torch.device("cpu").type, str(torch.device("cpu")), torch.zeros(2).device.type
    ('cpu', 'cpu', 'cpu')
    """

    type: str
    index: int | None  # type: ignore[assignment]  # PyTorch's name
    _before: list[str]
    _made_of: str

    def __new__(cls, type: Any = "cpu", index: int | None = None) -> Self:
        if isinstance(type, int):
            type, index = "cuda", type
        text = str.__str__(type)
        kind, _, rest = text.partition(":")
        at = int(rest) if rest.isdecimal() and index is None else index
        if kind.upper() not in Device and kind.lower() not in _THEIRS:
            raise DeviceError(
                f"device: no kind of device is called {kind!r}{Device.meant(kind).lower()}",
                known=", ".join(each.lower() for each in Device),
            )
        kind = "meta" if not rest and kind.upper() == META else kind
        # The rest of `NULL:NV:sm_80` and `DISK:file` is not a number.
        made_of = rest if not rest.isdecimal() else ""
        number = f":{at}" if at else ""
        name = META if kind.lower() == "meta" else f"{kind}:{made_of}" if made_of else kind + number
        made = super().__new__(cls, name if name == META else Device.canonical(name))
        made.type, made.index, made._before, made._made_of = kind.lower(), at, [], made_of
        return made

    def __str__(self) -> str:
        if self._made_of:
            return f"{self.type}:{self._made_of}"
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self),)

    def __enter__(self) -> Self:
        self._before.append(Device.DEFAULT)
        Device.DEFAULT = name_of(self)
        return self

    def __exit__(self, *error: object) -> None:
        Device.DEFAULT = self._before.pop()


_known: dict[str, device] = {}


def as_device(name: str) -> device:
    """The device that tilegrad calls `name`."""
    found = _known.get(name)
    if found is None:
        found = _known[name] = device(name)
    return found


def name_of(given: Any) -> str:
    """tilegrad's name of a device: a text, a `device`, a number of a GPU, or None for the default.

    Raises DeviceError for a GPU where there is none, and says what to write instead.
    """
    if given is None:
        return Device.DEFAULT
    text = str.__str__(device(given) if isinstance(given, int) else given)
    if text.lower() == "meta":
        return META
    kind = text.split(":")[0].upper()
    if kind not in Device:
        raise DeviceError(
            f"device: there is no {text.lower()!r} here{Device.meant(text).lower()}",
            known=", ".join(kind.lower() for kind in Device),
            remedy=_WHAT_THERE_IS,
        )
    reason = Device.why_not(kind)
    if reason is not None:
        raise DeviceError(
            f"device: {text.lower()!r} cannot be used: {reason}", remedy=_WHAT_THERE_IS
        )
    found: str = canonical(text)
    return found


def is_meta(name: str) -> bool:
    """Whether tilegrad's name of a device is that of `meta`."""
    return name == META


def is_processor(name: str) -> bool:
    """Whether tilegrad's name of a device is that of a CPU; PyTorch has only one."""
    return name.partition(":")[0] == "CPU"


def has_gpu() -> bool:
    """Whether there is a GPU that PyTorch would call "cuda"."""
    return "CUDA" in Device and Device.why_not("CUDA") is None
