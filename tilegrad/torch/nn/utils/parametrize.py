"""`torch.nn.utils.parametrize`."""

from typing import Any

from tilegrad.nn.utils import parametrize as ours
from tilegrad.nn.utils.parametrize import ParametrizationList, cached, is_parametrized
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.nn.parameter import is_parameter, marked
from tilegrad.torch.nn.utils.marking import marking

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "type_before_parametrizations",
]  # fmt: skip

register_parametrization = marking(ours.register_parametrization)
_remove_parametrizations = marking(ours.remove_parametrizations)


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Hold the tensor itself again, a parameter that is trained if what it was computed from was;
    gives the module.
    """
    is_frozen = is_buffer = False
    if is_parametrized(module, tensor_name):
        made_of = vars(module.parametrizations[tensor_name]).get("original")
        is_frozen = made_of is not None and not made_of.requires_grad
        is_buffer = made_of is not None and not is_parameter(made_of)
    found = _remove_parametrizations(module, tensor_name, leave_parametrized)
    if is_buffer:
        getattr(module, tensor_name).requires_grad_(False)
    else:
        marked(getattr(module, tensor_name), not is_frozen)
    return found


def type_before_parametrizations(module: Any) -> type:
    """The class that a module had before anything of it was parametrized."""
    kind = type(module)
    while (before := kind.__dict__.get("_made_of")) is not None:
        kind = before
    return kind


refuse_others(__name__)
