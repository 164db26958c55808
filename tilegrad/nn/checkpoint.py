"""Saving a whole training run, and going on with it.

A checkpoint is one safetensors file: the tensors of the model, the optimizer and whatever else is
given, each once, and beside them the number of the step, the place in the stream of random numbers,
and what the user adds. Loading it writes all of that back in place, so that a run that goes on
computes what it would have computed without the break.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from tilegrad.base.errors import DataError
from tilegrad.io.mapped import damaged
from tilegrad.nn.state import (
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)
from tilegrad.tensor.indexing.generator import generator
from tilegrad.tensor.tensor import Tensor

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

_READER = "load_checkpoint"
_FORMAT = "tilegrad checkpoint 1"
_WORD = 1 << 64


class Checkpoint(NamedTuple):
    """Result of `load_checkpoint`: the step, and the values that the user added."""

    step: int
    extra: Any


def save_checkpoint(
    path: str | os.PathLike[str],
    objects: Mapping[str, object],
    step: int = 0,
    extra: Any = None,
) -> None:
    """Write the tensors of `objects` (`{"model": net, "optimizer": opt}`), `step`, the state of the
    random numbers and `extra` (anything that JSON holds) to a file, which appears whole or not at
    all.

    Raises DataError if `extra` is no JSON, or the file cannot be written; an older one is then as
    it was.

    >>> save_checkpoint("run.ckpt", {"model": {"weight": Tensor.ones(2)}}, 100, {"loss": 0.5})
    """
    try:
        added = json.dumps(extra, allow_nan=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError("save_checkpoint: extra is nothing that JSON holds", got=error) from error
    names = _names(objects)
    metadata = {
        "format": _FORMAT,
        "step": str(int(step)),
        "random": json.dumps([generator.seed, generator.drawn]),
        "extra": added,
    }
    own = get_state_dict(dict(objects))
    safe_save({name: own[name] for name in dict.fromkeys(names.values())}, path, metadata)


def load_checkpoint(path: str | os.PathLike[str], objects: Mapping[str, object]) -> Checkpoint:
    """Write what `save_checkpoint` saved back into `objects`, which hold the same tensors by the
    same names, and put the random numbers where they were.

    Raises DataError for a file that is absent, damaged or no checkpoint, or whose names are others;
    ShapeError or DTypeError for other tensors. Nothing has been written then.

    >>> save_checkpoint("run.ckpt", {"model": {"weight": Tensor.ones(2)}}, 100, {"loss": 0.5})
    >>> model = {"weight": Tensor.zeros(2).clone()}
    >>> load_checkpoint("run.ckpt", {"model": model})
    Checkpoint(step=100, extra={'loss': 0.5})
    >>> model["weight"].tolist()
    [1.0, 1.0]
    """
    metadata = safe_load_metadata(path)
    if metadata.get("format") != _FORMAT:
        got = repr(metadata.get("format"))
        raise damaged(_READER, path, "not a checkpoint", repr(_FORMAT), got)
    try:
        step = int(metadata["step"])
        seed, drawn = json.loads(metadata["random"])
        extra = json.loads(metadata["extra"])
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        what = "the checkpoint's metadata are damaged"
        raise damaged(_READER, path, what, "step, random and extra", repr(error)) from error
    if type(seed) is not int or type(drawn) is not int or not (0 <= seed < _WORD and drawn >= 0):
        what = "the state of the random numbers is damaged"
        raise damaged(_READER, path, what, "a seed and a count", f"{metadata['random']:.60}")
    tensors: dict[str, Tensor] = safe_load(path)
    names = _names(objects)
    unknown = {name: tensors[name] for name in tensors if name not in names.values()}
    shared = {name: tensors[first] for name, first in names.items() if first in tensors}
    load_state_dict(dict(objects), shared | unknown)
    generator.restart(seed)
    generator.take(drawn)
    return Checkpoint(step, extra)


def _names(objects: Mapping[str, object]) -> dict[str, str]:
    """For each name of a tensor the first name of that tensor: under that it is stored."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(tensor), name)
        for name, tensor in get_state_dict(dict(objects)).items()
    }
