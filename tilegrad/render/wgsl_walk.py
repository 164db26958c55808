"""The walk over a program whose text is WGSL: bindings, positions in the launch, types."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.base.errors import CompileError, InternalError
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.render.clike import CStyleRenderer, Rendering
from tilegrad.render.dialect import Dialect
from tilegrad.render.inline import real
from tilegrad.render.names import function_name
from tilegrad.render.wgsl_arrays import Array, slice_length
from tilegrad.render.wgsl_layout import Layout, layout_of
from tilegrad.render.wgsl_long import functions
from tilegrad.render.wgsl_loops import repeated, repetitions

__all__ = ["MOST_BLOCKS", "WGSL", "WGSLRendering", "kernel_name", "launch_shape"]

MOST_BLOCKS = 65535
"""Blocks along one axis of a launch, in every implementation of WebGPU."""

_TYPES = {
    dtypes.bool: "bool",
    dtypes.int8: "i32",
    dtypes.int16: "i32",
    dtypes.int32: "i32",
    dtypes.uint8: "u32",
    dtypes.uint16: "u32",
    dtypes.uint32: "u32",
    dtypes.int64: "vec2<u32>",
    dtypes.uint64: "vec2<u32>",
    dtypes.float16: "f16",
    dtypes.float32: "f32",
    dtypes.float64: "f64",
}
_LANES = (".x", ".y", ".z", ".w")
WGSL = Dialect(
    kernel="",
    types=_TYPES,
    stems=_TYPES,
    vector="{type}({lanes})",
    lanes=_LANES,
    ids={"gidx": "gid.{axis}", "lidx": "lid.{axis}"},
    barrier="workgroupBarrier();",
    wraps_integers=True,
)
# Names reserved by WGSL that a kernel may be called.
_RESERVED = re.compile(
    r"_|(alias|array|atomic|bool|break|case|const|continue|default|diagnostic|discard|else|enable|"
    r"false|fn|for|gid|if|let|lid|loop|main|mat\d.*|override|ptr|requires|return|struct|switch|"
    r"true|var|variables|vec\d.*|while|[fiu](16|32|64)|abs|all|any|clamp|exp|exp2|floor|fract|log|"
    r"log2|max|min|mix|pow|round|select|sign|sin|cos|sqrt|step|tan|trunc)"
)


def launch_shape(blocks: Sequence[int]) -> tuple[int, int, int]:
    """The blocks along each axis of a dispatch. Where an axis has more than there may be, the
    blocks are counted in one row after the other, some beyond the last.
    """
    x, y, z = (*blocks, 1, 1)[:3]
    if max(x, y, z) <= MOST_BLOCKS:
        return x, y, z
    return MOST_BLOCKS, -(-x * y * z // MOST_BLOCKS), 1


class WGSLRendering(Rendering):
    """One program on its way to WGSL."""

    def __init__(self, renderer: CStyleRenderer, program: Sequence[UOp]):
        super().__init__(renderer, program)
        self.layouts: dict[UOp, Layout] = {
            node: layout_of(node, program, self.target)
            for node in program
            if node.op in (Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL)
        }
        self._uses_variables = any(node.op is Ops.DEFINE_VAR for node in program)
        self._lengths = {node: self._slice_length(node) for node in self._memory()}
        self._slices = self._share_bindings()
        most = self.target.most_iterations
        self._copies = repetitions(program, most) if most else {}
        # Loops whose body is repeated: the line where each begins.
        self._heads: dict[UOp, int] = {}

    def source(self, name: str) -> str:
        """The whole text, below a line that says what a launch passes: the slots of its memory, and
        the number of its integers, of 64 bits each, behind a zero; -1 where there is not even that.
        A slice of a slot's memory has its first byte, and the first byte behind it, at its side.
        """
        for node in self.program:
            self._add(node)
        if self._indent != 1:
            raise InternalError(f"render: {name} leaves {self._indent - 1} loops open")
        arrays = [self.array(node) for node in self._memory()]
        variables = [node for node in self.program if node.op is Ops.DEFINE_VAR]
        count = len(variables) if self._uses_variables else -1
        names = [each for array in arrays for each in array.names]
        self._check_buffers(len(names))
        lanes = ", ".join(map(str, self._extents("lidx")))
        elements = [array.layout.element for array in arrays for _ in array.names]
        enables = ["enable f16;"] if self._has_half() else []
        bindings = [
            f"@group(0) @binding({number}) var<storage, read_write> {each}: array<{element}>;"
            for number, (each, element) in enumerate(zip(names, elements, strict=True))
        ]
        if self._uses_variables:
            fields = ["zero: vec2<u32>", *(f"{_field(node)}: vec2<u32>" for node in variables)]
            bindings.append(f"struct Variables {{ {', '.join(fields)} }}")
            bindings.append("@group(1) @binding(0) var<uniform> variables: Variables;")
        head = (
            f"@compute @workgroup_size({lanes})\nfn {name}(@builtin(workgroup_id) gid: vec3<u32>, "
            "@builtin(local_invocation_id) lid: vec3<u32>) {"
        )
        return "\n".join(
            [
                f"// {name}: {' '.join(self._bound())} | {count}",
                *enables,
                *bindings,
                *self._above,
                head,
                *self._flat_position(),
                *self._arrays,
                *self._lines,
                "}",
            ]
        )

    def _check_buffers(self, count: int) -> None:
        """Raise CompileError for more buffers than a kernel of this target may use."""
        most = self.target.most_buffers
        if most and count > most:
            raise CompileError(
                f"render: {self.target.name} has no kernel of {count} buffers",
                limit=f"{most} in one kernel",
                remedy="realize some of the operands first",
            )

    def _has_half(self) -> bool:
        kinds = [n.dtype.base if isinstance(n.dtype, Pointer) else n.dtype for n in self.program]
        return any(kind.scalar is dtypes.float16 for kind in kinds)

    def _memory(self) -> list[UOp]:
        """The memory that a launch passes, by slot."""
        found = [node for node in self.program if node.op is Ops.DEFINE_GLOBAL]
        return sorted(found, key=lambda node: int(node.arg))

    def _bound(self) -> list[str]:
        """Bindings of a launch: slots, and slices of them, the last one with all the rest."""
        found = []
        for node in self._memory():
            array = self.array(node)
            step = array.length * array.layout.nbytes
            for number in range(array.slices):
                end = number * step + step if number < array.slices - 1 else ""
                slice = f"@{number * step}:{end}" if array.slices > 1 else ""
                found.append(f"{node.arg}{slice}")
        return found

    def _slice_length(self, node: UOp) -> int:
        return slice_length(self.layouts[node], pointer_of(node).size, self.target.bound_bytes)

    def _share_bindings(self) -> dict[UOp, int]:
        """The slices of each buffer that needs some: as many as it has, or its share of those that
        a kernel may bind. A plan for a range of sizes may have much less memory than it could.
        """
        most = self.target.most_buffers or 1 << 32
        wanted = {
            node: -(-self.layouts[node].length(pointer_of(node).size) // length)
            for node, length in self._lengths.items()
            if length
        }
        left = most - len(self._lengths) + len(wanted)
        found = {}
        for number, node in enumerate(sorted(wanted, key=wanted.__getitem__)):
            share = max(1, min(wanted[node], left // (len(wanted) - number)))
            found[node] = share
            left -= share
        return found

    def array(self, buffer: UOp) -> Array:
        """The array that a buffer is in the text."""
        node = real(buffer)
        slices = self._slices.get(node, 1)
        return Array(
            self.text(buffer), self.layouts[node], self.need, self._lengths.get(node, 0), slices
        )

    # the launch

    def _extents(self, kind: str) -> list[int]:
        """How many blocks ("gidx") or lanes ("lidx") there are along each axis."""
        sizes = [1, 1, 1]
        for node in self.program:
            if node.op is Ops.SPECIAL and node.name[:-1] == kind:
                sizes[int(node.name[-1])] = int(node.vmax) + 1
        return sizes

    @property
    def is_flat(self) -> bool:
        """Whether the blocks are counted in rows, see `launch_shape`."""
        return max(self._extents("gidx")) > MOST_BLOCKS

    def _flat_position(self) -> list[str]:
        if not self.is_flat:
            return []
        total = math.prod(self._extents("gidx"))
        if total >= 1 << 32:
            raise CompileError(
                f"render: {self.target.name} has no launch of {total} blocks",
                limit=f"{MOST_BLOCKS} x {MOST_BLOCKS}",
            )
        return [
            f"  let block = gid.x + gid.y * {MOST_BLOCKS}u;",
            f"  if (block >= {total}u) {{ return; }}",
        ]

    def position(self, kind: str, axis: int) -> str:
        """Where in the launch a lane is, as a u32."""
        if kind == "lidx" or not self.is_flat:
            return f"{'lid' if kind == 'lidx' else 'gid'}.{'xyz'[axis]}"
        sizes = self._extents("gidx")
        before = math.prod(sizes[:axis])
        text = f"(block / {before}u)" if before > 1 else "block"
        return f"({text} % {sizes[axis]}u)" if any(size > 1 for size in sizes[axis + 1 :]) else text

    # questions of rules

    def variable_text(self, node: UOp) -> str:
        """A variable's value."""
        word = f"variables.{_field(node)}"
        return {"i32": f"i32({word}.x)", "u32": f"{word}.x"}.get(_TYPES[node.dtype], word)

    def zero(self) -> str:
        """A pair of zeros that the driver does not know to be zeros."""
        self._uses_variables = True
        return "variables.zero"

    def word(self, text: str) -> str:
        """A new name for a word."""
        name = self._fresh("word")
        self.emit(f"let {name}: u32 = {text};")
        return name

    def long(self, name: str, *operands: str) -> str:
        """A call of a function of 64-bit integers."""
        for text in functions(name):
            self.need(text)
        return f"{name}({', '.join(operands)})"

    # differences from C

    def _add(self, node: UOp) -> None:
        if node.op is Ops.DEFINE_VAR:
            self._texts[node] = self.variable_text(node)
            return
        super()._add(node)
        if node in self._copies:
            self._heads[node] = len(self._lines) - 1
        elif node.op is Ops.END:
            for loop in node.src:
                if loop in self._heads:
                    self._repeat(loop)

    def _repeat(self, loop: UOp) -> None:
        """The text of a loop that has just ended, with its body several times."""
        head = self._heads.pop(loop)
        body = [line.removeprefix("  " * self._indent) for line in self._lines[head + 1 : -1]]
        del self._lines[head:]
        names = self.text(loop), self._fresh("trip"), self.text(loop.src[0])
        for line in repeated(loop, self._copies[loop], body, names):
            self.emit(line)

    def _named(self, node: UOp, text: str) -> str:
        prefix = {Ops.LOAD: "val", Ops.CAST: "cast", Ops.BITCAST: "cast"}.get(node.op, "alu")
        name = self._fresh(prefix)
        self.emit(f"let {name}: {self.type(node.dtype)} = {text};")
        return name

    def _define_array(self, node: UOp) -> None:
        pointer = pointer_of(node)
        name = self._texts[node] = self._fresh("temp")
        layout = self.layouts[node]
        kind = f"array<{layout.element}, {layout.length(pointer.size)}>"
        if pointer.space is AddressSpace.SHARED:
            self.need(f"var<workgroup> {name}: {kind};")
        else:
            self._arrays.append(f"  var {name}: {kind};")

    def _vector_type(self, dtype: DType) -> str:
        scalar = _TYPES[dtype.scalar]
        if scalar == "vec2<u32>" or not 2 <= dtype.lanes <= len(_LANES):
            return f"array<{scalar}, {dtype.lanes}>"
        return f"vec{dtype.lanes}<{scalar}>"

    def lane_of(self, vector: str, dtype: DType, number: int) -> str:
        is_array = self._vector_type(dtype).startswith("array")
        return f"{vector}[{number}]" if is_array else f"{vector}{_LANES[number]}"

    def layout(self, buffer: UOp) -> Layout:
        return self.layouts[real(buffer)]


def _field(node: UOp) -> str:
    """The name of a variable in the launch's record: no word of the language begins so."""
    return f"n_{function_name(node.name)}"


def kernel_name(name: str) -> str:
    """The function for the kernel `name`."""
    text = function_name(name)
    return f"{text}_" if _RESERVED.fullmatch(text) else text
