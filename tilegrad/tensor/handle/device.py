"""Device names as users write them."""

from __future__ import annotations

from tilegrad.device.disk import is_file
from tilegrad.device.registry import Device

__all__ = ["canonical"]

# Spellings are few, unless somebody makes them up.
_MOST = 256
_names: dict[str, str] = {}


def canonical(name: str | None) -> str:
    """The one spelling of a device; None is the default device.

    Raises DeviceError if no device of that kind is known.
    """
    if name is None:
        return Device.DEFAULT
    found = _names.get(name) if isinstance(name, str) else None
    if found is None:
        # A plain text, whatever a class of devices shows of itself.
        found = str.__str__(Device.canonical(name))
        Device.check(found)
        if not is_file(found) and len(_names) < _MOST:
            # What a path means depends on the folder of the moment.
            _names[name] = found
    return found
