"""What tests of devices that a machine may lack share."""

from __future__ import annotations

import pytest

from tilegrad import Device

__all__ = ["needs"]


def needs(kind: str) -> pytest.MarkDecorator:
    """Skips a test where the device `kind` cannot be used, and says why."""
    why, remedy = Device.refusal(kind)
    return pytest.mark.skipif(bool(why), reason=f"{why}; {remedy}")
