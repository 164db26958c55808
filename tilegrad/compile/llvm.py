"""LLVM IR text to a relocatable object, in this process, through llvmlite.

The object is position independent and uses the small code model, so that `runtime.elf` can place it
anywhere with few kinds of relocation. The text already holds vectors, unrolled loops and hoisted
addresses; LLVM's own standard pipeline (vectorizers, unrollers, inliner) then finds little to do
and costs as much as all the rest together. The passes that run instead are in the list below; the
code generator brings its own common-subexpression elimination, loop-invariant motion and strength
reduction.

Nothing here allows LLVM to change a float's value: a product and a sum are fused only where the
text says `llvm.fma`. llvmlite serialises its calls; compiling in parallel takes processes
(engine.build.workers), and so does compiling for a target that was never tried, since LLVM ends the
process on some of its own errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as binding

from tilegrad.base.errors import CompileError
from tilegrad.base.failed import write_failed

__all__ = ["assembly", "compile_ir", "host_target", "inner_spills"]

# Each was measured on five kernels of 29 to 850 lines: the compile time that it adds, and how much
# faster the code gets.
_PASSES = (
    # Accumulators arrive as stack slots. Promoting them makes reductions two to five times as fast,
    # for 4%; without it a matmul stores its accumulators on every step.
    "sroa",
    # Gates arrive as branches around single instructions and loops as chains of blocks: merging
    # them costs 1% and gives the code generator, which looks at one block at a time, larger blocks.
    "simplify_cfg",
)
# Tried and left out, as the code ran no faster: instruction_combine (+13 to 25%), new_gvn (+6 to
# 13%), loop_rotate and loop_strength_reduce (+3%). The standard pipeline O1 (+105 to 150%) gained
# 1.3 times on one kernel, by unrolling a scalar loop: the work of an Opt.


# Bytes from which on a register holds a vector.
_VECTOR = 16


@dataclass(frozen=True)
class _Machine:
    """LLVM's description of one processor and the passes for it; kept, as making one takes half a
    millisecond, and as llvmlite gives back neither a pass builder's nor a pass manager's memory.
    """

    target: binding.TargetMachine
    layout: str
    builder: binding.PassBuilder
    passes: binding.ModulePassManager


@cache
def _initialize() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


@cache
def _machine(triple: str, cpu: str, features: str, opt: int) -> _Machine:
    _initialize()
    try:
        found = binding.Target.from_triple(triple)
        # A module of WebAssembly is never shared: nothing in it needs an address of its own.
        reloc = "static" if triple.startswith("wasm") else "pic"
        machine = found.create_target_machine(
            cpu, features, opt=opt, reloc=reloc, codemodel="small"
        )
    except RuntimeError as error:
        raise CompileError(f"llvm: {error}", triple=triple, cpu=cpu) from None
    machine.set_asm_verbosity(True)
    options = binding.create_pipeline_tuning_options(speed_level=0)
    builder = binding.create_pass_builder(machine, options)
    passes = binding.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    return _Machine(machine, str(machine.target_data), builder, passes)


@cache
def host_target() -> tuple[str, str, str]:
    """This machine as LLVM names it: target triple, processor, features (`+avx2,-sse4a,...`)."""
    triple = binding.get_process_triple()
    if "windows" in triple:
        triple += "-elf"  # the only object format that LLVM's loader takes there
    return triple, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def _refusal(error: RuntimeError, triple: str, text: str) -> CompileError:
    """LLVM's first message, with the line of the text that it points at; a file keeps the text."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("LLVM IR parsing error"):
        lines.pop(0)
    details: dict[str, object] = {}
    if kernel := re.search(r"^define .*?@(\w+)\(", text, re.MULTILINE):
        details["kernel"] = kernel[1]
    headline = lines[0].strip() if lines else "no message"
    match = re.match(r"<string>:(\d+):(\d+): error: (.*)", headline)
    if match:
        headline = match[3]
        details["text"] = f"{match[1]}: {lines[1].strip()}" if len(lines) > 1 else match[1]
    elif len(lines) > 1:
        details["near"] = lines[1].strip()
    source = write_failed("failed.ll", text)
    return CompileError(f"llvm: {headline}", **details, target=triple, source=source)


@contextmanager
def _optimized(ir_text: str, machine: _Machine, triple: str) -> Iterator[binding.ModuleRef]:
    """The module of a text, for the block.

    It is closed before its context, also where something is raised: a traceback keeps both, and
    the collector takes them in any order, which ends the process.
    """
    # A context of its own: types and constants of LLVM's global one are never given back, and names
    # would clash.
    context = binding.create_context()
    try:
        module = binding.parse_assembly(ir_text, context)
    except RuntimeError as error:
        raise _refusal(error, triple, ir_text) from None
    with module:
        module.triple = triple
        module.data_layout = machine.layout
        try:
            module.verify()
        except RuntimeError as error:
            raise _refusal(error, triple, ir_text) from None
        machine.passes.run(module, machine.builder)
        yield module


def compile_ir(ir_text: str, *, cpu: str, features: str, triple: str = "", opt: int = 2) -> bytes:
    """The relocatable object of `ir_text` for a processor; an empty `triple` is this machine's.

    `opt` is the code generator's effort: 0 compiles two to four times as fast into code that runs
    two to seven times as long; 1 to 3 are alike. Raises CompileError with LLVM's first message.
    """
    triple = triple or host_target()[0]
    machine = _machine(triple, cpu, features, opt)
    with _optimized(ir_text, machine, triple) as module:
        return bytes(machine.target.emit_object(module))


def assembly(ir_text: str, *, cpu: str, features: str, triple: str = "", opt: int = 2) -> str:
    """The code that `compile_ir` gives, as text to read."""
    triple = triple or host_target()[0]
    machine = _machine(triple, cpu, features, opt)
    with _optimized(ir_text, machine, triple) as module:
        return str(machine.target.emit_assembly(module))


def inner_spills(text: str) -> int:
    """How many vectors an `assembly` text moves to the stack and back inside its innermost loops.

    There each of them costs as much as the arithmetic that the loop is for; outside, little. Single
    numbers, which are addresses and counters, are no part of it: they are read from the stack as
    operands.
    """
    count, is_inner = 0, False
    heads: set[str] = set()
    label = ""
    for line in text.splitlines():
        found = re.match(r"\.?L(BB\d+_\d+):|(?:#|//) %bb\.\d+:", line)
        if found is not None:
            label, is_inner = found[1] or "", False
        if "This Inner Loop Header" in line:
            heads.add(label)
            is_inner = True
        inside = re.search(r"in Loop: Header=(BB\d+_\d+)", line)
        if inside is not None and inside[1] in heads:
            is_inner = True
        moved = re.search(r"(\d+)-byte (?:Folded )?(?:Spill|Reload)\b", line)
        count += is_inner and moved is not None and int(moved[1]) >= _VECTOR
    return count
