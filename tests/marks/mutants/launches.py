"""Mutants of sections M3, M4, M7, B1 and R8: what runs, and what is captured."""

from __future__ import annotations

from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_JIT = "tilegrad/capture/jit.py"
_GRAPH = "tilegrad/capture/graph.py"
_CALL_CODE = "tilegrad/capture/call_code.py"
_ENTRY = "tilegrad/capture/entry.py"
_REPORT = "tilegrad/engine/run/report.py"

_COMPILED_FOR_EACH_SIZE = Mutant(
    "a bound variable is the number that it is bound to",
    "tilegrad/tensor/handle/size_arguments.py",
    "        free, found = value.unbound()\n",
    "        free, found = value.unbound()\n"
    "        if len(found) == 1 and free in found:\n"
    "            return found[free], NO_VARIABLES\n",
)

MUTANTS: dict[str, Mutant] = {
    "M3.1": Mutant(
        "the row of a copy shows its direction the other way round",
        "tilegrad/engine/run/report.py",
        'name = f"{kind} {size:>8s}, {target:>7s} <- {source:7s}"',
        'name = f"{kind} {size:>8s}, {source:>7s} <- {target:7s}"',
    ),
    "M3.2": Mutant(
        "a read that finds the queue empty shows a wait for it",
        "tilegrad/device/nv_runtime.py",
        "config.DEBUG >= 2 and not self.watchdog.is_idle\n",
        "config.DEBUG >= 2\n",
    ),
    "M3.3": Mutant(
        "a row shows the memory of all kernels so far, not what is in use",
        _REPORT,
        "    used = GlobalCounters.mem_used / 1e9\n",
        "    used = GlobalCounters.global_mem / 1e9\n",
    ),
    "M3.4": Mutant(
        "the last line counts rows, not kernels",
        _REPORT,
        "f\"{int(_totals['kernels']):5d} kernels \"",
        "f\"{int(_totals['rows']):5d} kernels \"",
    ),
    "M3.5": Mutant(
        "repeated runs are green as first ones are",
        _REPORT,
        '"green" if _seen.get(key) is None else None',
        '"green"',
    ),
    "M3.6": Mutant(
        "the table of a profile leaves out its first row",
        "tilegrad/tools/profile.py",
        "    for row in rows[:most]:\n",
        "    for row in rows[1:most]:\n",
    ),
    "M4.1": Mutant(
        "no call is ever captured",
        _JIT,
        "        self._calls += 1\n",
        "",
    ),
    "M4.2": Mutant(
        "a capture does not say what it holds",
        _JIT,
        '            print(f"JIT captured {len(entry.program.steps)} kernels with {run.given} '
        'inputs")\n',
        "            pass\n",
    ),
    "M4.3": Mutant(
        "a replay runs the function too",
        _JIT,
        "                if given.__class__ is not Mismatch:\n",
        "                if given.__class__ is not Mismatch:\n"
        "                    self._function(*args, **kwargs)\n",
    ),
    "M4.4": Mutant(
        "a lone kernel is a batch of one",
        _GRAPH,
        "        if self._count == 1:\n            name, inputs",
        "        if self._count == 0:\n            name, inputs",
    ),
    "M4.5": Mutant(
        "a batch goes on at another device",
        _GRAPH,
        "(is_next and step is not None and step.device == group[0].device)",
        "is_next",
    ),
    "M4.6": Mutant(
        "the shape of an input may differ from the captured one",
        "tilegrad/capture/inputs.py",
        "            tensor.uop.shape == self.shape\n"
        "            and tensor.uop.dtype is signature.dtype\n",
        "            tensor.uop.dtype is signature.dtype\n",
    ),
    "M4.7": Mutant(
        "a replay keeps the value of a bound variable",
        _ENTRY,
        '            self.program.set_value(("variable", variable.name), value)\n',
        "            pass\n",
    ),
    "M4.8": Mutant(
        "a capture inside a capture is one of its own",
        _JIT,
        "        if is_building():\n",
        "        if False:\n",
    ),
    "M4.9": Mutant(
        "results are written to the memory of the last call",
        "tilegrad/capture/results.py",
        "            if self._is_reused and id(cell.buffer) not in inputs:\n",
        "            if id(cell.buffer) not in inputs:\n",
    ),
    "M4.10": Mutant(
        "a capture that is forgotten keeps its memory",
        _JIT,
        "            self._entries.clear()\n",
        "            self._forgotten = [*self._entries]  # type: ignore[attr-defined]\n"
        "            self._entries.clear()\n",
    ),
    "M4.11": Mutant(
        "JIT=0 captures",
        _JIT,
        "            if switches.JIT and not switches.CHECK",
        "            if not switches.CHECK",
    ),
    "M4.12": Mutant(
        "a twin device compiles anew",
        "tilegrad/engine/build/pipeline.py",
        "    return repr((backend.target, backend.compiler))\n",
        "    return repr((backend.name, backend.target, backend.compiler))\n",
    ),
    "M4.13": Mutant(
        "a batch of replayed kernels is not counted",
        _CALL_CODE,
        "counters.kernel_count += {len(kernels)}",
        "counters.kernel_count += 0",
    ),
    "M4.14": Mutant(
        "replays draw the random numbers of the capture",
        _CALL_CODE,
        '            self.lines.append("entry.draw()")\n',
        "            pass\n",
    ),
    "M4.15": Mutant(
        "a replay keeps the value of a bound variable",
        _ENTRY,
        '            self.program.set_value(("variable", variable.name), value)\n',
        "            pass\n",
    ),
    "M4.16": Mutant(
        "JIT has no effect",
        _JIT,
        "        if is_building():\n",
        "        if True:\n",
    ),
    "M7.1": Mutant(
        "a variable of the environment does not choose a device",
        "tilegrad/device/registry.py",
        '_ENVIRONMENT.get(key) in ("1", b"1")',
        '_ENVIRONMENT.get(key) == "yes"',
    ),
    "M7.2": Mutant(
        "a device must run several launches as one",
        "tilegrad/runtime/protocol.py",
        "Where there is little work (`is_small`), no other thread is woken.\n"
        '        """\n        return None\n',
        "Where there is little work (`is_small`), no other thread is woken.\n"
        '        """\n        raise NotImplementedError\n',
    ),
    "M7.3": Mutant(
        "freed blocks do not serve again",
        "tilegrad/runtime/allocator.py",
        "            handle = self._reuse(size)\n",
        "            handle = None\n",
    ),
    "M7.4": Mutant(
        "a block may have any number of lanes",
        "tilegrad/device/emulator.py",
        "    if lanes > target.block_lanes:\n",
        "    if lanes < 0:\n",
    ),
    "M7.5": Mutant(
        "what a target lacks and nothing replaces is let through",
        "tilegrad/lower/decompose.py",
        "    _refuse_missing(ast, target)\n    return ast\n",
        "    return ast\n",
    ),
    "M7.6": Mutant(
        "Metal calls functions of bfloat that it has not",
        "tilegrad/render/metal.py",
        '    **{(op, dtypes.bfloat16): f"(bfloat)({name}((float)({{0}})))" for op, name in '
        "_MATH.items()},\n",
        "",
    ),
    "M7.7": Mutant(
        "Metal's encoder ends after its commands are committed",
        "tilegrad/device/metal_queue.py",
        '                objc.send(encoder, "endEncoding", result=None)\n',
        "                pass\n",
    ),
    "B1.1": Mutant(
        "kernels of all sizes are called alike",
        "tilegrad/optimize/analysis/name.py",
        "    if size.op in (Ops.CONST, Ops.DEFINE_VAR):\n",
        '    if size.op is Ops.CONST:\n        return "k"\n    if size.op is Ops.DEFINE_VAR:\n',
    ),
    "B1.2": _COMPILED_FOR_EACH_SIZE,
    "B1.3": Mutant(
        "a loop over a variable goes to its largest value",
        "tilegrad/ir/uop.py",
        "        return UOp(Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, extent),), "
        "(number, axis))\n",
        "        if isinstance(extent, UOp):\n            extent = extent.vmax\n"
        "        return UOp(Ops.RANGE, dtypes.index, (UOp.const(dtypes.index, extent),), "
        "(number, axis))\n",
    ),
    "B1.4": Mutant(
        "a value outside the range of a variable is bound",
        "tilegrad/ir/uop.py",
        "        if not low <= value <= high:\n",
        "        if low > high:\n",
    ),
    "B1.5": Mutant(
        "a mean over a symbolic axis divides by its largest size",
        "tilegrad/tensor/reductions/moments.py",
        "        if isinstance(count, int):\n            return count\n        return self._of(",
        "        if True:\n            return count if isinstance(count, int) else count.vmax\n"
        "        return self._of(",
    ),
    "B1.6": _COMPILED_FOR_EACH_SIZE,
    "R8.1": Mutant(
        "an array of another byte order is taken as it lies",
        "tilegrad/tensor/storage/host_memory.py",
        '    if array.dtype.byteorder not in ("=", "|", "<" if sys.byteorder == "little" '
        'else ">"):\n',
        "    if False:\n",
    ),
    "R8.2": Mutant(
        "an array that is read is always a copy",
        "tilegrad/engine/realize/realize.py",
        "        found = buffer.lend()\n",
        "        found = None\n",
    ),
}
