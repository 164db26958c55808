"""The definition of an op: its number of sources, its meaning, its price, and its stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

__all__ = ["Definition", "Stage", "op"]


class Stage(Flag):
    """The stages of a graph: tensors, a kernel, a linear program."""

    TENSOR = auto()
    KERNEL = auto()
    PROGRAM = auto()
    CODE = KERNEL | PROGRAM
    ALL = TENSOR | KERNEL | PROGRAM

    @property
    def label(self) -> str:
        return str(self.name)


@dataclass(frozen=True)
class Definition:
    """The definition of an op; `arity` None means any number of sources.

    `price` is the cost of one element without its sources, in units of one multiply: a
    transcendental function costs its polynomial, a division a slow instruction. All cost models
    read it. `instructions` is about how many there are of it in a program for a target that lacks
    the op: of float32, where multiply-adds are fused; a CAST, to and from a dtype that it lacks. It
    bounds how long a kernel takes to compile.
    """

    arity: int | None
    doc: str
    stages: Stage = Stage.ALL
    evaluate: Callable[..., Any] | None = None
    symbol: str = ""
    commutes: bool = False
    boolean: bool = False
    identity: Callable[[Any], Any] | None = None
    price: int = 1
    instructions: int = 1


_SERIAL = iter(range(10**6))


def op(
    arity: int | None, doc: str, stages: Stage = Stage.ALL, **fields: Any
) -> tuple[int, Definition]:
    """One definition, numbered so that no two enum members are aliases."""
    return next(_SERIAL), Definition(arity, " ".join(doc.split()), stages, **fields)
