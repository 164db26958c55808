"""One argument under two names: `dim`, as PyTorch says, for `axis`, and `keepdims`, as NumPy says,
for `keepdim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["takes_dim"]

Method = TypeVar("Method", bound=Callable[..., Any])
_NOTHING = object()


def takes_dim(method: Method) -> Method:
    """Let `dim=` stand for `axis=`, and `keepdims=` for `keepdim=`.

    Raises TypeError for both at once, as Python does for any argument given twice.
    """

    @functools.wraps(method)
    def either(self: Any, *args: Any, dim: Any = _NOTHING, **kwargs: Any) -> Any:
        if "keepdims" in kwargs:
            if "keepdim" in kwargs:
                raise TypeError(f"{method.__name__}() got both 'keepdim' and 'keepdims'")
            kwargs["keepdim"] = kwargs.pop("keepdims")
        if dim is _NOTHING:
            return method(self, *args, **kwargs)
        if "axis" in kwargs:
            raise TypeError(f"{method.__name__}() got both 'axis' and 'dim'")
        return method(self, *args, axis=dim, **kwargs)

    # An error names what the user called.
    renamed: Any = either
    renamed.__code__ = renamed.__code__.replace(
        co_name=method.__name__, co_qualname=method.__qualname__
    )
    return cast("Method", either)
