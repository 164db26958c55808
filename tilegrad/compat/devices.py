"""`Device` and `TinyJit` with the members that tinygrad's scripts reach for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilegrad.base.dtype import DType, dtypes
from tilegrad.base.errors import ConfigError
from tilegrad.capture.entry import Entry
from tilegrad.capture.jit import Jit
from tilegrad.device import emulator
from tilegrad.device.backend import Backend
from tilegrad.device.registry import Device as ours
from tilegrad.target import MatrixUnit

__all__ = [
    "Captured", "Device", "OpenDevice", "Renderer", "TinyJit", "function", "is_dtype_supported",
    "python_device",
]  # fmt: skip


class Renderer:
    """A device's code generator, under tinygrad's names."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self.device = backend.name
        self.target = backend.target

    def __repr__(self) -> str:
        return f"<Renderer {self.target.name} for {self.device}>"

    @property
    def supports_float4(self) -> bool:
        """Whether one instruction moves several elements."""
        return self.target.has_vectors or self.target.memory_lanes > 1

    @property
    def has_local(self) -> bool:
        return self.target.has_locals

    @property
    def has_shared(self) -> bool:
        return self.target.shared_bytes > 0

    @property
    def has_threads(self) -> bool:
        return self.target.threads > 0

    @property
    def shared_max(self) -> int:
        """Bytes of shared memory of a block."""
        return self.target.shared_bytes

    @property
    def tensor_cores(self) -> list[MatrixUnit]:
        """The matrix units."""
        return list(self.target.matrix_units)

    def render(self, uops: Any) -> str:
        """The source text of a linear program."""
        return self._backend.render("kernel", uops)


class OpenDevice:
    """A back end that is open; what is not here is asked of it."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self.device = backend.name
        self.renderer = Renderer(backend)

    def __repr__(self) -> str:
        return f"<OpenDevice {self.device}>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    @property
    def arch(self) -> str:
        """The architecture that the compiler compiles for."""
        return self._backend.target.isa

    def count(self) -> int:
        """How many devices there are of this kind that a script can name: threads of a processor,
        and lanes of a block, are inside of one.
        """
        return 1

    def synchronize(self) -> None:
        """Wait until every launch and copy has ended."""
        self._backend.runtime.synchronize()


class _Devices:
    """tilegrad's devices, seen as tinygrad's."""

    @property
    def DEFAULT(self) -> str:
        """The device of tensors made without one."""
        return ours.DEFAULT

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        ours.DEFAULT = name

    def __getitem__(self, name: str) -> OpenDevice:
        return OpenDevice(ours[name])

    def canonicalize(self, device: str | None) -> str:
        """The one spelling of a device; None is the default device."""
        return ours.DEFAULT if device is None else ours.canonical(device)

    def get_available_devices(self) -> Iterator[str]:
        """The kinds of device that can be used here."""
        return (kind for kind in ours if ours.why_not(kind) is None)


Device = _Devices()


@contextmanager
def python_device() -> Iterator[None]:
    """A block in which the emulator is also called PYTHON, as tinygrad's is."""
    ours.register("PYTHON", emulator.backend)
    try:
        yield
    finally:
        ours.unregister("PYTHON")


def is_dtype_supported(dtype: DType, device: str | None = None) -> bool:
    """Whether tensors may have `dtype`: on every device, as what a device lacks is emulated."""
    return dtype in dtypes.all


class Captured:
    """A captured function as tinygrad's scripts look at one: its launches, in order."""

    def __init__(self, entry: Entry):
        self._entry = entry

    def __repr__(self) -> str:
        return f"<Captured, {len(self.jit_cache)} launches>"

    @property
    def jit_cache(self) -> list[Any]:
        """The kernels and copies that a replay launches."""
        return list(self._entry.program.steps)

    @property
    def expected_names(self) -> list[str]:
        """The arguments that are tensors, as a call passes them."""
        return [each.label for each in self._entry.inputs if each.is_argument]


class TinyJit(Jit[..., Any]):
    """`tilegrad.jit`, whose results are new tensors at each call. `prune` and `optimize` are
    accepted: what does not depend on the inputs is never launched again.
    """

    def __init__(
        self, fxn: Callable[..., Any], captured: None = None, prune: bool = False,
        optimize: bool = False, *, reuse_outputs: bool = False,
    ):  # fmt: skip
        super().__init__(fxn, reuse_outputs=reuse_outputs)

    @property
    def cnt(self) -> int:
        """How often the function was called, up to its capture."""
        return self._calls

    @property
    def captured(self) -> Captured | None:
        """The last capture; None before there is one."""
        return Captured(self._entries[0][1]) if self._entries else None


def function(
    fxn: Callable[..., Any] | None = None, *, grad_fxn: Callable[..., Any] | None = None,
    precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = True,
) -> Any:  # fmt: skip
    """The function itself: equal parts of a graph are one node here, so a call needs none.

    Raises ConfigError for a `grad_fxn`.
    """
    if grad_fxn is not None:
        raise ConfigError(
            "function: grad_fxn is not supported",
            remedy="Tensor.apply takes a function and its derivative",
        )
    return functools.partial(function) if fxn is None else fxn
