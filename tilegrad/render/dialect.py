"""Differences of the languages like C: names of types and functions, qualifiers, operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilegrad.base.dtype import AddressSpace, DType
from tilegrad.ir.op import Ops

__all__ = ["OPERATORS", "Dialect", "define_whole"]


@dataclass(frozen=True)
class Dialect:
    """One C-like language, as data. Texts in braces are filled in.

    Attributes:
        kernel: the line that opens a kernel, of {name}, {parameters} and {lanes}, the number of
            lanes of its block.
        types: scalar dtype -> its name.
        memory_types: scalar dtype -> its name in memory, where that differs.
        stems: scalar dtype -> the begin of the names of its vector types.
        vector_elements: scalar dtype -> the type of its vectors' elements, where that differs.
        vector: a vector of {type} from its {lanes}.
        lanes: how to pick lane i, for vectors of up to four lanes; `wide_lanes` for longer ones.
        memory_lanes: the vector lengths that one access through a pointer may have.
        define_vector: the definition of the vector type {name} of {count} {type}s, for types that
            are not `built_in`.
        headers: scalar dtype -> the lines above a kernel that uses it.
        prelude: lines that open every source.
        pointers: the words before a pointer to each address space.
        read_only, restrict: before and after the type of a pointer parameter that nothing is stored
            to.
        scalar: a parameter {name} of {type}.
        launch_parameters: parameters that say where in the launch a lane is.
        no_parameters: the text of an empty list of parameters.
        ids: kind of position ("gidx", "lidx") -> its text, of {axis} (x, y, z) and {number}. None:
            a parameter.
        shared, scratch: the words before an array in each address space.
        asked: the declaration of shared memory called `asked`, of bytes, whose size a launch says,
            for kernels that have more than the language lets them declare.
        barrier: the statement at which a block meets.
        functions: op, or (op, dtype) -> its text, where it is not `OPERATORS`.
        combine: op, or (op, dtype) -> the statement that combines {value} with memory at {pointer}.
        reinterpret: the bits of {value} as the {type}, where no pointer is to be cast for it.
        whole: a float {value} of {source} as the integer {type}: it saturates, and NaN gives 0.
        define_whole: the definition of the function that `whole` calls; in C a cast of a value out
            of range is undefined.
        has_vector_arithmetic: whether operators work on whole vectors.
        combines_by_lane: whether memory is combined with one element at a time.
        shields_short_floats: whether half and bfloat16 convert implicitly to several types, so that
            a cast to another than float must go through float.
        keeps_excess: whether half arithmetic may be done, and kept, in float.
        wraps_integers: whether the language says that signed integers wrap around.
    """

    kernel: str
    types: Mapping[DType, str]
    stems: Mapping[DType, str]
    vector: str
    lanes: tuple[str, ...]
    wide_lanes: tuple[str, ...] = ()
    memory_types: Mapping[DType, str] = field(default_factory=dict)
    vector_elements: Mapping[DType, str] = field(default_factory=dict)
    memory_lanes: frozenset[int] = frozenset({2, 4})
    define_vector: str = ""
    built_in: frozenset[str] = frozenset()
    headers: Mapping[DType, str] = field(default_factory=dict)
    prelude: tuple[str, ...] = ()
    pointers: Mapping[AddressSpace, str] = field(default_factory=dict)
    read_only: str = ""
    restrict: str = ""
    scalar: str = "{type} {name}"
    launch_parameters: tuple[str, ...] = ()
    no_parameters: str = ""
    ids: Mapping[str, str] | None = None
    shared: str = ""
    scratch: str = ""
    asked: str = ""
    barrier: str = ""
    functions: Mapping[Ops | tuple[Ops, DType], str] = field(default_factory=dict)
    combine: Mapping[Ops | tuple[Ops, DType], str] = field(default_factory=dict)
    reinterpret: str = ""
    whole: str = "{stem}_of_{source}({value})"
    define_whole: str = ""
    has_vector_arithmetic: bool = False
    combines_by_lane: bool = False
    shields_short_floats: bool = False
    keeps_excess: bool = False
    wraps_integers: bool = False


def define_whole(specifiers: str) -> str:
    """The definition of the function that saturates, with these specifiers before its type."""
    return (
        f"{specifiers} {{type}} {{stem}}_of_{{source}}({{source}} x) {{{{ "
        "return x!=x ? 0 : x>={above} ? {high} : x<={below} ? {low} : ({type})x; }}"
    )


# Text that is C in every dialect.
OPERATORS: Mapping[Ops, str] = {
    Ops.NEG: "(-{0})",
    Ops.ADD: "({0}+{1})",
    Ops.SUB: "({0}-{1})",
    Ops.MUL: "({0}*{1})",
    Ops.FDIV: "({0}/{1})",
    Ops.CMPLT: "({0}<{1})",
    Ops.CMPNE: "({0}!={1})",
    Ops.CMPEQ: "({0}=={1})",
    Ops.AND: "({0}&{1})",
    Ops.OR: "({0}|{1})",
    Ops.XOR: "({0}^{1})",
    Ops.SHL: "({0}<<{1})",
    Ops.SHR: "({0}>>{1})",
    Ops.WHERE: "({0}?{1}:{2})",
    Ops.MAX: "({1}>{0}?{1}:{0})",
    Ops.MULACC: "({0}*{1}+{2})",
}
