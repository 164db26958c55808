"""Programs for AMD's GPUs as LLVM IR text: `amdgpu_kernel void @name(ptr addrspace(1) %data0...)`.

Arithmetic, conversions and loops are those of `render.llvm`; this file has what a GPU has beside:
positions in the launch, memory in several address spaces, barriers, atomics and matrix units. Every
argument takes eight bytes: a pointer for each slot of the kernel, then the variables. Names and
numbers are those of LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilegrad.base.dtype import AddressSpace, DType, Pointer, dtypes
from tilegrad.base.errors import CompileError
from tilegrad.ir.op import Ops
from tilegrad.ir.queries import memory_of
from tilegrad.ir.uop import UOp, pointer_of
from tilegrad.render.inline import block_lanes, real, refuse_shared
from tilegrad.render.llvm import Function
from tilegrad.render.llvm_lines import memory_type, type_of
from tilegrad.render.llvm_memory import split_offset
from tilegrad.target import MatrixUnit, Target

__all__ = ["AMDGPURenderer"]

# Address spaces: memory that kernels share, a block's shared memory (LDS), a lane's own (scratch).
_GLOBAL, _SHARED, _PRIVATE = 1, 3, 5
# Arguments that no kernel reads: without these lines, LLVM has the launch prepare them all.
_UNUSED = (
    "dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr", "heap-ptr", "hostcall-ptr",
    "default-queue", "completion-action", "multigrid-sync-arg", "lds-kernel-id",
    "flat-scratch-init",
)  # fmt: skip
_IDS = {"gidx": "workgroup", "lidx": "workitem"}
# Each block has the lanes of the module's second list, which the notes of the code say too.
_SIZES = "!reqd_work_group_size !1"
# For each prefix of a matrix unit's name: the intrinsic, and the operands' element type where it is
# not that of the dtype.
_INTEGERS = {dtypes.bfloat16: "i16"}


class AMDGPURenderer:
    """LLVM IR for the GPU `target`, whose `isa` is its architecture, as "gfx942"."""

    def __init__(self, target: Target):
        self.target = target

    def render(self, name: str, program: Sequence[UOp]) -> str:
        """The IR module with one kernel."""
        function = _KernelText(name, list(program), self.target)
        text = function.text("amdgpu_kernel void")
        lanes = function.block_lanes()
        sizes = ", ".join(f"i32 {size}" for size in function.block_sizes())
        attributes = [
            "nounwind",
            f'"amdgpu-flat-work-group-size"="{lanes},{lanes}"',
            '"uniform-work-group-size"="true"',
            '"amdgpu-implicitarg-num-bytes"="0"',
            '"no-builtins"',
            *(f'"amdgpu-no-{word}"' for word in _UNUSED),
        ]
        return "\n".join(
            [
                *function.above,
                text,
                *sorted(function.declared.values()),
                f"attributes #0 = {{ {' '.join(attributes)} }}",
                "!llvm.module.flags = !{!0}",
                '!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
                f"!1 = !{{{sizes}}}",
                "",
            ]
        )


class _KernelText(Function):
    """One kernel, written instruction by instruction."""

    def __init__(self, name: str, program: list[UOp], target: Target):
        super().__init__(name, program)
        self.target = target
        self.above: list[str] = []
        self.spaces: dict[UOp, int] = {}

    @staticmethod
    def handlers() -> Mapping[Ops, Callable[[Any, UOp], None]]:
        return {**Function.handlers(), **_HANDLERS}

    def block_lanes(self) -> int:
        """The lanes of each block."""
        return block_lanes(self.program)

    def block_sizes(self) -> tuple[int, ...]:
        """The lanes of each block along its axes."""
        sizes = [1, 1, 1]
        for node in self.program:
            if node.op is Ops.SPECIAL and node.name.startswith("lidx"):
                sizes[int(node.name[-1])] = node.vmax + 1
        return tuple(sizes)

    def text(self, kind: str) -> str:
        body = super().text(kind)
        parameters = [f"ptr addrspace({_GLOBAL}) noalias %data{slot}" for slot in range(self.slots)]
        first = self.slots
        parameters += [f"i64 %var{first + number}.w" for number, _ in enumerate(self.variables)]
        head = f"define {kind} @{self.name}({', '.join(parameters)}) #0 {_SIZES} {{"
        return "\n".join([head, *body.splitlines()[1:]])

    def operands(self, node: UOp) -> tuple[UOp, ...]:
        return node.src

    # parameters, positions, memory

    def define_global(self, node: UOp) -> None:
        self.values[node] = f"%data{node.arg}"
        self.spaces[node] = _GLOBAL

    def define_var(self, node: UOp) -> None:
        self.narrow_word(node, f"%var{self.slots + self.variables.index(node)}")

    def define_local(self, node: UOp) -> None:
        pointer = pointer_of(node)
        array = f"[{pointer.size} x {memory_type(pointer.base)}]"
        if pointer.space is AddressSpace.SHARED:
            name = f"@{self.name}_shared{node.arg}"
            self.above.append(
                f"{name} = internal addrspace({_SHARED}) global {array} poison, align 16"
            )
            self.spaces[node] = _SHARED
        else:
            name = f"%scratch{node.arg}"
            self.entry.append(f"  {name} = alloca {array}, align 16, addrspace({_PRIVATE})")
            self.spaces[node] = _PRIVATE
        self.values[node] = name

    def define_acc(self, node: UOp) -> None:
        name, kind = f"%acc{node.arg}", type_of(node.dtype)
        self.entry.append(f"  {name} = alloca {kind}, addrspace({_PRIVATE})")
        start = self.use(node.src[0])
        self.line(f"store {kind} {start}, ptr addrspace({_PRIVATE}) {name}")
        self.values[node] = name

    def assign(self, node: UOp) -> None:
        accumulator, value = node.src
        address = self.values[real(accumulator)]
        text = self.use(value)
        self.line(f"store {type_of(node.dtype)} {text}, ptr addrspace({_PRIVATE}) {address}")

    def use(self, node: UOp) -> str:
        if node.op is Ops.DEFINE_ACC:
            kind = type_of(node.dtype)
            return self.make(f"load {kind}, ptr addrspace({_PRIVATE}) {self.values[node]}")
        return super().use(node)

    def special(self, node: UOp) -> None:
        name = node.name
        if name[:-1] not in _IDS or name[-1] not in "012":
            raise CompileError(
                f"llvm: {self.target.name} has no position {name!r}", known="gidx0-2, lidx0-2"
            )
        full = f"llvm.amdgcn.{_IDS[name[:-1]]}.id.{'xyz'[int(name[-1])]}"
        self.declared[full] = f"declare i32 @{full}()"
        self.entry.append(f"  %{name} = call i32 @{full}()")
        kind = type_of(node.dtype)
        if kind != "i32":
            self.entry.append(f"  %{name}.w = zext i32 %{name} to {kind}")
        self.values[node] = f"%{name}" if kind == "i32" else f"%{name}.w"

    def barrier(self, node: UOp) -> None:
        """A barrier: writes before it are seen after it."""
        name = "llvm.amdgcn.s.barrier"
        self.declared[name] = f"declare void @{name}() convergent"
        self.line('fence syncscope("workgroup") release')
        self.line(f"call void @{name}()")
        self.line('fence syncscope("workgroup") acquire')

    def pointer(self, node: UOp, index: UOp) -> tuple[str, str]:
        """The type of a pointer to an element, and its address."""
        node = memory_of(node)
        kind = f"ptr addrspace({self.spaces[node]})"
        if isinstance(node.dtype, Pointer) and node.dtype.size == 1:
            # Behind an index that LLVM cannot tell to be 0, the element would not be a register.
            return kind, self.values[node]
        return kind, self.element_at(kind, node, *split_offset(index))

    def load(self, node: UOp) -> None:
        pointer, index, *rest = node.src
        dtype = node.dtype
        if rest and rest[1].dtype.lanes > 1:
            self.values[node] = self.stacked(
                [self.load_one(pointer, index + lane, dtype.scalar, rest[0], rest[1], lane)
                 for lane in range(dtype.lanes)], dtype,
            )  # fmt: skip
            return
        if not rest:
            self.values[node] = self.load_at(pointer, index, dtype)
            return
        self.values[node] = self.load_one(pointer, index, dtype, rest[0], rest[1])

    def load_at(self, pointer: UOp, index: UOp, dtype: DType) -> str:
        kind, address = self.pointer(pointer, index)
        align = dtype.itemsize * dtype.lanes
        value = self.make(f"load {memory_type(dtype)}, {kind} {address}, align {align}")
        return self.narrow(value, dtype)

    def load_one(
        self, pointer: UOp, index: UOp, dtype: DType, other: UOp, gate: UOp, lane: int | None = None
    ) -> str:
        """A load where its gate is true, `other` elsewhere: nothing outside is read."""
        shut, flag = self.lane_of(other, lane), self.lane_of(gate, lane)
        before = self.block
        number = self.open_gate(flag)
        value = self.load_at(pointer, index, dtype)
        self.close_gate(number)
        return self.make(f"phi {type_of(dtype)} [ {value}, %then{number} ], [ {shut}, %{before} ]")

    def lane_of(self, node: UOp, lane: int | None) -> str:
        if lane is None or node.dtype.lanes == 1:
            return self.use(node)
        return self.make(f"extractelement {type_of(node.dtype)} {self.use(node)}, i64 {lane}")

    def stacked(self, values: Sequence[str], dtype: DType) -> str:
        vector = "poison"
        for lane, value in enumerate(values):
            vector = self.make(
                f"insertelement {type_of(dtype)} {vector}, {type_of(dtype.scalar)} {value}, "
                f"i64 {lane}"
            )
        return vector

    def store(self, node: UOp) -> None:
        index, value, *gate = node.src[1:]
        lanes = value.dtype.lanes
        if lanes > 1 and (node.arg is not None or (gate and gate[0].dtype.lanes > 1)):
            for lane in range(lanes):
                self.store_one(node, index + lane, lane)
        else:
            self.store_one(node, index, None)

    def store_one(self, node: UOp, index: UOp, lane: int | None) -> None:
        pointer, _, value, *gate = node.src
        number = self.open_gate(self.lane_of(gate[0], lane)) if gate else None
        dtype = value.dtype if lane is None else value.dtype.scalar
        text = self.lane_of(value, lane)
        kind, address = self.pointer(pointer, index)
        if node.arg is not None:
            self.combine(node, dtype, text, kind, address)
        else:
            align = dtype.itemsize * dtype.lanes
            text = self.widen(text, dtype)
            self.line(f"store {memory_type(dtype)} {text}, {kind} {address}, align {align}")
        if number is not None:
            self.close_gate(number)

    def combine(self, node: UOp, dtype: DType, value: str, kind: str, address: str) -> None:
        """Atomically where there is an instruction, as lanes may meet there; else where it is
        certain that none do.
        """
        word = _atomic(node.arg, dtype)
        if word:
            self.line(
                f'atomicrmw {word} {kind} {address}, {type_of(dtype)} {value} syncscope("agent") '
                f"monotonic"
            )
            return
        refuse_shared(node, self.program, f"llvm: {self.target.name}")
        align = dtype.itemsize
        found = self.make(f"load {memory_type(dtype)}, {kind} {address}, align {align}")
        changed = self.binary(node.arg, dtype, self.narrow(found, dtype), value)
        text = self.widen(changed, dtype)
        self.line(f"store {memory_type(dtype)} {text}, {kind} {address}, align {align}")

    # matrix units

    def vectorize(self, node: UOp) -> None:
        """An operand of one element is that element."""
        if node.dtype.lanes == 1:
            self.values[node] = self.use(node.src[0])
        else:
            super().vectorize(node)

    def matrix(self, node: UOp) -> None:
        unit: MatrixUnit = node.arg
        if unit not in self.target.matrix_units:
            raise CompileError(
                f"llvm: {self.target.name} has no matrix unit {unit.name}", isa=self.target.isa
            )
        a, b, total = ((type_of(each.dtype), self.use(each)) for each in node.src)
        write = self.mfma if unit.name.startswith("mfma") else self.wmma
        self.values[node] = write(unit, a, b, total)

    def whole(self, unit: MatrixUnit, operand: tuple[str, str]) -> tuple[str, str]:
        """An operand whose elements the intrinsic takes as integers."""
        kind, value = operand
        word = _INTEGERS.get(unit.dtype_in)
        if word is None:
            return operand
        to = f"<{len(unit.a_layout[0])} x {word}>"
        return to, self.make(f"bitcast {kind} {value} to {to}")

    def mfma(self, unit: MatrixUnit, a: tuple[str, str], b: tuple[str, str], c: Any) -> str:
        """CDNA: `v_mfma_f32_16x16x16_f16` and its kin, on 64 lanes. The three numbers shuffle and
        repeat operands: not at all.
        """
        suffix = {dtypes.float32: "f32", dtypes.float16: "f16", dtypes.bfloat16: "bf16.1k"}
        a, b = self.whole(unit, a), self.whole(unit, b)
        shape = f"{unit.m}x{unit.n}x{unit.k}"
        name = f"llvm.amdgcn.mfma.f32.{shape}{suffix[unit.dtype_in]}"
        return self.unit_call(name, c[0], [a, b, c, *[("i32", "0")] * 3])

    def wmma(self, unit: MatrixUnit, a: tuple[str, str], b: tuple[str, str], c: Any) -> str:
        """RDNA: `v_wmma_f32_16x16x16_f16` and its kin, on 32 lanes."""
        a, b = self.whole(unit, a), self.whole(unit, b)
        suffix = {dtypes.float16: "f16", dtypes.bfloat16: "bf16"}[unit.dtype_in]
        count = len(unit.a_layout[0])
        inner = f"v{count}{_INTEGERS.get(unit.dtype_in, 'f16')}"
        name = (
            f"llvm.amdgcn.wmma.f32.{unit.m}x{unit.n}x{unit.k}.{suffix}"
            f".v{len(unit.c_layout[0])}f32.{inner}"
        )
        return self.unit_call(name, c[0], [a, b, c])

    def unit_call(self, name: str, kind: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Flags are constants, as the declaration says."""
        given = ", ".join(f"{each} {value}" for each, value in arguments)
        taken = ", ".join(f"{each} immarg" if each == "i32" else each for each, _ in arguments)
        self.declared[name] = f"declare {kind} @{name}({taken}) convergent"
        return self.make(f"call {kind} @{name}({given})")


def _atomic(op: Ops, dtype: DType) -> str:
    """The operation of `atomicrmw` that combines an element, empty where there is none: LLVM's
    maximum of floats does not pass NaN on.
    """
    if op is Ops.ADD and dtype.kind in ("int", "uint") and dtype.itemsize >= 4:
        return "add"
    if op is Ops.ADD and dtype.is_float:
        return "fadd"
    if op is Ops.MAX and dtype.kind in ("int", "uint") and dtype.itemsize >= 4:
        return "max" if dtype.kind == "int" else "umax"
    return ""


_HANDLERS: dict[Ops, Callable[[Any, UOp], None]] = {
    Ops.DEFINE_GLOBAL: _KernelText.define_global,
    Ops.DEFINE_VAR: _KernelText.define_var,
    Ops.DEFINE_LOCAL: _KernelText.define_local,
    Ops.DEFINE_ACC: _KernelText.define_acc,
    Ops.ASSIGN: _KernelText.assign,
    Ops.SPECIAL: _KernelText.special,
    Ops.LOAD: _KernelText.load,
    Ops.STORE: _KernelText.store,
    Ops.BARRIER: _KernelText.barrier,
    Ops.WMMA: _KernelText.matrix,
    Ops.VECTORIZE: _KernelText.vectorize,
}
