"""`torch.nn.utils.prune`: weights with elements that a mask holds at zero.

A pruned parameter `weight` is trained as `weight_orig`; `weight_mask`, a buffer, has ones where
elements stay. `weight` itself is their product, computed anew before each call of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilegrad.torch import thread_modes
from tilegrad.torch.absent_hints import refuse_others
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip

Amount = int | float


def _check_amount(amount: Amount) -> None:
    """Raises TypeError for what is no number, ValueError for one that says no share and no count
    of elements.
    """
    if not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    is_count = isinstance(amount, int)
    if amount < 0 or (not is_count and amount > 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _count_of(amount: Amount, size: int) -> int:
    """How many of `size` elements an amount is.

    Raises ValueError for more than there are.
    """
    if isinstance(amount, int):
        if amount > size:
            raise ValueError(
                f"amount={amount} should be smaller than the number of parameters to prune={size}"
            )
        return amount
    return round(amount * size)


def _pruning_of(module: Any, name: str) -> Any:
    """The hook that prunes a module's tensor, if there is one."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return hook
    return None


class BasePruningMethod:
    """A way to choose what is pruned. A subclass gives `compute_mask(t, default_mask)`, and says by
    PRUNING_TYPE what it counts when some is pruned already: the elements that are left
    ("unstructured"), the slices that are left ("structured"), or all ("global").
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name: str
    # The handle that takes it away from its module.
    _handle: Any

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for a tensor whose elements in `default_mask` are left."""
        raise NotImplementedError(f"{type(self).__name__}: define compute_mask(self, t, mask)")

    def apply_mask(self, module: Any) -> Tensor:
        """The pruned tensor of a module."""
        name = self._tensor_name
        original = getattr(module, f"{name}_orig")
        made: Tensor = getattr(module, f"{name}_mask").to(original.dtype) * original
        return made

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **options: Any
    ) -> BasePruningMethod:
        """Prune a module's tensor by what `cls(*args, **options)` chooses, beside what is pruned of
        it already; gives what prunes it from now on.
        """
        method = cls(*args, **options)
        method._tensor_name = name
        before = _pruning_of(module, name)
        hook: BasePruningMethod = method
        if before is None:
            original = getattr(module, name)
            mask = original.detach().ones_like()
        else:
            hook = before if isinstance(before, PruningContainer) else PruningContainer(before)
            hook.add_pruning_method(method)
            original, mask = getattr(module, f"{name}_orig"), getattr(module, f"{name}_mask")
        scores = original if importance_scores is None else as_ours(importance_scores)
        if scores.shape != original.shape:
            raise ValueError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        with thread_modes.no_grad():
            found = hook.compute_mask(scores.detach(), mask.detach()).to(original.dtype)
        if before is None:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", original)
            module.register_buffer(f"{name}_mask", found)
        else:
            setattr(module, f"{name}_mask", found)
            before._handle.remove()
        hook(module, None)
        hook._handle = module.register_forward_pre_hook(hook)
        return method

    def prune(self, t: Tensor, default_mask: Any = None, importance_scores: Any = None) -> Tensor:
        """A tensor with what is chosen at zero; it stays as it is."""
        scores = t if importance_scores is None else importance_scores
        mask = t.detach().ones_like() if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Any) -> None:
        """Let the pruned tensor be an ordinary parameter again, with its zeros."""
        name = self._tensor_name
        with thread_modes.no_grad():
            value = self.apply_mask(module).detach().clone()
        original = getattr(module, f"{name}_orig")
        for each in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, each)
        original.data = value
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Several ways one after another; each sees the elements that those before it left."""

    def __init__(self, *methods: BasePruningMethod):
        self._methods: tuple[BasePruningMethod, ...] = ()
        for method in methods:
            self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Prune by one more.

        Raises TypeError for what is none, ValueError for one of another tensor.
        """
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._methods and method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. "
                f"Found '{method._tensor_name}'"
            )
        self._methods = (*self._methods, method)

    def __len__(self) -> int:
        return len(self._methods)

    def __iter__(self) -> Any:
        return iter(self._methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last way, within what `default_mask` leaves."""
        method = self._methods[-1]
        mask = default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "global":
            return mask * method.compute_mask(t, mask.ones_like())
        if method.PRUNING_TYPE == "structured":
            dim: int = method.dim  # type: ignore[attr-defined]
            rows = mask.movedim(dim, 0)
            left = rows.reshape(rows.shape[0], -1).sum(1).nonzero().reshape(-1)
            chosen = method.compute_mask(t.index_select(dim, left), mask.index_select(dim, left))
            return mask.index_copy(dim, left, chosen)
        left = mask.reshape(-1).nonzero().reshape(-1)
        unpruned = t.reshape(-1).index_select(0, left)
        chosen = method.compute_mask(unpruned, unpruned.ones_like())
        return mask.reshape(-1).index_copy(0, left, chosen).reshape(t.shape)


class Identity(BasePruningMethod):
    """Nothing is pruned: the parameter has a mask of ones."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it is."""
        return default_mask


class _Unstructured(BasePruningMethod):
    """A number, or a share, of the elements."""

    def __init__(self, amount: Amount):
        _check_amount(amount)
        self.amount = amount

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros where the scores are least."""
        count = _count_of(self.amount, int(t.numel()))
        if not count:
            return default_mask.clone()
        least = self._scores(t).reshape(-1).topk(count, largest=False).indices
        return default_mask.clone().reshape(-1).index_fill(0, least, 0).reshape(t.shape)


class L1Unstructured(_Unstructured):
    """The elements of least magnitude."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class RandomUnstructured(_Unstructured):
    """Elements at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.rand_like()


class _Structured(BasePruningMethod):
    """A number, or a share, of the slices along axis `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1):
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in the slices whose scores are least.

        Raises ValueError for a vector, and for more slices than there are.
        """
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {t.shape} with {t.ndim} dims"
            )
        rows = t.movedim(self.dim, 0)
        count = _count_of(self.amount, rows.shape[0])
        if not count:
            return default_mask.clone()
        least = self._scores(rows.reshape(rows.shape[0], -1)).topk(count, largest=False).indices
        return default_mask.clone().index_fill(self.dim, least, 0)


class LnStructured(_Structured):
    """The slices of least norm, of order `n`."""

    def __init__(self, amount: Amount, n: float, dim: int = -1):
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, rows: Tensor) -> Tensor:
        return rows.norm(p=self.n, dim=1)


class RandomStructured(_Structured):
    """Slices at random."""

    def _scores(self, rows: Tensor) -> Tensor:
        made: Tensor = rows[:, 0].rand_like()
        return made


class CustomFromMask(BasePruningMethod):
    """The elements that a given mask leaves."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The elements that both masks leave."""
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Give a module's tensor a mask of ones; gives the module, as those below."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Amount) -> Any:
    """Prune elements at random: a number of those that are left, or a share."""
    RandomUnstructured.apply(module, name, amount=amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Amount, importance_scores: Any = None) -> Any:
    """Prune the elements of least magnitude, or of least score."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Amount, dim: int) -> Any:
    """Prune slices along an axis at random."""
    RandomStructured.apply(module, name, amount=amount, dim=dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Amount, n: float, dim: int, importance_scores: Any = None
) -> Any:
    """Prune the slices along an axis whose norm is least."""
    LnStructured.apply(
        module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
    )
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune what a mask has zeros for."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: Callable[..., Any],
    importance_scores: Any = None,
    **options: Any,
) -> None:
    """Prune elements of several parameters, compared with one another.

    Raises TypeError for a way that does not choose single elements.
    """
    pairs: Sequence[tuple[Any, str]] = list(parameters)
    given = importance_scores or {}
    with thread_modes.no_grad():
        scores, masks = [], []
        for module, name in pairs:
            tensor = getattr(module, name)
            scores.append(as_ours(given.get((module, name), tensor)).detach().reshape(-1))
            mask = getattr(module, f"{name}_mask", None)
            masks.append((tensor.detach().ones_like() if mask is None else mask).reshape(-1))
        container = PruningContainer()
        container._tensor_name = "all"
        method = pruning_method(**options)
        if method.PRUNING_TYPE != "unstructured":
            raise TypeError(
                'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                f"{pruning_method} of type {method.PRUNING_TYPE}"
            )
        method._tensor_name = "all"
        container.add_pruning_method(method)
        sizes = [each.numel() for each in scores]
        found = container.compute_mask(_joined(scores), _joined(masks)).split(sizes)
    for (module, name), mask in zip(pairs, found, strict=True):
        custom_from_mask(module, name, mask.reshape(getattr(module, name).shape))


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].cat(*tensors[1:]) if len(tensors) > 1 else tensors[0]


def remove(module: Any, name: str) -> Any:
    """Let a pruned tensor be an ordinary parameter again, with its zeros; gives the module.

    Raises ValueError for a tensor that is not pruned.
    """
    hook = _pruning_of(module, name)
    if hook is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    hook.remove(module)
    hook._handle.remove()
    return module


def is_pruned(module: Any) -> bool:
    """Whether anything in a module is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for _, each in module.named_modules()
        for hook in each._forward_pre_hooks.values()
    )


refuse_others(__name__)
