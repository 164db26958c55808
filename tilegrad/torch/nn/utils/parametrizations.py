"""`torch.nn.utils.parametrizations`."""

from tilegrad.nn.utils.parametrizations import *  # noqa: F403
from tilegrad.nn.utils.parametrizations import __all__ as __all__
