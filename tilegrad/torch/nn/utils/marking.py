"""Weights that are computed from others, with trained tensors that are parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from tilegrad.nn.utils.parametrize import ParametrizationList
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.nn.parameter import is_parameter, marked

__all__ = ["marking"]


def _tensors(module: Any) -> Iterator[OurTensor]:
    """The tensors of a module that it trains, those below its parametrizations among them."""
    lists = [each for each in module.__dict__.get("parametrizations", {}).values()
             if isinstance(each, ParametrizationList)]  # fmt: skip
    for item in (module, *lists):
        for value in list(vars(item).values()):
            if isinstance(value, OurTensor):
                yield value


def marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of a module, after which each tensor that it made to be trained is a parameter."""

    @functools.wraps(function)
    def call(module: Any, *args: Any, **options: Any) -> Any:
        before = {id(tensor) for tensor in _tensors(module)}
        found = function(module, *args, **options)
        for tensor in _tensors(module):
            if id(tensor) not in before and tensor.requires_grad and not is_parameter(tensor):
                marked(tensor)
        return found

    return call
