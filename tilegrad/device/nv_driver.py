"""The CUDA driver API by `cuda-bindings`, its errors in our words.

Every function of the driver gives a result first; `Driver.call` checks it and gives the rest. The
module is an argument, so that tests can pass a recorded driver instead.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from tilegrad.base.errors import DeviceError, OutOfMemoryError, TilegradError

__all__ = ["Driver", "bindings", "is_loss", "number_of", "visible"]

_INSTALL = "install NVIDIA's display driver; `nvidia-smi` shows whether it works"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Remedies where the driver is there and does not start (CUDA driver API, CUresult).
_REMEDIES = {
    "CUDA_ERROR_NO_DEVICE": "`nvidia-smi -L` lists the GPUs; a container needs them passed to it "
    f"(docker run --gpus all), and {_VISIBLE} may hide them",
    "CUDA_ERROR_SYSTEM_NOT_READY": "start the driver's services (of GPUs joined by NVSwitch, "
    "nvidia-fabricmanager); `nvidia-smi` shows their state",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart the machine: the driver's library was renewed "
    "and the kernel still runs the older module",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "remove CUDA's compatibility package from "
    "LD_LIBRARY_PATH, or install a newer display driver",
}
# After these the context is lost, with all memory in it.
_LOST = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_DEVICE_UNAVAILABLE",
    }
)  # fmt: skip
_LOST_RULE = "the device's memory is lost for this process"


def is_loss(error: DeviceError) -> bool:
    """Whether an error says that the device is lost: an earlier launch may be why."""
    return error.details.get("rule") == _LOST_RULE


def bindings(kind: str = "NV") -> Any:
    """The module `cuda.bindings.driver`, imported when the first device is opened; `kind` is that
    of the device.

    Raises DeviceError where it is not installed.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(
            f"{kind}: cuda-bindings cannot be imported: {error}",
            remedy=f"pip install 'tilegrad[nvidia]'; then {_INSTALL}",
        ) from None
    return driver


def number_of(name: str) -> int:
    """The number of the device `name` of the kind NV or CUDA.

    Raises DeviceError where something else follows the kind.
    """
    kind, _, rest = name.partition(":")
    if rest and not rest.isdecimal():
        is_arch = rest.lower().startswith("sm_")
        raise DeviceError(
            f"{kind}: {rest.lower()!r} is no number of a device",
            rule=f"{kind} or {kind}:number; the architecture is asked of the device",
            remedy=f"NULL:{kind}:{rest.lower()} compiles for it and runs nothing" if is_arch
            else f"{kind}:1 is the second GPU",
        )  # fmt: skip
    return int(rest or 0)


def visible() -> dict[str, str]:
    """The variable that hides GPUs from this process, as a detail of an error, if it is set."""
    found = os.environ.get(_VISIBLE)
    return {} if found is None else {_VISIBLE: repr(found)}


class Driver:
    """The driver's functions for one device of the kind NV or CUDA, in whatever thread they are
    called.
    """

    def __init__(self, module: Any, kind: str = "NV"):
        self.module, self.kind = module, kind
        self.context: Any = None
        self._threads = threading.local()
        self._entries: dict[str, int] = {}
        try:
            self.call("cuInit", 0)
            self.version: int = self.call("cuDriverGetVersion")
        except DeviceError as error:
            title = error.headline.rpartition(" ")[2]
            raise DeviceError(
                f"{kind}: {error.headline}", **visible(), remedy=_REMEDIES.get(title, _INSTALL)
            ) from None
        except Exception as error:
            # The bindings raise errors of their own where there is no driver library.
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DeviceError(
                f"{kind}: no NVIDIA driver is here: {text}", remedy=_INSTALL
            ) from None

    def call(self, name: str, *arguments: Any) -> Any:
        """The results of the function beside its status: none, a value, or several.

        Raises OutOfMemoryError, or DeviceError with the driver's name of the error.
        """
        result, *found = getattr(self.module, name)(*arguments)
        if int(result):
            raise self.error(name, result)
        return found[0] if len(found) == 1 else (found or None)

    def entry(self, name: str, release: int) -> int:
        """The address of a function as it is since a release of CUDA.

        Raises DeviceError where the driver has none.
        """
        found = self._entries.get(name)
        if found is None:
            address, _ = self.call("cuGetProcAddress", name.encode(), release, 0)
            if not int(address or 0):
                raise DeviceError(f"{self.kind}: the driver has no {name}", remedy=_INSTALL)
            found = self._entries[name] = int(address)
        return found

    def is_done(self, name: str, *arguments: Any) -> bool:
        """Whether the work that a query asks for is done.

        Raises as `call`.
        """
        result, *_ = getattr(self.module, name)(*arguments)
        if getattr(result, "name", "") == "CUDA_ERROR_NOT_READY":
            return False
        if int(result):
            raise self.error(name, result)
        return True

    def error(self, name: str, result: Any) -> TilegradError:
        """The error that reports a call with the status `result`."""
        title = getattr(result, "name", str(result))
        if title == "CUDA_ERROR_OUT_OF_MEMORY":
            return OutOfMemoryError(
                f"{name}: the device has no room",
                remedy="free tensors that are no longer needed, or use smaller batches",
            )
        if title in _LOST:
            return DeviceError(
                f"{name}: {title}",
                rule=_LOST_RULE,
                remedy="start the process anew; `compute-sanitizer python FILE` shows the access",
            )
        return DeviceError(f"{name}: {title}")

    def enter(self) -> None:
        """Make the device current in this thread: the driver keeps one for each."""
        if getattr(self._threads, "context", None) is not self.context:
            self.call("cuCtxSetCurrent", self.context)
            self._threads.context = self.context

    def attribute(self, name: str, device: Any) -> int:
        """A number that the driver has of a device."""
        kind = getattr(self.module.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", kind, device))
