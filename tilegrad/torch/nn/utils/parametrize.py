"""`torch.nn.utils.parametrize`."""

from tilegrad.nn.utils import parametrize as ours
from tilegrad.nn.utils.parametrize import ParametrizationList, is_parametrized
from tilegrad.torch.nn.utils.marking import marking

__all__ = [
    "ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations",
]  # fmt: skip

register_parametrization = marking(ours.register_parametrization)
remove_parametrizations = marking(ours.remove_parametrizations)
