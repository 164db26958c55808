"""Checks of optimizers' arguments, in words that name the optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tilegrad.base.errors import ConfigError, DTypeError, KindError, article
from tilegrad.nn.optim.groups import Common, ParamGroup, without_name
from tilegrad.tensor.tensor import Tensor

__all__ = ["OptimizerArguments"]


class OptimizerArguments:
    """Base of an optimizer: its arguments, checked."""

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _not_negative(self, group: ParamGroup, *names: str) -> None:
        """Raise ConfigError unless each option of `names` is at least 0."""
        self._in_range(**{name: (group[name], math.inf) for name in names})

    def _in_range(self, **values: tuple[float, float]) -> None:
        """Raise ConfigError unless each value is at least 0 and below its limit."""
        for name, (value, limit) in values.items():
            if not hasattr(value, "__float__"):
                raise DTypeError(f"{self._name}: {name} must be a number, not {value!r}")
            if not 0 <= value < limit:
                raise ConfigError(
                    f"{self._name}: {name} must be at least 0 and below {limit}, not {value}"
                )

    def _check_betas(self, group: ParamGroup) -> None:
        betas = group["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ConfigError(
                f"{self._name}: betas must be two numbers, not {betas!r}",
                remedy="pass betas=(0.9, 0.999)",
            )
        self._in_range(b1=(betas[0], 1), b2=(betas[1], 1))

    def _check_common(self, common: Mapping[str, Any]) -> None:
        unknown = sorted(set(common) - set(Common.__annotations__))
        if unknown:
            raise KindError(
                f"{self._name}: unknown options: {', '.join(unknown)}",
                known="its arguments, and " + ", ".join(Common.__annotations__),
            )
        if common.get("differentiable"):
            raise ConfigError(
                f"{self._name}: differentiable=True is not supported: a step writes in place",
                remedy="loss.gradient(*params) gives gradients that have gradients",
            )

    def _listed(self, params: Any) -> list[Any]:
        if isinstance(params, Tensor):
            return [params]
        if isinstance(params, Iterable) and not isinstance(params, Mapping):
            return list(params)
        raise DTypeError(
            f"{self._name}: {article(type(params).__name__)} is no list of parameters",
            remedy="pass tensors: nn.state.get_parameters(model)",
        )

    def _tensors(self, params: Iterable[Any]) -> list[Tensor]:
        """The tensors of a list that may give them with their names."""
        found = [without_name(each) for each in self._listed(params)]
        for tensor in found:
            if not isinstance(tensor, Tensor):
                raise DTypeError(
                    f"{self._name}: {article(type(tensor).__name__)} is no parameter",
                    remedy="pass tensors: nn.state.get_parameters(model)",
                )
        return found
