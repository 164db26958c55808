"""`torch.nn.utils.parametrize`."""

from tilegrad.nn.utils.parametrize import *  # noqa: F403
from tilegrad.nn.utils.parametrize import __all__ as __all__
