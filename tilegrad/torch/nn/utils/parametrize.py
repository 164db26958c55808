"""`torch.nn.utils.parametrize`."""

from typing import Any

from tilegrad.nn.utils import parametrize as ours
from tilegrad.nn.utils.parametrize import ParametrizationList, cached, is_parametrized
from tilegrad.torch.nn.utils.marking import marking

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "type_before_parametrizations",
]  # fmt: skip

register_parametrization = marking(ours.register_parametrization)
remove_parametrizations = marking(ours.remove_parametrizations)


def type_before_parametrizations(module: Any) -> type:
    """The class that a module had before anything of it was parametrized."""
    kind = type(module)
    while (before := kind.__dict__.get("_made_of")) is not None:
        kind = before
    return kind
