"""Finding the tensors of a model, and carrying them to files and back.

A model is any object: its tensors are found by walking attributes, lists, tuples and dicts, and are
called by the way to them, as in "layers.0.weight". Those are PyTorch's names for the same model.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import tilegrad.io
from tilegrad.base.absent import absent, as_asked
from tilegrad.base.errors import DataError, DTypeError, ShapeError, article
from tilegrad.engine.realize.realize import readers_of
from tilegrad.io.weights import safe_load, safe_load_metadata, safe_save
from tilegrad.ir.op import Ops
from tilegrad.nn.tree import Paired, is_tensor, walk
from tilegrad.tensor.handle.core import device_of
from tilegrad.tensor.storage import writes
from tilegrad.tensor.storage.memory import base_of, is_view
from tilegrad.tensor.tensor import Tensor
from tilegrad.tensor.writing.copied import copy_at_once

__all__ = [
    "Unmatched", "get_parameters", "get_state_dict", "load_state_dict", "safe_load",
    "safe_load_metadata", "safe_save",
]  # fmt: skip

# Names of tilegrad.io, loaded when they are first used.
_READERS = ("TensorIO", "gguf_load", "tar_extract", "torch_load", "zip_extract")


def __getattr__(name: str) -> Any:
    """The readers of other formats."""
    if name not in _READERS:
        raise as_asked(absent("module 'tilegrad.nn.state'", name, [*__all__, *_READERS]))
    return getattr(tilegrad.io, name)


class Unmatched(NamedTuple):
    """Names that the file or the model lacks.

    Args:
        missing: names that only the model has.
        unexpected: names that only the file has.

    Shape: two lists of names.

    >>> nn.state.Unmatched([], ["head.weight"]).unexpected
    ['head.weight']
    """

    missing: list[str]
    unexpected: list[str]

    @property
    def missing_keys(self) -> list[str]:
        """PyTorch's name of `missing`."""
        return self.missing

    @property
    def unexpected_keys(self) -> list[str]:
        """PyTorch's name of `unexpected`."""
        return self.unexpected


def get_state_dict(obj: object, prefix: str = "") -> dict[str, Tensor]:
    """Tensors of an object by name.

    An object that is reached again, by another way or through a cycle, is not walked again; a
    tensor that is reached by two ways has two names.

    Args:
        obj: a module, a tensor, or lists, dicts and objects of them.
        prefix: what each name begins with.

    Returns a dict of name to tensor, in their shapes and dtypes.

    Raises DataError if two tensors get one name.

    >>> list(nn.state.get_state_dict(nn.Linear(3, 2)))
    ['weight', 'bias']
    """
    found: dict[str, Tensor] = {}
    for name, item, _, _, _ in walk(obj, prefix, transient=False):
        if is_tensor(item):
            tensor: Tensor = item
            if found.setdefault(name, tensor) is not tensor:
                raise DataError(f"get_state_dict: two tensors are called {name!r}")
    return found


def get_parameters(obj: object) -> list[Tensor]:
    """Tensors of an object, each once; state that is not trained too, for the optimizer to know.

    Args:
        obj: as for `get_state_dict`.

    Returns a list of tensors, in their shapes and dtypes.

    Raises DataError if two tensors get one name.

    >>> len(nn.state.get_parameters(nn.Linear(3, 2)))
    2
    """
    return list({id(tensor): tensor for tensor in get_state_dict(obj).values()}.values())


def load_state_dict(
    model: object,
    state_dict: Mapping[str, Any],
    strict: bool = True,
    verbose: bool = False,
    consume: bool = False,
    realize: bool = True,
) -> Unmatched:
    """Write the tensors (or arrays) of `state_dict` into those of `model` that have their names.
    They take the dtype and device of the model's.

    Args:
        verbose: print how many tensors and bytes were loaded.
        consume: take the loaded tensors out of `state_dict`, so that it does not keep their memory.
        realize: copy the values into the model's memory now. Otherwise the model's tensors become
            those of `state_dict`, which stay lazy: weights of a mapped file are then used where
            they stand. Functions that were captured before still use the old memory.
        model: as for `get_state_dict`.
        state_dict: tensors or arrays by name, of the shapes of the model's.
        strict: whether other names are an error.

    Returns `Unmatched`: the names that the file or the model lacks.

    Raises DataError for such names if `strict`, but not for a `num_batches_tracked` that the file
    lacks, as PyTorch does; ShapeError for other shapes, DTypeError where a
    float would become an integer or the reverse. Everything is checked, and computed, before
    anything is written.

    >>> layer, other = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> nn.state.load_state_dict(layer, nn.state.get_state_dict(other), verbose=False)
    Unmatched(missing=[], unexpected=[])
    >>> layer.bias.tolist() == other.bias.tolist()
    True
    """
    if not isinstance(state_dict, Mapping):
        raise DTypeError(
            f"load_state_dict: cannot load {article(type(state_dict).__name__)}",
            rule="a dict of names and tensors, as nn.state.safe_load gives",
        )
    unmatched, ready = _loaded(model, state_dict, strict, casts=False)
    (_write if realize else _replace)(ready)
    if verbose:
        size = sum(tensor.element_size() * tensor.numel() for tensor, _ in ready)
        print(f"loaded {len(ready)} tensors, {size / 1e6:.2f} MB")
    if consume and isinstance(state_dict, MutableMapping):
        unexpected = set(unmatched.unexpected)
        for name in [name for name in state_dict if name not in unexpected]:
            del state_dict[name]
    return unmatched


def load_cast(model: object, state_dict: Mapping[str, Any], strict: bool) -> Unmatched:
    """As `load_state_dict`, also of integers for floats and the reverse, as PyTorch takes them."""
    unmatched, ready = _loaded(model, state_dict, strict, casts=True)
    _write(ready)
    return unmatched


def _loaded(
    model: object, state_dict: Mapping[str, Any], strict: bool, *, casts: bool
) -> tuple[Unmatched, list[tuple[Tensor, Tensor]]]:
    """The names of only one side, and each tensor of the model with its new value."""
    own = get_state_dict(model)
    unmatched = _unmatched(own, state_dict)
    if strict:
        _check_names(unmatched)
    pairs = [
        (name, _as_tensor(own[name]), _as_tensor(value))
        for name, value in state_dict.items()
        if name in own
    ]
    _check_pairs(pairs, casts=casts)
    return unmatched, _to_write(pairs)


def _unmatched(own: Mapping[str, Any], given: Mapping[str, Any]) -> Unmatched:
    """The names of only one side, but for counts that may be missing."""
    return Unmatched(
        [name for name in own if name not in given and not _is_counter(name)],
        [name for name in given if name not in own],
    )


def _is_counter(name: str) -> bool:
    """Whether `name` is a count of batches, which files of older PyTorch and of tinygrad lack."""
    return name.rpartition(".")[2] == "num_batches_tracked"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8]) or "none"
    return shown if len(names) <= 8 else f"{shown}, and {len(names) - 8} more"


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Paired):
        value = value.pair
    return value if isinstance(value, Tensor) else Tensor(value)


def _check_names(unmatched: Unmatched) -> None:
    if unmatched.missing or unmatched.unexpected:
        raise DataError(
            f"load_state_dict: {len(unmatched.missing)} names are missing, "
            f"{len(unmatched.unexpected)} are unexpected",
            missing=_listed(unmatched.missing),
            unexpected=_listed(unmatched.unexpected),
            remedy="strict=False loads the names that match",
        )


def _check_pairs(pairs: list[tuple[str, Tensor, Tensor]], *, casts: bool) -> None:
    """Raise ShapeError or DTypeError, naming every tensor that does not fit."""
    shapes = [
        f"{name}: {new.shape} for {old.shape}" for name, old, new in pairs if new.shape != old.shape
    ]
    if shapes:
        raise ShapeError(
            f"load_state_dict: {len(shapes)} tensors have another shape than the model's",
            given=_listed(shapes),
        )
    kinds = [
        f"{name}: {new.dtype.name} for {old.dtype.name}"
        for name, old, new in pairs
        if new.dtype is not old.dtype and new.dtype.is_float is not old.dtype.is_float
    ]
    if kinds and not casts:
        raise DTypeError(
            f"load_state_dict: {len(kinds)} tensors have another kind of dtype than the model's",
            given=_listed(kinds),
        )


def _to_write(pairs: list[tuple[str, Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Each tensor, and its value on its device and in its dtype. One with several names is written
    once.
    """
    values = {id(tensor): (tensor, value) for _, tensor, value in pairs}
    return [(tensor, _fitted(tensor, value)) for tensor, value in values.values()]


def _fitted(tensor: Tensor, value: Tensor) -> Tensor:
    """`value` on the device and in the dtype of `tensor`, without gradients."""
    if value._requires_grad:
        value = value.detach()
    if device_of(value) != device_of(tensor):
        value = value.to(tensor.device)
    return value if value.dtype is tensor.dtype else value.cast(tensor.dtype)


def _write(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy each value into the memory of its tensor, once all of them are computed: those made of
    memory that is written to, and those for tensors that have none, in memory of their own.
    """
    pairs = copy_at_once(pairs)
    if all(value._call is not None and writes.can_wait(tensor, value) for tensor, value in pairs):
        # A value that a program computed, as a moving average of parameters: the next run writes
        # it.
        for tensor, value in pairs:
            tensor.assign(value)
        return
    values = [value.uop for _, value in pairs]
    needing = set(readers_of({base_of(tensor.uop) for tensor, _ in pairs}, values))
    ready = [
        value.clone() if value.uop in needing or not is_view(tensor.uop) else value
        for tensor, value in pairs
    ]
    # A value that only comes from the host cannot fail, and is written at once.
    if computed := [value for value in ready if base_of(value.uop).op is not Ops.COPY]:
        Tensor.realize(*computed)
    if ready:
        Tensor.realize(*[tensor.assign(value) for (tensor, _), value in zip(pairs, ready)])


def _replace(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Let each tensor be its value, which stays lazy."""
    for tensor, value in pairs:
        is_trained, tensor.requires_grad = tensor.requires_grad, None
        tensor.replace(value)
        tensor.requires_grad = is_trained
