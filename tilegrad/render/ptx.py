"""PTX, NVIDIA's virtual instruction set, for the driver or `ptxas`.

    ptx_code         registers, lines, constants, versions of PTX
    ptx_arithmetic   what each op computes
    ptx_casts        one dtype to another
    ptx_logic        trees of bitwise ops as one lop3
    ptx_memory       addresses, loads and stores
    ptx_ranges       both ends of a range as one comparison
    ptx_snapshots    reads of accumulators that need a register of their own
    ptx_tiles        tiles that one lane copies
    ptx_warp_units   matrix units whose operands are registers
    ptx_wgmma        matrix units that read shared memory
    ptx_tensor_memory  matrix units that add in tensor memory
    ptx_block_pairs  those of two blocks together
    ptx_one_lane     loops that one lane goes through by itself

    PTXRenderer(target).render("add", program)

A program is walked once. Loops become labels and branches; gates become predicates, so there are
no other branches. Nothing here needs a toolkit or a driver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tilegrad.base.dtype import AddressSpace, Pointer, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import shortened_memories
from tilegrad.ir.uop import UOp
from tilegrad.render.inline import loads_inside
from tilegrad.render.names import function_name
from tilegrad.render.ptx_arithmetic import compute, free_maxima
from tilegrad.render.ptx_block_pairs import is_known
from tilegrad.render.ptx_casts import bitcast, cast
from tilegrad.render.ptx_code import Code, kind_of, letter, root, uniform, version_for
from tilegrad.render.ptx_logic import fused_logic
from tilegrad.render.ptx_memory import FARTHEST_COPY, PTXMemory, index_sums
from tilegrad.render.ptx_ranges import join_ranges
from tilegrad.render.ptx_snapshots import snapshots
from tilegrad.render.ptx_tensor_memory import TensorUnits
from tilegrad.render.ptx_tiles import TileCopies
from tilegrad.render.ptx_warp_units import WarpUnits
from tilegrad.render.ptx_wgmma import WarpGroups, needless
from tilegrad.render.shared_memory import SWIZZLED, shared_layout
from tilegrad.target import MatrixUnit, Target

__all__ = ["PTXRenderer"]

_AXES = "xyz"
_POSITIONS = {"gidx": "%ctaid", "lidx": "%tid"}
# Matrix instructions in the body of a loop from which `ptxas` is told not to unroll it: it gains
# little then, and may spill (56 iterations of the gradient by 64x64x3x3 weights: 16 bytes).
_MANY = 192
# The name of shared memory that a launch asks for.
_ASKED = "asked"


class PTXRenderer:
    """PTX for the architecture that the target's `isa` names."""

    def __init__(self, target: Target):
        self.target = target

    def render(self, name: str, program: Sequence[UOp]) -> str:
        """The module with the kernel `name`.

        Raises CompileError for ops that the target lacks.
        """
        return _Kernel(self.target, program).text(function_name(name))


class _Kernel:
    """One program on its way to text."""

    def __init__(self, target: Target, program: Sequence[UOp]):
        self.program = program = join_ranges(program)
        self.code = Code(target)
        self.memory = PTXMemory(self.code, program)
        self.units = WarpUnits(self.code, self.memory, program)
        self.groups = WarpGroups(self.code, self.memory, self.units, program)
        self.tiles = TileCopies(self.code, self.memory, program)
        self.tensor = TensorUnits(self.code, self.memory, self.tiles, program)
        self.shared = shared_layout(program)
        self.shortened = shortened_memories(program)
        self.fused, self.inside = fused_logic(program)
        self.skipped = index_sums(program) | loads_inside(program) | needless(program)
        self.snapshots = snapshots(program)
        self.products = _products_in_loops(program)
        self.code.free_maxima = free_maxima(program)
        self.arrays: list[str] = []
        # The register of where the arrays begin that a launch asks for.
        self.asked = ""
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
                f".version {version_for(code.capability, self.program)}",
                f".target {code.target.isa}",
                ".address_size 64",
                *self._asked(),
                "",
                f".visible .entry {name}(",
                ",\n".join(parameters),
                ")",
                f".maxntid {lanes}, 1, 1",
                *self.tiles.directives(),
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
            if node.op is Ops.SPECIAL and node.name.startswith("lidx")
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
        """Nodes that are operands, or only give an order."""

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
        if source.itemsize != target.itemsize:
            self._set(node, self.units.as_words(node))
            return
        values = [bitcast(self.code, each, source, target) for each in self.code.lanes(node.src[0])]
        self._set_cast(node, values)

    def _set_cast(self, node: UOp, values: Sequence[str]) -> None:
        """Set the registers of a cast; one that changes nothing is the register that it reads."""
        if tuple(values) == self.code.lanes(node.src[0]) and root(node.src[0]).op is Ops.DEFINE_ACC:
            kind = kind_of(node.dtype)
            values = [self.code.op(kind, f"mov.{kind}", value) for value in values]
        self._set(node, values)

    def _load(self, node: UOp) -> None:
        is_word = node in self.units.whole_words
        self._set(node, self.units.load_word(node) if is_word else self.memory.load(node))

    def _store(self, node: UOp) -> None:
        if root(node.src[0]) in self.shortened:
            names = self.code.registers_of(self.code.lanes(node.value), "f32")
            self.memory.store(node, [self.units.as_tf32(name) for name in names])
            return
        self.memory.store(node)

    def _barrier(self, node: UOp) -> None:
        if self.tensor.is_alone:
            return
        if self.memory.swizzled & self.memory.filled:
            self.code.emit("fence.proxy.async.shared::cta")
        self.tiles.meet()
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
        if not is_known(unit, self.code.target):
            raise CompileError(
                f"render.ptx: {self.code.target.name} has no matrix unit {unit.name}",
                isa=self.code.target.isa,
            )
        if unit.columns:
            self.tensor.multiply(node)
            return
        if unit.row_bytes:
            self._set(node, self.groups.multiply(node, self.units.packed(node.src[2])))
            return
        self._set(node, self.units.multiply(node, self.open[-1][0] if self.open else None))

    def _copy_async(self, node: UOp) -> None:
        memory, index, load, *gate = node.src
        code, nbytes = self.code, load.dtype.nbytes
        cache = "cg" if nbytes == 16 else "ca"
        to = self.memory.address(memory, index)
        source = self.memory.address(load.src[0], load.index, farthest=FARTHEST_COPY)
        size = ""
        if load.is_gated:
            # Bytes that are not copied become zero.
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
    Ops.FRAGMENT: lambda kernel, node: kernel._set(node, kernel.units.fragment(node)),
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
