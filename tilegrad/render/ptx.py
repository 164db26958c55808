"""PTX, NVIDIA's virtual instruction set, for the driver or `ptxas`.

    ptx_code         registers, lines, constants
    ptx_arithmetic   what each op computes
    ptx_casts        one dtype to another
    ptx_logic        trees of bitwise ops as one lop3
    ptx_memory       addresses, loads and stores
    ptx_ranges       both ends of a range as one comparison
    ptx_tensor_memory  matrix units that add in tensor memory
    ptx_tiles        tiles that one lane copies
    ptx_wgmma        matrix units that read shared memory

    PTXRenderer(target).render("add", program)

A program is walked once. Loops become labels and branches; gates become predicates, so there are
no other branches. A matrix unit is an `mma.sync`, whose operands of 16 bits come in pairs. Nothing
here needs a toolkit or a driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.hardware import BYTE_FLOATS
from tilegrad.ir.op import Ops
from tilegrad.ir.uop import UOp
from tilegrad.render.inline import loads_inside
from tilegrad.render.names import function_name
from tilegrad.render.ptx_arithmetic import compute, free_maxima
from tilegrad.render.ptx_casts import bitcast, cast
from tilegrad.render.ptx_code import Code, kind_of, letter, root, uniform
from tilegrad.render.ptx_logic import fused_logic
from tilegrad.render.ptx_memory import FARTHEST_COPY, PTXMemory, split_index
from tilegrad.render.ptx_ranges import join_ranges
from tilegrad.render.ptx_tensor_memory import TensorUnits
from tilegrad.render.ptx_tiles import TileCopies
from tilegrad.render.ptx_wgmma import WarpGroups, needless
from tilegrad.render.shared_memory import SWIZZLED, shared_layout
from tilegrad.target import MatrixUnit, Target

__all__ = ["PTXRenderer", "ptx_version"]

# The first version of PTX that knows an architecture and every instruction used here (PTX ISA,
# section "Target ISA notes" of each instruction, and its release notes).
_VERSIONS = (
    (75, "7.0"), (80, "7.0"), (86, "7.1"), (87, "7.4"), (88, "9.0"), (89, "7.8"), (90, "8.0"),
    (100, "8.6"), (101, "8.6"), (103, "8.8"), (110, "9.0"), (120, "8.7"), (121, "8.8"),
)  # fmt: skip
_AXES = "xyz"
_POSITIONS = {"gidx": "%ctaid", "lidx": "%tid"}
_UNIT_TYPES = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "f32",
    dtypes.int8: "s8",
    dtypes.int32: "s32",
    dtypes.fp8e4m3: "e4m3",
    dtypes.fp8e5m2: "e5m2",
}
# Bytes of a register of 32 bits.
_BYTES = 4
# Matrix instructions in the body of a loop from which `ptxas` is told not to unroll it: it gains
# little then, and may spill (56 iterations of the gradient by 64x64x3x3 weights: 16 bytes).
_MANY = 192
# The name of shared memory that a launch asks for.
_ASKED = "asked"
# Which source of an access is its index.
_INDEX_AT = {Ops.LOAD: 1, Ops.STORE: 1, Ops.COPY_ASYNC: 1, Ops.COPY_TILE: 1, Ops.DESCRIPTOR: 2}
_ALIASES = frozenset({Ops.AFTER, Ops.GEP, Ops.VECTORIZE})


def ptx_version(number: int) -> str:
    """The version of PTX to write for an architecture.

    Raises CompileError for one that none is known for.
    """
    known = dict(_VERSIONS)
    if number not in known:
        raise CompileError(
            f"render.ptx: no PTX for sm_{number}", known=", ".join(f"sm_{each}" for each in known)
        )
    return known[number]


class PTXRenderer:
    """PTX for the architecture that the target's `isa` names."""

    def __init__(self, target: Target):
        self.target = target

    def render(self, name: str, program: Sequence[UOp]) -> str:
        """The module with the kernel `name`.

        Raises CompileError for what the target lacks.
        """
        return _Kernel(self.target, program).text(function_name(name))


class _Kernel:
    """One program on its way to text."""

    def __init__(self, target: Target, program: Sequence[UOp]):
        self.program = program = join_ranges(program)
        self.code = Code(target)
        self.memory = PTXMemory(self.code, program)
        self.groups = WarpGroups(self.code, self.memory)
        self.tiles = TileCopies(self.code, self.memory, program)
        self.tensor = TensorUnits(self.code, self.memory, program)
        self.shared = shared_layout(program)
        self.fused, self.inside = fused_logic(program)
        self.skipped = _index_sums(program) | loads_inside(program) | needless(program)
        self.snapshots = _snapshots(program)
        self.products = _products_in_loops(program)
        self.whole_words = _whole_words(program)
        self.code.free_maxima = free_maxima(program)
        self.arrays: list[str] = []
        # The register of where the arrays begin that a launch asks for.
        self.asked = ""
        # The 32-bit register that two halves or four bytes were loaded as, by their registers.
        self.words: dict[tuple[str, ...], str] = {}
        # The register of a float32 operand as a unit reads it, by its own and the loop around.
        self.shortened: dict[tuple[str, UOp | None], str] = {}
        self.open: list[tuple[UOp, str, str]] = []

    def text(self, name: str) -> str:
        code = self.code
        parameters = self._parameters(name)
        if self.tensor.is_used:
            self.arrays += self.tensor.declarations()
            self.tensor.begin()
            if not self.tiles.barriers:
                self.tensor.settle(has_met=False)
        for node in self.program:
            self._add(node)
        if self.tensor.is_used:
            self.tensor.end()
        lanes = self._block_lanes()
        return "\n".join(
            [
                f".version {self._version()}",
                f".target {code.target.isa}",
                ".address_size 64",
                *self._asked(),
                "",
                f".visible .entry {name}(",
                ",\n".join(parameters),
                ")",
                f".maxntid {lanes}, 1, 1",
                "{",
                *code.registers(),
                *self.arrays,
                *code.head,
                *code.lines,
                "  ret;",
                "}",
                "",
            ]
        )

    def _version(self) -> str:
        """The version of PTX that knows the architecture, and the units that are used."""
        known = ptx_version(self.code.capability)
        units = {
            node.arg.dtype_in
            for node in self.program
            if node.op is Ops.WMMA and not node.arg.row_bytes
        }
        if units.isdisjoint(dtypes.fp8s):
            return known
        return max(known, BYTE_FLOATS, key=lambda text: [int(number) for number in text.split(".")])

    def _asked(self) -> list[str]:
        """Shared memory that a launch asks for."""
        return [f".extern .shared .align 16 .b8 {_ASKED}[];"] if self.shared.is_asked else []

    def _parameters(self, name: str) -> list[str]:
        """Declarations of the pointers by slot, then variables as the program first uses them, then
        tensor maps; and the lines that read them.
        """
        pointers = sorted(
            (node for node in self.program if node.op is Ops.DEFINE_GLOBAL),
            key=lambda n: int(n.arg),
        )
        found = []
        for node in pointers:
            parameter = f"{name}_data{node.arg}"
            found.append(f"  .param .u64 {parameter}")
            pointer = self.code.new("b64")
            self.code.begin(f"ld.param.u64 {pointer}, [{parameter}]")
            self.code.begin(f"cvta.to.global.u64 {pointer}, {pointer}")
            self.memory.bases[node] = pointer
        variables = [node for node in self.program if node.op is Ops.DEFINE_VAR]
        for number, node in enumerate(variables):
            parameter, kind = f"{name}_var{number}", letter(node.dtype)
            found.append(f"  .param .{kind} {parameter}")
            register = self.code.new(kind_of(node.dtype))
            self.code.begin(f"ld.param.{kind} {register}, [{parameter}]")
            self.code.values[node] = (register,)
        return found + self.tiles.parameters(name)

    def _block_lanes(self) -> int:
        """The lanes of a block at most."""
        return math.prod(
            int(node.vmax) + 1
            for node in self.program
            if node.op is Ops.SPECIAL and node.arg[0].startswith("lidx")
        )

    # nodes

    def _add(self, node: UOp) -> None:
        if node in self.inside or node in self.skipped:
            return
        handler = _HANDLERS.get(node.op)
        self.tensor.before(node)
        if not self.tensor.holds_fills:
            self.tiles.before(node)
        if handler is not None:
            handler(self, node)
        elif node.op.is_alu:
            self._compute(node)
        else:
            raise CompileError(f"render.ptx: a {node.op.name} node in a program", dtype=node.dtype)

    def _set(self, node: UOp, values: Sequence[str]) -> None:
        self.code.values[node] = tuple(values)

    def _compute(self, node: UOp) -> None:
        width, code = node.dtype.lanes, self.code
        if node in self.fused:
            fused = self.fused[node]
            rows = [_widened(code.lanes(source), width) for source in fused.operands]
            rows += [("0",) * width] * (3 - len(rows))
            self._set(
                node,
                [code.op("b32", "lop3.b32", *row, f"0x{fused.byte:02X}") for row in zip(*rows)],
            )
            return
        rows = [_widened(code.lanes(source), width) for source in node.src]
        self._set(node, [compute(code, node, row) for row in zip(*rows)])

    def _nothing(self, node: UOp) -> None:
        """Nodes that are operands, or only say what comes first."""

    def _local(self, node: UOp) -> None:
        self._array(node)
        if node in self.tiles.barriers:
            self.tiles.make(node)
            if self.tensor.is_used and not self.tensor.is_settled:
                self.tensor.settle(has_met=True)

    def _array(self, node: UOp) -> None:
        """An array; names of arrays stand for addresses in shared memory alone."""
        pointer = node.dtype
        assert isinstance(pointer, Pointer)
        is_shared = pointer.space is AddressSpace.SHARED
        space = "shared" if is_shared else "local"
        size = pointer.size * pointer.base.nbytes
        name = f"{space}{node.arg}"
        kind = "b32" if is_shared else "b64"
        register = self.code.new(kind)
        is_swizzled = node in self.memory.swizzled
        self.memory.bases[node] = register
        if is_shared and self.shared.is_asked:
            if not self.asked:
                self.asked = self._begin_of_asked()
            self.code.begin(f"add.s32 {register}, {self.asked}, {self.shared.starts[node]}")
            if self.memory.swizzled:
                self.code.begin(uniform(register, register))
            return
        alignment = SWIZZLED if is_swizzled else 16
        self.arrays.append(f"  .{space} .align {alignment} .b8 {name}[{size}];")
        self.code.begin(f"mov.{kind} {register}, {name}")

    def _begin_of_asked(self) -> str:
        """Where the arrays begin that a launch asks for: it may have them anywhere, those with
        swizzled rows begin at a multiple.
        """
        code, register = self.code, self.code.new("b32")
        code.begin(f"mov.b32 {register}, {_ASKED}")
        if self.memory.swizzled:
            code.begin(f"add.s32 {register}, {register}, {SWIZZLED - 1}")
            code.begin(f"and.b32 {register}, {register}, {-SWIZZLED}")
        return register

    def _special(self, node: UOp) -> None:
        name = str(node.arg[0])
        kind, number = name[:-1], name[-1]
        if kind not in _POSITIONS or number not in "012":
            raise CompileError(f"render.ptx: no position {name!r}", known="gidx0-2, lidx0-2")
        code = self.code
        found = code.op("b32", "mov.u32", f"{_POSITIONS[kind]}.{_AXES[int(number)]}")
        if kind_of(node.dtype) == "b64":
            found = code.op("b64", "cvt.u64.u32", found)
        self._set(node, [found])

    def _accumulator(self, node: UOp) -> None:
        if self.tensor.owns(node):
            self.tensor.accumulator(node)
            return
        kind, code = kind_of(node.dtype), self.code
        values = _widened(code.lanes(node.src[0]), node.dtype.lanes)
        self._set(node, [code.op(kind, f"mov.{kind}", value) for value in values])

    def _assign(self, node: UOp) -> None:
        if self.tensor.owns(root(node)):
            return
        target, kind = self.code.values[root(node)], kind_of(node.dtype)
        values = _widened(self.code.lanes(node.src[1]), node.dtype.lanes)
        if any(value in target[:lane] for lane, value in enumerate(values)):
            # Lanes that are permuted: no value may be overwritten before it is read.
            values = tuple([self.code.op(kind, f"mov.{kind}", value) for value in values])
        for name, value in zip(target, values, strict=True):
            if name != value:
                self.code.emit(f"mov.{kind} {name}, {value}")
        self._set(node, target)

    def _after(self, node: UOp) -> None:
        source = root(node)
        if isinstance(node.dtype, Pointer):
            return
        if self.tensor.owns(source):
            is_in_loop = bool(self.open)
            self._set(node, self.tensor.load(source, is_in_loop=is_in_loop))
            return
        if node.src[0] in self.code.values or source in self.code.values:
            values = self.code.lanes(source if source.op is Ops.DEFINE_ACC else node.src[0])
            self._share(node, values)

    def _share(self, node: UOp, values: Sequence[str]) -> None:
        """Let `node` stand for registers that there are, or for copies where an accumulator may
        change before the last use.
        """
        kind = kind_of(node.dtype)
        if node in self.snapshots:
            values = [self.code.op(kind, f"mov.{kind}", value) for value in values]
        self._set(node, values)

    def _vectorize(self, node: UOp) -> None:
        self._share(node, [lane for source in node.src for lane in self.code.lanes(source)])

    def _pick(self, node: UOp) -> None:
        values = self.code.lanes(node.src[0])
        self._share(node, [values[lane] for lane in node.arg])

    def _cast(self, node: UOp) -> None:
        source, target = node.src[0].dtype.scalar, node.dtype.scalar
        values = [cast(self.code, each, source, target) for each in self.code.lanes(node.src[0])]
        self._set_cast(node, values)

    def _bitcast(self, node: UOp) -> None:
        source, target = node.src[0].dtype.scalar, node.dtype.scalar
        values = [bitcast(self.code, each, source, target) for each in self.code.lanes(node.src[0])]
        self._set_cast(node, values)

    def _set_cast(self, node: UOp, values: Sequence[str]) -> None:
        """Set the registers of a cast; one that changes nothing is the register that it reads."""
        if tuple(values) == self.code.lanes(node.src[0]) and root(node.src[0]).op is Ops.DEFINE_ACC:
            kind = kind_of(node.dtype)
            values = [self.code.op(kind, f"mov.{kind}", value) for value in values]
        self._set(node, values)

    def _load(self, node: UOp) -> None:
        if node not in self.whole_words:
            self._set(node, self.memory.load(node))
            return
        # Nobody reads the bytes one by one: their names stand for the word alone.
        names = tuple([self.code.new("b32") for _ in range(_BYTES)])
        address = self.memory.address(node.src[0], node.index).at()
        self.words[names] = self.code.op("b32", "ld.shared.b32", address)
        self._set(node, names)

    def _store(self, node: UOp) -> None:
        self.memory.store(node)

    def _barrier(self, node: UOp) -> None:
        if self.tensor.is_alone:
            return
        if self.memory.swizzled & self.memory.filled:
            self.code.emit("fence.proxy.async.shared::cta")
        self.code.emit("bar.sync 0")
        self.tensor.meets()

    # loops

    def _loop(self, node: UOp) -> None:
        code, (count,) = self.code, node.src[:1]
        self.tensor.enter(node)
        kind, name = kind_of(node.dtype), letter(node.dtype)
        variable = code.op(kind, f"mov.{kind}", "0")
        self._set(node, [variable])
        head, foot = code.label(), code.label()
        if count.vmin < 1:
            gate = code.op("pred", f"setp.ge.{name}", variable, code.scalar(count))
            code.emit(f"@{gate} bra {foot}")
        code.mark(head)
        self.open.append((node, head, foot))
        self.memory.enter()
        if self.products[node] >= _MANY:
            code.emit('.pragma "nounroll"')

    def _end(self, node: UOp) -> None:
        for source in node.src:
            if source.op is not Ops.RANGE:
                continue
            loop, head, foot = self.open.pop()
            assert loop is source
            code, name = self.code, letter(loop.dtype)
            variable = code.scalar(loop)
            code.emit(f"add.{name} {variable}, {variable}, 1")
            gate = code.op("pred", f"setp.lt.{name}", variable, code.scalar(loop.src[0]))
            code.emit(f"@{gate} bra {head}")
            if loop.src[0].vmin < 1:
                code.mark(foot)
            self.memory.leave()
            self.tensor.leave(loop, is_in_loop=bool(self.open))

    # lanes of a warp

    def _shuffle(self, node: UOp) -> None:
        """Each lane's value from the lane whose number differs in the bits of the mask."""
        if node.dtype.itemsize != 4 or node.dtype.lanes > 1:
            raise CompileError("render.ptx: a shuffle moves 32 bits", dtype=node.dtype)
        kind, value = kind_of(node.dtype), self.code.scalar(node.src[0])
        whole = f"{node.arg}, 31, 0xffffffff"
        self._set(node, [self.code.op(kind, "shfl.sync.bfly.b32", value, whole)])

    # matrix units

    def _matrix(self, node: UOp) -> None:
        unit: MatrixUnit = node.arg
        if unit.name not in {known.name for known in self.code.target.matrix_units}:
            raise CompileError(
                f"render.ptx: {self.code.target.name} has no matrix unit {unit.name}",
                isa=self.code.target.isa,
            )
        if unit.columns:
            self.tensor.multiply(node)
            return
        if unit.row_bytes:
            self._set(node, self.groups.multiply(node, self._packed(node.src[2])))
            return
        a, b, c = (self._packed(source) for source in node.src)
        if unit.digits:
            a, b = (self._shortened(source, names) for source, names in zip(node.src, (a, b)))
        kind_in = "tf32" if unit.digits else _UNIT_TYPES[unit.dtype_in]
        kind_out = _UNIT_TYPES[unit.dtype_out]
        kinds = f"{kind_out}.{kind_in}.{kind_in}.{kind_out}"
        shape = f"m{unit.m}n{unit.n}k{unit.k}.row.col.{kinds}"
        kind = kind_of(unit.dtype_out)
        kind = "b32" if kind == "b16" else kind
        made = [self.code.new(kind) for _ in c]
        groups = ", ".join(f"{{{', '.join(group)}}}" for group in (made, a, b, c))
        self.code.emit(f"mma.sync.aligned.{shape} {groups}")
        self._set(node, made if unit.dtype_out.itemsize == 4 else self._unpacked(made))

    def _copy_async(self, node: UOp) -> None:
        memory, index, load, *gate = node.src
        code, nbytes = self.code, load.dtype.nbytes
        cache = "cg" if nbytes == 16 else "ca"
        to = self.memory.address(memory, index)
        source = self.memory.address(load.src[0], load.index, farthest=FARTHEST_COPY)
        size = ""
        if load.is_gated:
            # What is not copied becomes zero.
            open_ = code.scalar(load.gate)
            size = f", {code.op('b32', 'selp.b32', str(nbytes), '0', open_)}"
        on = f"@{code.scalar(gate[0])} " if gate else ""
        code.emit(f"{on}cp.async.{cache}.shared.global {to.at()}, {source.at()}, {nbytes}{size}")

    def _wait(self, node: UOp) -> None:
        if node.dtype is dtypes.void and node.arg:
            self.code.emit("cp.async.commit_group")
            self.code.emit(f"cp.async.wait_group {node.arg}")
        elif node.dtype is dtypes.void:
            self.code.emit("cp.async.wait_all")
        elif self.tensor.is_used:
            self._set(node, self.tensor.wait(node) or ())
        else:
            self._set(node, self.groups.wait(node))

    def _elect(self, node: UOp) -> None:
        self._set(node, [self.tensor.is_chosen or self.tiles.elect(node)])

    def _wait_tile(self, node: UOp) -> None:
        self.tiles.wait(node)
        self.tensor.comes_to_tile()

    def _descriptor(self, node: UOp) -> None:
        units = self.tensor if self.tensor.is_used else self.groups
        self._set(node, [units.descriptor(node)])

    def _fragment(self, node: UOp) -> None:
        count, is_transposed = node.arg
        (row,) = node.src
        address = self.memory.address(row.src[0], row.src[1]).at()
        made = [self.code.new("b32") for _ in range(count)]
        kind = f"{'trans.' if is_transposed else ''}shared.b16"
        self.code.emit(
            f"ldmatrix.sync.aligned.m8n8.x{count}.{kind} {{{', '.join(made)}}}, {address}"
        )
        itemsize = row.dtype.itemsize
        if itemsize == _BYTES:
            self._set(node, [self.code.op("f32", "mov.b32", word) for word in made])
            return
        if itemsize == 1:
            # Nobody reads the bytes one by one: their names stand for the word alone.
            fours = [tuple([self.code.new("b32") for _ in range(_BYTES)]) for _ in made]
            self.words |= zip(fours, made, strict=True)
            self._set(node, [name for four in fours for name in four])
            return
        halves = self._unpacked(made)
        self.words |= zip(zip(halves[::2], halves[1::2], strict=True), made, strict=True)
        self._set(node, halves)

    def _packed(self, node: UOp) -> list[str]:
        """The registers of 32 bits that hold an operand: pairs of 16-bit floats in one, or four
        bytes.
        """
        values = self.code.registers_of(self.code.lanes(node), kind_of(node.dtype))
        if node.dtype.itemsize == 1:
            fours = [tuple(values[at : at + _BYTES]) for at in range(0, len(values), _BYTES)]
            return [self.words.get(four) or self._four(four) for four in fours]
        if kind_of(node.dtype) != "b16":
            return values
        pairs = zip(values[::2], values[1::2], strict=True)
        return [
            self.words.get((low, high)) or self.code.op("b32", "mov.b32", f"{{{low}, {high}}}")
            for low, high in pairs
        ]

    def _shortened(self, node: UOp, values: Sequence[str]) -> list[str]:
        """The registers of float32 operands with the shorter fraction of a unit: one for each value
        in a body, unless it is an accumulator's, which changes.
        """
        body = self.open[-1][0] if self.open else None
        is_changing = any(root(source).op is Ops.DEFINE_ACC for source in (node, *node.src))
        made = []
        for name in values:
            key = (name, body)
            found = None if is_changing else self.shortened.get(key)
            if found is None:
                found = self.shortened[key] = self._as_tf32(name)
            made.append(found)
        return made

    def _as_tf32(self, name: str) -> str:
        """A float32 rounded to 10 digits behind the point: half of the last one is added, as a
        multiple of the number's power of two, and the digits behind it are cut. NaN stays NaN, and
        what is less than the normal numbers is only cut. (`cvt.rna.tf32.f32` does so with two
        comparisons more.)
        """
        code = self.code
        power = code.op("b32", "and.b32", code.op("b32", "mov.b32", name), "0xFF800000")
        half = code.constant(2.0**-11, dtypes.float32)
        total = code.op("f32", "fma.rn.f32", code.op("f32", "mov.b32", power), half, name)
        return code.op("b32", "and.b32", code.op("b32", "mov.b32", total), "0xFFFFE000")

    def _four(self, values: Sequence[str]) -> str:
        """The lowest bytes of four registers as one."""
        low, high = (
            self.code.op("b32", "prmt.b32", *values[at : at + 2], "0x0040") for at in (0, 2)
        )
        return self.code.op("b32", "prmt.b32", low, high, "0x5410")

    def _unpacked(self, words: Sequence[str]) -> list[str]:
        found = []
        for word in words:
            low, high = self.code.new("b16"), self.code.new("b16")
            self.code.emit(f"mov.b32 {{{low}, {high}}}, {word}")
            found += [low, high]
        return found


_HANDLERS: Mapping[Ops, Callable[[_Kernel, UOp], None]] = {
    Ops.CONST: _Kernel._nothing,
    Ops.DEFINE_GLOBAL: _Kernel._nothing,
    Ops.DEFINE_VAR: _Kernel._nothing,
    Ops.SINK: _Kernel._nothing,
    Ops.DEFINE_LOCAL: _Kernel._local,
    Ops.DEFINE_ACC: _Kernel._accumulator,
    Ops.SPECIAL: _Kernel._special,
    Ops.RANGE: _Kernel._loop,
    Ops.END: _Kernel._end,
    Ops.LOAD: _Kernel._load,
    Ops.STORE: _Kernel._store,
    Ops.CAST: _Kernel._cast,
    Ops.BITCAST: _Kernel._bitcast,
    Ops.VECTORIZE: _Kernel._vectorize,
    Ops.GEP: _Kernel._pick,
    Ops.ASSIGN: _Kernel._assign,
    Ops.AFTER: _Kernel._after,
    Ops.BARRIER: _Kernel._barrier,
    Ops.SHUFFLE: _Kernel._shuffle,
    Ops.WMMA: _Kernel._matrix,
    Ops.FRAGMENT: _Kernel._fragment,
    Ops.COPY_ASYNC: _Kernel._copy_async,
    Ops.WAIT: _Kernel._wait,
    Ops.COPY_TILE: lambda kernel, node: kernel.tiles.copy(node),
    Ops.ARRIVE: lambda kernel, node: kernel.tiles.arrive(node),
    Ops.ELECT: _Kernel._elect,
    Ops.WAIT_TILE: _Kernel._wait_tile,
    Ops.DESCRIPTOR: _Kernel._descriptor,
}


def _widened(lanes: tuple[str, ...], width: int) -> tuple[str, ...]:
    """One lane for all, or the lanes as they are."""
    return lanes * (width // len(lanes))


def _index_sums(program: Sequence[UOp]) -> set[UOp]:
    """Sums with a constant that are only ever the index of an access: its address holds the
    constant.
    """
    others: set[UOp] = set()
    indices: set[UOp] = set()
    for node in program:
        at = _INDEX_AT.get(node.op)
        for number, source in enumerate(node.src):
            (indices if number == at else others).add(source)
    return {node for node in indices - others if split_index(node)[1] and node.op is Ops.ADD}


def _products_in_loops(program: Sequence[UOp]) -> dict[UOp, int]:
    """The matrix instructions in the body of each loop, without those of the loops in it."""
    found: dict[UOp, int] = {}
    loops: list[UOp] = []
    for node in program:
        if node.op is Ops.RANGE:
            found[node] = 0
            loops.append(node)
        elif node.op is Ops.END:
            del loops[len(loops) - sum(source.op is Ops.RANGE for source in node.src) :]
        elif node.op is Ops.WMMA and loops:
            found[loops[-1]] += 1
    return found


def _whole_words(program: Sequence[UOp]) -> set[UOp]:
    """Loads of four bytes from shared memory that are only ever a word of a matrix unit's
    operand.
    """
    operands = {
        source
        for node in program
        if node.op is Ops.WMMA
        for source in node.src[:2]
        if source.op is Ops.VECTORIZE and source.dtype.itemsize == 1
    }
    words: set[UOp] = set()
    others: set[UOp] = set()
    for node in program:
        if node not in operands:
            # Whoever else reads a byte needs it in a register of its own.
            others.update(node.src if node.op not in (Ops.GEP, Ops.WMMA) else node.src[2:])
            continue
        for at in range(0, len(node.src), _BYTES):
            four = node.src[at : at + _BYTES]
            if _is_word(four):
                words.add(four[0].src[0])
            else:
                others.update(four)
    read = {
        source.src[0] if source.op is Ops.GEP else source
        for node in others
        for source in (node.src if node in operands else (node,))
    }
    return words - read


def _is_word(four: Sequence[UOp]) -> bool:
    """Whether these are the bytes of one load from shared memory, in their order."""
    load = four[0].src[0] if four[0].op is Ops.GEP else four[0]
    return (
        load.op is Ops.LOAD
        and not load.is_gated
        and load.dtype.lanes == _BYTES
        and load.index.dtype.lanes == 1
        and root(load.src[0]).op is Ops.DEFINE_LOCAL
        and all(
            each.op is Ops.GEP and each.src[0] is load and each.arg == (lane,)
            for lane, each in enumerate(four)
        )
    )


def _snapshots(program: Sequence[UOp]) -> set[UOp]:
    """The nodes that stand for an accumulator's register while it may change before their last use:
    they need a copy.
    """
    at = {node: position for position, node in enumerate(program)}
    assigned: dict[UOp, list[int]] = {}
    users: dict[UOp, list[UOp]] = {}
    around: dict[UOp, tuple[UOp, ...]] = {}
    foot: dict[UOp, int] = {}
    loops: tuple[UOp, ...] = ()
    for position, node in enumerate(program):
        if node.op is Ops.END:
            foot |= {source: position for source in node.src if source.op is Ops.RANGE}
            loops = loops[:-1]
        around[node] = loops
        if node.op is Ops.RANGE:
            loops = (*loops, node)
        if node.op is Ops.ASSIGN:
            assigned.setdefault(root(node), []).append(position)
        for source in node.src:
            users.setdefault(source, []).append(node)
    last: dict[UOp, int] = {}
    reads: dict[UOp, set[UOp]] = {}
    for node in reversed(program):
        reached = at[node]
        for user in users.get(node, ()):
            end = last[user] if user.op in _ALIASES else at[user]
            entered = [loop for loop in around[user] if loop not in around[node]]
            reached = max(reached, end, foot[entered[0]] if entered else 0)
        last[node] = reached
    found: set[UOp] = set()
    for node in program:
        if node.op not in _ALIASES or isinstance(node.dtype, Pointer):
            continue
        sources = node.src[:1] if node.op is Ops.AFTER else node.src
        read: set[UOp] = set()
        for source in sources:
            if (memory := root(source)).op is Ops.DEFINE_ACC:
                read.add(memory)
            elif source in reads:
                read |= reads[source]
        if any(
            at[node] < step < last[node] for memory in read for step in assigned.get(memory, ())
        ):
            found.add(node)
        else:
            reads[node] = read
    return found
