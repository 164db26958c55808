"""Optimizers under the names of `torch.optim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilegrad.nn import optim as ours
from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.module_aliases import also_known
from tilegrad.torch.optim import lr_scheduler, optimizer, swa_utils
from tilegrad.torch.optim.base import Optimizer, stepping

if TYPE_CHECKING:
    from tilegrad.nn.optim import ASGD, LARS, Adam, AdamW, Lion, Muon
    from tilegrad.nn.optim.adam_variants import *
    from tilegrad.nn.optim.adaptive_rates import *
else:

    def _share_memory(self: Any) -> None:
        """Nothing: threads share memory as it is."""

    def _made(name: str) -> type:
        kind = getattr(ours, name)

        def __init__(self: Any, *args: Any, **options: Any) -> None:
            kind.__init__(self, *args, **options)

        space = {"__init__": __init__, "__doc__": kind.__doc__, "__module__": __name__}
        if name == "Adagrad":
            space["share_memory"] = _share_memory
        return type(name, (Optimizer, kind), space)

    globals().update(
        {
            name: _made(name)
            for name in ours.__all__
            if name not in ("Optimizer", "ParamGroup", "SGD", "SparseAdam", "LBFGS")
        }
    )


class SGD(Optimizer, ours.SGD):
    """Stochastic gradient descent with momentum."""

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        **common: Any,
    ):
        ours.SGD.__init__(self, params, lr, momentum, weight_decay, nesterov, dampening, **common)


class SparseAdam(Optimizer, ours.SparseAdam):
    """Adam for the tables of `nn.Embedding(sparse=True)`: only rows that have a gradient move.

    Raises RuntimeError where another parameter has a gradient.
    """

    def __init__(self, *args: Any, **options: Any):
        ours.SparseAdam.__init__(self, *args, **options)

    def _update(self, index: int, value: Any, gradient: Any) -> tuple[Any, list[Any]]:
        if not getattr(self.params[index], "_moves_by_rows", False):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead: this "
                "parameter is no weight of an embedding with sparse=True"
            )
        return super()._update(index, value, gradient)


class LBFGS(Optimizer, ours.LBFGS):
    """The quasi-Newton method with limited memory, whose steps call a closure."""

    def __init__(self, *args: Any, **options: Any):
        ours.LBFGS.__init__(self, *args, **options)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterate; gives the loss before."""

        def with_gradients() -> Any:
            assert closure is not None
            with thread_modes.enable_grad():
                return closure()

        return stepping(super(Optimizer, self).step, with_gradients if closure else None)


__all__ = [
    "ASGD", "LAMB", "LARS", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW",
    "Adamax", "Lion", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam",
    "lr_scheduler", "optimizer", "swa_utils",
]  # fmt: skip


_FILES = (
    "adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "lbfgs", "nadam", "radam", "rmsprop",
    "rprop", "sgd", "sparse_adam",
)  # fmt: skip
also_known(__name__, _FILES)

refuse_others(__name__)
