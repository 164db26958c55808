"""Device names as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilegrad.base.errors import DeviceError
from tilegrad.device.disk import is_file
from tilegrad.device.registry import Device
from tilegrad.ir.placement import Group, use

__all__ = ["canonical"]

# Spellings are few, unless somebody makes them up.
_MOST = 256
_names: dict[str, str] = {}


def canonical(name: Any) -> Any:
    """The one spelling of a device; None is the default device. Several names are the group of
    those devices, a tuple that stands wherever a name does; one name alone is that device.

    Raises DeviceError if no device of that kind is known, or a device stands in a group twice.
    """
    if name is None:
        return Device.DEFAULT
    found = _names.get(name) if isinstance(name, str) else None
    if found is None and isinstance(name, (tuple, list)):
        return _group(name)
    if found is None:
        # A plain text, whatever a class of devices shows of itself.
        found = str.__str__(Device.canonical(name))
        Device.check(found)
        if not is_file(found) and len(_names) < _MOST:
            # The meaning of a path depends on the folder of the moment.
            _names[name] = found
    return found


def _group(names: Sequence[str]) -> Any:
    devices = [canonical(name) for name in names]
    if not devices or len(set(devices)) < len(devices):
        raise DeviceError(
            f"device: {tuple(names)!r} is no group of devices",
            rule="one device at least, and each of them once; X and X:0 are one",
        )
    for device in devices:
        if is_file(device) or device == "HOST":
            raise DeviceError(f"device: {device} computes nothing, and is in no group")
    if len(devices) == 1:
        return devices[0]
    use.is_used = True
    return Group(devices)
