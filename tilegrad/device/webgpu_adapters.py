"""The adapters that `wgpu` finds: GPUs first, then other kinds, without the stand-ins of OpenGL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tilegrad.base.errors import DeviceError

__all__ = ["find_adapter", "most_iterations", "wgpu_module"]


_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")


_INSTALL = (
    "install the driver of your GPU (Vulkan, Metal or Direct3D 12), or lavapipe, which runs on "
    "processors: on Debian apt-get install mesa-vulkan-drivers libvulkan1"
)


def wgpu_module() -> Any:
    """The module, imported when the first device is opened."""
    if not any(name in os.environ for name in _DISPLAYS):
        # A layer of Mesa's would ask the display which GPU to prefer, and complain of none.
        os.environ.setdefault("NODEVICE_SELECT", "1")
    try:
        import wgpu
    except (ImportError, OSError) as error:
        raise DeviceError(
            f"WEBGPU: wgpu cannot be imported: {error}",
            remedy=f"pip install 'tilegrad[webgpu]'; then {_INSTALL}",
        ) from None
    return wgpu


def _adapters(wgpu: Any) -> list[Any]:
    """All that can compute, GPUs first; OpenGL's stand-ins are left out."""
    try:
        found = wgpu.gpu.enumerate_adapters_sync()
    except (RuntimeError, wgpu.GPUError):
        found = []
    usable = [each for each in found if not each.info["backend_type"].startswith("OpenGL")]
    return sorted(usable, key=lambda each: "GPU" not in each.info["adapter_type"])


def find_adapter(wgpu: Any, name: str) -> Any:
    """The adapter that a name asks for.

    Raises DeviceError where it is not there.
    """
    found = _adapters(wgpu)
    if not found:
        raise DeviceError("WEBGPU: no driver has an adapter", remedy=_INSTALL)
    number = int(name.partition(":")[2] or 0)
    if number >= len(found):
        raise DeviceError(
            f"WEBGPU: there is no device {number}",
            found=", ".join(
                f"WEBGPU:{number} {each.info['device']}" for number, each in enumerate(found)
            ),
        )
    return found[number]


def most_iterations(info: Mapping[str, Any]) -> int:
    """Iterations of a lane's loops behind which an adapter's driver leaves them; 0: no limit.

    Mesa's lavapipe, for processors, counts those of all loops together, and says nothing (found
    with 22.3: a loop of 65,535 ends, of one of 65,536 the last is missing).
    """
    return 65_535 if "llvmpipe" in str(info["device"]) else 0
