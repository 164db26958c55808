"""The common base of the renderers of all languages whose kernels read like C.

A renderer is a `Dialect`, which is a table of words, and a `PatternMatcher` whose rules turn a node
into text. Those of `render.text_rules` serve every dialect; a target puts its own before them:
`rules = MY_RULES + C_RULES`. `Rendering` walks a program once, in its order. Each value either
becomes a line, `float alu0 = (val0+val1);`, or is kept as text until its only use. Text is always
built from the finished text of the sources, so a long program needs no deep recursion.

The text means what the program says only under the options that a renderer lists as `flags`: no
contraction of products and sums, no assumption from types about what pointers alias. Signed
integers that may overflow are computed in the unsigned type, where that is defined.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from tilegrad.base.config import config
from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.base.errors import CompileError, InternalError
from tilegrad.ir.matcher import PatternMatcher
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, pointer_of, toposort
from tilegrad.render.dialect import OPERATORS, Dialect
from tilegrad.render.inline import block_lanes, inlined, loads_inside, real, value_of
from tilegrad.render.names import function_name, variable_name
from tilegrad.render.shared_memory import shared_layout
from tilegrad.target import Target

__all__ = [
    "CStyleRenderer", "Rendering", "gated_statement", "lane", "parameters", "strip_parentheses",
]  # fmt: skip


# NaN wins on either side; fmax would drop it.
_FLOAT_MAX = "((({1}>{0})|({1}!={1}))?{1}:{0})"

_PREFIX = {
    Ops.LOAD: "val",
    Ops.CAST: "cast",
    Ops.BITCAST: "cast",
    Ops.VECTORIZE: "cast",
    Ops.GEP: "cast",
    Ops.SHUFFLE: "other",
    Ops.WMMA: "wmma",
    Ops.FRAGMENT: "fragment",
    Ops.DEFINE_ACC: "acc",
    Ops.DEFINE_LOCAL: "temp",
    Ops.RANGE: "ridx",
}
_STATEMENTS = frozenset(
    {
        Ops.STORE, Ops.COPY_ASYNC, Ops.WAIT, Ops.BARRIER, Ops.ASSIGN, Ops.RANGE, Ops.DEFINE_ACC,
        Ops.SPECIAL,
    }
)  # fmt: skip
_REPEATABLE = re.compile(r"\w+(\.\w+|\[\d+\])?")
# Compilers refuse parentheses nested some hundreds deep; a value that grows beyond this gets a
# name.
_LONGEST, _DEEPEST = 1000, 48


def gated_statement(gate: str, text: str) -> str:
    """The statements of `text`, under a condition."""
    lines = text.replace("\n", "\n  ")
    return f"if ({strip_parentheses(gate)}) {{\n  {lines}\n}}"


def strip_parentheses(text: str) -> str:
    """`text` without the parentheses around all of it, if there are such."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def parameters(program: Sequence[UOp]) -> list[UOp]:
    """The kernel's parameters in their order: pointers by slot, then variables as the program first
    uses them.
    """
    pointers = sorted(
        (node for node in program if node.op is Ops.DEFINE_GLOBAL), key=lambda node: int(node.arg)
    )
    return pointers + [node for node in program if node.op is Ops.DEFINE_VAR]


def lane(node: UOp, number: int) -> UOp:
    """Lane `number` of `node`; a scalar is its own lane."""
    if node.dtype.lanes == 1:
        return node
    if node.op is Ops.CONST:
        return UOp(Ops.CONST, node.dtype.scalar, (), node.arg)
    return UOp(Ops.GEP, node.dtype.scalar, (node,), (number,))


class CStyleRenderer:
    """Renders programs in one dialect. Subclasses set the table and the rules."""

    dialect: ClassVar[Dialect]
    rules: ClassVar[PatternMatcher]
    flags: ClassVar[tuple[str, ...]] = ()

    def __init__(self, target: Target):
        self.target = target

    def render(self, name: str | Sequence[UOp], uops: Sequence[UOp] | None = None) -> str:
        """The source of `uops` as the function `name`; `render(uops)` calls it "example".

        Raises CompileError for an op or dtype that the target lacks.
        """
        if isinstance(name, str):
            assert uops is not None, "render: a name without a program"
            title, program = name, uops
        else:
            title, program = "example", name
        return Rendering(self, list(toposort(program))).source(function_name(title))


class Rendering:
    """One program on its way to text: the text of each value so far, the lines, and the lines above
    the kernel.
    """

    def __init__(self, renderer: CStyleRenderer, program: Sequence[UOp]):
        self.dialect = renderer.dialect
        self.target = renderer.target
        self.program = program
        self._rules = renderer.rules
        self._inlined = inlined(program, bool(config.EXPAND_SSA))
        self._loads_inside = loads_inside(program)
        self._texts: dict[UOp, str] = {}
        self._counts: Counter[str] = Counter()
        self._lines: list[str] = []
        self._arrays: list[str] = []
        self._above: dict[str, None] = {}
        self._indent = 1

    # the walk

    def source(self, name: str) -> str:
        """The whole text."""
        for node in self.program:
            self._add(node)
        if self._indent != 1:
            raise InternalError(f"render: {name} leaves {self._indent - 1} loops open")
        head = self.dialect.kernel.format(
            name=name, parameters=self._signature(), lanes=block_lanes(self.program)
        )
        return "\n".join(
            [*self.dialect.prelude, *self._above, head, *self._arrays, *self._lines, "}"]
        )

    def _add(self, node: UOp) -> None:
        op = node.op
        if op is Ops.SINK or node in self._loads_inside:
            return
        if op is Ops.AFTER and value_of(node) is not node:
            return
        if op is Ops.DEFINE_GLOBAL:
            if not isinstance(node.dtype, Pointer):
                raise CompileError(f"render: parameter {node.arg} is no pointer", dtype=node.dtype)
            self._texts[node] = f"data{node.arg}"
        elif op is Ops.DEFINE_VAR:
            self._texts[node] = variable_name(node.name)
        elif op is Ops.DEFINE_LOCAL:
            self._define_array(node)
        elif op is Ops.END:
            for source in node.src:
                if source.op is Ops.RANGE:
                    self._indent -= 1
                    self.emit("}")
        elif op in _STATEMENTS:
            if op in _PREFIX:
                self._texts[node] = self._fresh(_PREFIX[op])
            elif op is Ops.SPECIAL:
                self._texts[node] = node.name
            for line in self._rendered(node).splitlines():
                self.emit(line)
            self._indent += op is Ops.RANGE
        else:
            text = self._texts[real(node)] if op is Ops.AFTER else self._rendered(node)
            self._texts[node] = text
            if op is not Ops.CONST and not (node in self._inlined and _is_short(text)):
                self._texts[node] = self._named(node, text)

    def _rendered(self, node: UOp) -> str:
        text: object = self._rules.rewrite(node, self)
        if text is None:
            raise CompileError(
                f"render: {self.target.name} has no {node.op.name}", dtype=node.dtype, arg=node.arg
            )
        # A quotient by a loaded value must not open a comment.
        return str(text) if node.op is Ops.SPECIAL else str(text).replace("/*", "/ *")

    def _fresh(self, prefix: str) -> str:
        self._counts[prefix] += 1
        return f"{prefix}{self._counts[prefix] - 1}"

    def _named(self, node: UOp, text: str) -> str:
        """Write `text` to a variable of its own."""
        name = self._fresh(_PREFIX.get(node.op, "alu"))
        self.emit(f"{self.type(node.dtype)} {name} = {text};")
        return name

    def _define_array(self, node: UOp) -> None:
        """Arrays stand at the head: some languages allow shared memory nowhere else."""
        pointer = pointer_of(node)
        name = self._texts[node] = self._fresh("temp")
        qualifier = (
            self.dialect.shared if pointer.space is AddressSpace.SHARED else self.dialect.scratch
        )
        if pointer.space is AddressSpace.SHARED and not qualifier:
            raise CompileError(f"render: {self.target.name} has no shared memory", dtype=pointer)
        kind = self.memory_type(pointer.base)
        if self.dialect.asked and pointer.space is AddressSpace.SHARED:
            layout = shared_layout(self.program)
            if layout.is_asked:
                start = layout.starts[node]
                self._arrays += [] if start else [f"  {self.dialect.asked}"]
                self._arrays.append(f"  {kind}* {name} = ({kind}*)(asked+{start});")
                return
        self._arrays.append(f"  {qualifier}{kind} {name}[{pointer.size}];")

    def _signature(self) -> str:
        stored = {real(node.src[0]) for node in self.program if node.op is Ops.STORE}
        texts = []
        given = parameters(self.program)
        if self.dialect.ids is None:
            given += [node for node in self.program if node.op is Ops.SPECIAL]
        for node in given:
            if isinstance(node.dtype, Pointer):
                read_only = "" if node in stored else self.dialect.read_only
                kind = self.pointer_type(node.dtype, node.dtype.base)
                texts.append(f"{read_only}{kind} {self.dialect.restrict}{self._texts[node]}")
            else:
                texts.append(
                    self.dialect.scalar.format(type=self.type(node.dtype), name=self._texts[node])
                )
        return ", ".join([*texts, *self.dialect.launch_parameters]) or self.dialect.no_parameters

    # questions of rules

    def text(self, node: UOp) -> str:
        """The text of a value; one that is not part of the program is rendered in place."""
        node = value_of(node)
        found = self._texts.get(node)
        return self._rendered(node) if found is None else found

    def atom(self, node: UOp) -> str:
        """The text of a value in a form to repeat: a name, a constant, a lane of a name."""
        node = value_of(node)
        text = self.text(node)
        if node.op is Ops.CONST or _REPEATABLE.fullmatch(text):
            return text
        self._texts[node] = self._named(node, text)
        return self._texts[node]

    def name_for(self, node: UOp) -> str:
        """A new name for a value that is not part of the program; who asks declares it."""
        self._texts[node] = self._fresh("old")
        return self._texts[node]

    def variable(self, node: UOp) -> str:
        """The text of a value as the name of a variable, whose address may be taken."""
        node = value_of(node)
        text = self.text(node)
        return text if text.isidentifier() and node.op is not Ops.CONST else self._named(node, text)

    def emit(self, line: str) -> None:
        self._lines.append("  " * self._indent + line)

    def need(self, definition: str) -> None:
        """Put `definition` above the kernel, once."""
        self._above[definition] = None

    def type(self, dtype: DType) -> str:
        """The name of `dtype` for values."""
        scalar = dtype.scalar
        if scalar not in self.dialect.types or not self.target.supports(scalar):
            raise CompileError(
                f"render: {self.target.name} has no {scalar.name}",
                dtype=dtype,
                rule="lower.decompose replaces the dtypes that a target lists as missing",
            )
        if scalar in self.dialect.headers:
            self.need(self.dialect.headers[scalar])
        return self.dialect.types[scalar] if dtype.lanes == 1 else self._vector_type(dtype)

    def _vector_type(self, dtype: DType) -> str:
        dialect, count = self.dialect, dtype.lanes
        name = f"{dialect.stems[dtype.scalar]}{count}"
        if count > max(len(dialect.lanes), len(dialect.wide_lanes)) or (
            dialect.has_vector_arithmetic and count & (count - 1)
        ):
            raise CompileError(
                f"render: {self.target.name} has no vector of {count} lanes", dtype=dtype
            )
        if dialect.define_vector and name not in dialect.built_in:
            fields = [text.strip(".") for text in self._lane_names(count)]
            scalar = dialect.vector_elements.get(dtype.scalar) or dialect.types[dtype.scalar]
            definition = dialect.define_vector.format(
                type=scalar,
                name=name,
                count=count,
                bytes=dtype.nbytes,
                scalar_bytes=dtype.itemsize,
                alignment=min(16, 1 << (dtype.nbytes - 1).bit_length()),
                fields=", ".join(fields),
                arguments=", ".join(f"{scalar} {item}" for item in fields),
            )
            self.need(definition)
        return name

    def memory_type(self, dtype: DType) -> str:
        """The name of `dtype` for elements in memory."""
        return self.dialect.memory_types.get(dtype) or self.type(dtype)

    def pointer_type(self, pointer: Pointer, element: DType) -> str:
        return f"{self.dialect.pointers.get(pointer.space, '')}{self.memory_type(element)}*"

    def _lane_names(self, count: int) -> tuple[str, ...]:
        names = self.dialect.lanes if count <= len(self.dialect.lanes) else self.dialect.wide_lanes
        return names[:count]

    def lane_of(self, vector: str, dtype: DType, number: int) -> str:
        """Lane `number` of the variable `vector`."""
        return f"{vector}{self._lane_names(dtype.lanes)[number]}"

    def operation(self, op: Ops, dtype: DType, operands: Sequence[UOp]) -> str:
        """`op` on `operands`, whose first has the scalar dtype `dtype`."""
        functions = self.dialect.functions
        template = functions.get((op, dtype)) or functions.get(op) or OPERATORS.get(op)
        if op is Ops.MAX and dtype.is_float:
            template = _FLOAT_MAX
        elif op is Ops.MULACC and not dtype.is_float:
            template = OPERATORS[op]
        if template is None:
            raise CompileError(
                f"render: {self.target.name} has no {op.name} of {dtype.name}", dtype=dtype
            )
        repeated = [template.count(f"{{{number}}}") > 1 for number in range(len(operands))]
        texts = [
            self.atom(node) if twice else self.text(node)
            for node, twice in zip(operands, repeated, strict=True)
        ]
        return template.format(*texts)

    def whole(self, value: str, source: DType, dtype: DType) -> str:
        """The float `value` as an integer: the nearest that there is, 0 for NaN."""
        words = {"type": self.type(dtype), "stem": self.dialect.stems[dtype], "value": value}
        words["source"] = "double" if source is dtypes.float64 else "float"
        if self.dialect.define_whole:
            low, high = int(dtype.min), int(dtype.max)
            suffix = "f" if words["source"] == "float" else ""
            limits = {
                "low": f"({low + 1}-1)" if low else "0",
                "high": f"{high}u" if dtype.kind == "uint" else f"{high}",
                "below": f"{low}.0{suffix}",
                "above": f"{high + 1}.0{suffix}",
            }
            self.need(self.dialect.define_whole.format(**words, **limits))
        return self.dialect.whole.format(**words)

    def lanewise(self, node: UOp) -> str:
        """A vector operation as a vector of scalar ones."""
        for source in node.src:
            if source.dtype.lanes > 1:
                self.atom(source)
        scalar = node.dtype.scalar
        elements = [
            UOp(node.op, scalar, tuple([lane(source, number) for source in node.src]), node.arg)
            for number in range(node.dtype.lanes)
        ]
        return self.stacked(elements)

    def stacked(self, elements: Sequence[UOp]) -> str:
        """The vector of `elements`. Each is rendered here even if the program has a name for it,
        which may be in another loop.
        """
        outside = {
            element: self._texts.pop(element) for element in elements if element in self._texts
        }
        for element in elements:
            self._texts[element] = self._rendered(element)
        text = self._rendered(UOp.stack(elements))
        for element in elements:
            self._texts.pop(element, None)
        self._texts |= outside
        return text

    def address(self, buffer: UOp, index: UOp) -> str:
        """A pointer to the element of `buffer` at `index`."""
        offset = self.text(index)
        if value_of(index).op is Ops.ADD:
            offset = strip_parentheses(offset)
        return f"({self.text(buffer)}+{offset})"

    def holds_vectors(self, buffer: UOp, dtype: DType) -> bool:
        """Whether the elements of `buffer` are whole values of `dtype`."""
        return dtype.lanes == pointer_of(buffer).base.lanes

    def access(self, buffer: UOp, index: UOp, dtype: DType) -> str:
        """The element of `buffer` at `index`, or the vector of elements from there."""
        pointer = pointer_of(buffer)
        address = self.address(buffer, index)
        if dtype.lanes == pointer.base.lanes:
            return f"*{address}"
        return f"*(({self.pointer_type(pointer, dtype)})({address}))"

    def is_accessible(self, buffer: UOp, dtype: DType) -> bool:
        """Whether one access moves a value of `dtype`."""
        pointer = pointer_of(buffer)
        return dtype.lanes == pointer.base.lanes or dtype.lanes in self.dialect.memory_lanes


def _is_short(text: str) -> bool:
    """Whether `text` may still become part of another."""
    if len(text) > _LONGEST:
        return False
    depth = deepest = 0
    if text.count("(") > _DEEPEST:
        for letter in text:
            depth += (letter == "(") - (letter == ")")
            deepest = max(deepest, depth)
    return deepest <= _DEEPEST
