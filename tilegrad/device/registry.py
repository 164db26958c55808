"""Devices by name: `Device["CPU"]`, `Device["CUDA:1"]`, `Device.DEFAULT`.

A name is a kind, and for all but the first of its kind a number. `NULL` and `EMU` take the name of
another device behind the colon, with its architecture: `NULL:CUDA:sm_90`. Opening a device imports
its file, so that unused hardware costs nothing; it happens once per name and process,
and `DEBUG=1` shows it. A kind outside this package joins with `Device.register("MYDEV", factory)`,
where `factory(name)` gives a `Backend`, or is found by `device.outside`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tilegrad.base.absent import nearest
from tilegrad.base.config import config
from tilegrad.base.dtype import nearest_dtype
from tilegrad.base.errors import DeviceError, TilegradError
from tilegrad.base.forks import held_at_fork
from tilegrad.device.backend import Backend
from tilegrad.device.foreign_hooks import guarded
from tilegrad.device.outside import by_sources, listed_files, outside
from tilegrad.ir.placement import Group
from tilegrad.runtime.protocol import Runtime
from tilegrad.target import Target

__all__ = ["Device", "Devices"]

Factory = Callable[..., Backend]

_BUILT_IN = {
    "CPU": "tilegrad.device.cpu",
    "EMU": "tilegrad.device.emulator",
    "HOST": "tilegrad.device.host",
    "DISK": "tilegrad.device.disk",
    "NULL": "tilegrad.device.null",
    "CLANG": "tilegrad.device.clang",
    "CL": "tilegrad.device.opencl",
    "CUDA": "tilegrad.device.cuda",
    "HIP": "tilegrad.device.hip",
    "AMD": "tilegrad.device.amd",
    "METAL": "tilegrad.device.metal",
    "AARCH64": "tilegrad.device.aarch64",
    "RISCV": "tilegrad.device.riscv",
    "WASM": "tilegrad.device.wasm",
    "NV": "tilegrad.device.nv",
    "WEBGPU": "tilegrad.device.webgpu",
}
# Other names of kinds.
_ALIASES = {"OPENCL": "CL"}
# Names of devices in other libraries and drivers, for errors.
_ELSEWHERE = {
    "GPU": "CL", "LLVM": "CPU", "MPS": "METAL", "NVIDIA": "NV", "NUMPY": "HOST", "PTX": "NV",
    "PYTHON": "EMU", "ROCM": "AMD", "VULKAN": "WEBGPU", "WGPU": "WEBGPU",
}  # fmt: skip
# Kinds that take the code generator of another device, whose name follows.
_LIKE_ANOTHER = frozenset({"NULL", "EMU"})
# Kinds that are memory only.
_MEMORY = frozenset({"HOST", "DISK"})

# The environment as it is now, of bytes on POSIX: `os.environ.get` takes a microsecond for a name
# that is not there, and every run asks for some.
_ENVIRONMENT: Any = getattr(os.environ, "_data", os.environ)
# How many files are open as devices.
_MOST_FILES = 1024


class Devices:
    """The table behind `Device`.

    >>> "CPU" in Device, Device.canonical("cpu")
    (True, 'CPU')
    """

    def __init__(self) -> None:
        self._factories: dict[str, Factory] = {}
        self._open: dict[str, Backend] = {}
        # The device of a canonical name, if it is open.
        self.at_hand = self._open.get
        self._lock = held_at_fork(threading.RLock(), 60)
        self._default: tuple[str, str] | None = None
        self._asked_by: dict[Any, str] | None = None
        # Kinds that `register` made known, and how many devices of a name were open before.
        self._registered: set[str] = set()
        self._times: dict[str, int] = {}
        self.renewals = 0
        """How often another device has taken the name of one that was open."""
        self.on_renewal: list[Callable[[str], None]] = []
        """Is called with that name: who keeps anything of the earlier device forgets it."""

    @staticmethod
    def canonical(name: str) -> str:
        """One spelling per device: upper case, and no `:0`; of a file, its whole path.

        Raises DeviceError if `name` is not a device's name at all.
        """
        if not isinstance(name, str):
            raise DeviceError(
                f"device: {name!r} is no device name",
                rule="a text, KIND or KIND:number, as in 'CPU' or 'CUDA:1'",
            )
        before, _, path = name.partition(":")
        if before.upper() == "DISK" and path:
            return f"DISK:{os.path.abspath(path)}"
        kind, *rest = [_ALIASES.get(word, word) for word in name.upper().split(":")]
        words = [str(int(word)) if word.isdecimal() else word for word in rest]
        if not kind.isidentifier() or not all(words):
            raise DeviceError(
                f"device: {name!r} is no device name",
                rule="KIND or KIND:number, as in CPU or CUDA:1",
            )
        if words and words[-1] == "0":
            words.pop()
        return ":".join([kind, *words])

    def register(self, name: str, factory: Factory) -> None:
        """Make the kind `name` known; `factory(device name)` opens one of it.

        Raises DeviceError if a kind of this name is known already.
        """
        kind = self.canonical(name)
        with self._lock:
            if kind in self:
                raise DeviceError(f"device: {kind} is known already", known=", ".join(self))
            self._factories[kind] = factory
            self._registered.add(kind)
            self._asked_by = None

    def unregister(self, name: str) -> None:
        """Forget a registered kind and its open devices. Tensors there can be read until another
        device takes the name.
        """
        kind = self.canonical(name)
        with self._lock:
            self._factories.pop(kind, None)
            self._registered.discard(kind)
            self._asked_by = None
            for opened in [found for found in self._open if found.split(":")[0] == kind]:
                del self._open[opened]
                self._times[opened] = self._times.get(opened, 0) + 1

    def __contains__(self, kind: str) -> bool:
        return kind in _BUILT_IN or kind in self._factories or kind in outside()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*_BUILT_IN, *self._factories, *outside()]))

    def __getitem__(self, name: str) -> Backend:
        """The device called `name`, opened on first use.

        Raises DeviceError if there is none, with what is known of each, or if its file opens one of
        another name.
        """
        found = self._open.get(name)
        if found is not None:
            return found
        name = self.canonical(name)
        with self._lock:
            found = self._open.get(name)
            if found is None:
                self.check(name)
                found = self._made(name, self._factory(name)(name))
                if found.name != name:
                    # Its buffers would be those of that device.
                    raise DeviceError(
                        f"device: {name} was asked for, and what opens it gave {found.name!r}",
                        rule="a factory gives a Backend of the name that it is called with",
                    )
                self._open[name] = found
                self._close_files()
                if name in self._times and not self.is_built_in(name):
                    self._renew(name)
                if config.DEBUG >= 1:
                    print(f"opened device {name} from pid {os.getpid()}", flush=True)
        return found

    def _renew(self, name: str) -> None:
        self.renewals += 1
        for forget in self.on_renewal:
            forget(name)

    def _close_files(self) -> None:
        """Close the files that were opened first, beyond a limit: their tensors keep their memory,
        and to open a file again costs little.
        """
        files = [name for name in self._open if name.startswith("DISK:")]
        for name in files[:-_MOST_FILES]:
            del self._open[name]

    def target(self, name: Any) -> Target:
        """The target of a device, or of the first one of a group."""
        return self[name[0] if isinstance(name, Group) else name].target

    def check(self, name: str) -> None:
        """Raise DeviceError if the canonical `name` is of a kind that is not known, or takes the
        code of one that has none. Nothing is opened.
        """
        kind, *rest = name.split(":")
        if kind not in self:
            raise self._unknown(name, list(self))
        if kind in _LIKE_ANOTHER and rest and not rest[0].isdecimal():
            kinds = [each for each in self if each not in _LIKE_ANOTHER | _MEMORY]
            if rest[0] not in kinds:
                raise self._unknown(name, [f"{kind}:{each}" for each in kinds])

    def meant(self, name: str) -> str:
        """Text of an error about a `name` that is no device's: the device or dtype that was
        probably meant.
        """
        kind = _ELSEWHERE.get(name.partition(":")[0].upper()) or nearest(name, self)
        if kind:
            return f"; did you mean {kind!r}?"
        dtype = nearest_dtype(name)
        return f"; {dtype} is a dtype" if dtype else ""

    def _unknown(self, name: str, known: list[str]) -> DeviceError:
        return DeviceError(
            f"device: {name!r} is unknown{self.meant(name)}",
            known=", ".join(known),
            remedy="`python -m tilegrad devices` says which kinds can be used here",
        )

    def is_built_in(self, name: str) -> bool:
        """Whether any process finds the device `name`, without being told of it."""
        if isinstance(name, Group):
            return False
        # Mostly the name is that of a kind as it is.
        kind = name if name in _BUILT_IN else self.canonical(name).split(":")[0]
        return kind in _BUILT_IN and kind not in self._factories

    def describe(self, name: str, runtime: Runtime) -> Backend:
        """The code generator of the device `name` over another runtime, without its hardware."""
        name = self.canonical(name)
        factory = self._factory(name)
        if "runtime" in inspect.signature(factory).parameters:
            return self._made(name, factory(name, runtime=runtime))
        found = self._made(name, factory(name))
        return Backend(name, found.target, found.render, found.compile, runtime, found.compiler)

    def opened(self) -> dict[str, Backend]:
        """The devices that are open, by name."""
        with self._lock:
            return dict(self._open)

    def why_not(self, kind: str) -> str | None:
        """Why the device `kind` cannot be used here, or None if it can be."""
        return self.refusal(kind)[0] or None

    def refusal(self, kind: str) -> tuple[str, str]:
        """Why the device `kind` cannot be used here, and what to do about it; empty if it can be.
        The device is opened to find out.
        """
        try:
            self[kind]
        except TilegradError as error:
            return error.headline, str(error.details.get("remedy", ""))
        except (ImportError, OSError) as error:
            return (str(error).splitlines() or [type(error).__name__])[0], ""
        return "", ""

    def _made(self, name: str, found: Any) -> Backend:
        """A back end as its factory gave it; others' hooks say what is wrong with them."""
        own: Backend = found
        if self.is_built_in(name):
            return own
        own, kind = guarded(name, found), name.split(":")[0]
        if kind not in self._registered:
            return own
        return by_sources(own, self._factories[kind], self._times.get(name, 0))

    def _factory(self, name: str) -> Factory:
        kind = name.split(":")[0]
        if kind in self._factories:
            return self._factories[kind]
        if kind in _BUILT_IN:
            if config.DEVICES and kind in listed_files():
                raise DeviceError(
                    f"device: {kind} is known already, and a file of TILEGRAD_DEVICES has its name",
                    files=config.DEVICES,
                )
            module: Any = importlib.import_module(_BUILT_IN[kind])
            factory: Factory = module.backend
            return factory
        if kind in (found := outside()):
            self._factories[kind] = found[kind]()
            return self._factories[kind]
        raise self._unknown(name, list(self))

    @property
    def DEFAULT(self) -> str:
        """The device of tensors made without one.

        It is the one set last, by `Device.DEFAULT = ...` or the switch DEVICE; else a kind whose
        name is an environment variable of value 1 (`EMU=1`); else CPU.
        """
        asked = config.current().DEVICE
        if self._default is not None and self._default[1] == asked:
            return self._default[0]
        if asked != "CPU":
            return self.canonical(asked)
        asked_by = self._by_environment()
        # Mostly none of them is there, which takes one look.
        if not _ENVIRONMENT.keys().isdisjoint(asked_by):
            for key, kind in asked_by.items():
                if _ENVIRONMENT.get(key) in ("1", b"1"):
                    return kind
        return asked

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        name = self.canonical(name)
        self.check(name)
        self._factory(name)
        self._default = (name, config.DEVICE)

    def _by_environment(self) -> dict[Any, str]:
        """The kinds that an environment variable may ask for, by the variable as `_ENVIRONMENT` has
        it.
        """
        if self._asked_by is None:
            # To look through all installed packages would take longer than an addition.
            known = dict.fromkeys([*_BUILT_IN, *self._factories, *listed_files()])
            kinds = [kind for kind in known if kind not in _MEMORY]
            encoded = isinstance(next(iter(_ENVIRONMENT), ""), bytes)
            self._asked_by = {os.fsencode(kind) if encoded else kind: kind for kind in kinds}
        return self._asked_by


Device = Devices()
