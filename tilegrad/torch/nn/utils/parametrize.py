"""`torch.nn.utils.parametrize`."""

import contextlib
from collections.abc import Iterator

from tilegrad.nn.utils import parametrize as ours
from tilegrad.nn.utils.parametrize import ParametrizationList, is_parametrized
from tilegrad.torch.nn.utils.marking import marking

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations",
]  # fmt: skip

register_parametrization = marking(ours.register_parametrization)
remove_parametrizations = marking(ours.remove_parametrizations)


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A block in which weights need not be computed anew. Equal graphs are one node here, computed
    once, without it too.
    """
    yield
