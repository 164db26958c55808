"""Mutants of sections S and F."""

from __future__ import annotations

from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS", "STORED_BEFORE"]

# What a fold reads gets memory of its own.
STORED_BEFORE = Mutant(
    "the values that a reduction folds are stored first",
    "tilegrad/schedule/fuse.py",
    '    ("schedule.buffers", lambda s: within_buffers(s.nodes, s.fusion.stored, s.target_of)),\n',
    "    (\n"
    '        "schedule.buffers",\n'
    "        lambda s: within_buffers(\n"
    "            s.nodes,\n"
    "            {\n"
    "                fold.src[0]: Reason.SHARED\n"
    "                for fold in s.nodes\n"
    "                if fold.op is Ops.REDUCE_AXIS\n"
    "                and fold.src[0].op.is_alu\n"
    "                and not fold.is_constant\n"
    "            }\n"
    "            | s.fusion.stored,\n"
    "            s.target_of,\n"
    "        ),\n"
    "    ),\n",
)
_NO_CONTIGUOUS = Mutant(
    "contiguous() forces no memory",
    "tilegrad/schedule/items.py",
    "    Ops.CONTIGUOUS: Reason.CONTIGUOUS,\n",
    "",
)
_COPIED_ARRAY = Mutant(
    "an array that is read is always a copy",
    "tilegrad/engine/realize/realize.py",
    "        found = buffer.lend()\n",
    "        found = None\n",
)
_NEIGHBOURS_APART = Mutant(
    "loads and stores of neighbours stay apart",
    "tilegrad/lower/lower.py",
    '"lower.join_accesses", join_accesses,',
    '"lower.join_accesses", lambda ast, target: ast,',
)

MUTANTS: dict[str, Mutant] = {
    "S0.1": Mutant(
        "the emulator gives every variable of a launch the value 1",
        "tilegrad/device/emulator.py",
        "program.run(handles, variables, global_size, local_size)",
        "program.run(handles, [1] * len(variables), global_size, local_size)",
    ),
    "S0.2": Mutant(
        "what is copied to the host has no row",
        "tilegrad/engine/realize/host_reads.py",
        '            report.show_copy("HOST", buffer.device, buffer.nbytes, seconds)\n',
        "            pass\n",
    ),
    "S0.3": Mutant(
        "what PADTO adds to an output is stored too",
        "tilegrad/ir/ranges.py",
        "            return made.over((*made.src[:3], gate))\n",
        "            return made.over(made.src[:3])\n",
    ),
    "S0.4": Mutant(
        "lanes that share a fold do not wait for each other",
        "tilegrad/optimize/opts/group.py",
        "memory.after(barrier).load(again)",
        "memory.after(*stores).load(again)",
    ),
    "S0.5": _COPIED_ARRAY,
    "S1.1": Mutant(
        "an operation on two tensors runs at once",
        "tilegrad/tensor/elementwise/operand_meeting.py",
        "        node = compute(op, dtypes.bool if op.is_boolean else dtype, (left, right))\n"
        "        return self._joined(node, *others)\n",
        "        node = compute(op, dtypes.bool if op.is_boolean else dtype, (left, right))\n"
        "        return self._joined(node, *others).realize()  # type: ignore[attr-defined]\n",
    ),
    "S1.2": Mutant(
        "printing computes what is pending",
        "tilegrad/tensor/results/printing.py",
        "        elif not (stored.op.is_movement or stored.op is Ops.DETACH):\n"
        "            return None\n",
        "        elif not (stored.op.is_movement or stored.op is Ops.DETACH):\n"
        "            (stored,) = engine.realize([stored], {})\n",
    ),
    "S1.3": Mutant(
        "empty tensors have no row",
        "tilegrad/engine/run/run.py",
        "            _show_empty(plan, table)\n",
        "            pass\n",
    ),
    "S1.4": Mutant(
        "the row of a kernel does not name the user's calls",
        "tilegrad/engine/run/run.py",
        "            launch.calls,\n",
        "            (),\n",
    ),
    "S1.5": _NEIGHBOURS_APART,
    "S1.6": Mutant(
        "NOOPT=1 has no effect on the shape of kernels",
        "tilegrad/engine/program/stages.py",
        "    if opts is None and not config.NOOPT:\n",
        "    if opts is None:\n",
    ),
    "S1.7": Mutant(
        "a node that two others share prints twice in full",
        "tilegrad/ir/node_methods.py",
        "        if uses[node] > 1:\n",
        "        if uses[node] > 2:\n",
    ),
    "S1.8": Mutant(
        "the renderers import the compiler",
        "tilegrad/render/cstyle.py",
        "from tilegrad.render.clang import ClangRenderer\n",
        "import tilegrad.compile.llvm\nfrom tilegrad.render.clang import ClangRenderer\n",
    ),
    "S1.9": Mutant(
        "floats are not folded",
        "tilegrad/ir/rules/folding.py",
        "    assert node.op.evaluate is not None\n",
        "    if node.dtype.is_float:\n        return None\n"
        "    assert node.op.evaluate is not None\n",
    ),
    "S1.10": Mutant(
        "Metal takes blocks for lanes and lanes for blocks",
        "tilegrad/render/metal.py",
        'ids={"gidx": "gid.{axis}", "lidx": "lid.{axis}"}',
        'ids={"gidx": "lid.{axis}", "lidx": "gid.{axis}"}',
    ),
    "S1.11": Mutant(
        "every GPU is of one architecture",
        "tilegrad/device/nv.py",
        """    arch = f"sm_{major}{minor}{'a' if (major, minor) in _OWN_UNITS else ''}"\n""",
        "    arch = _DEFAULT_ARCH\n",
    ),
    "S1.12": Mutant(
        "elementwise kernels are called as copies are",
        "tilegrad/schedule/finish.py",
        'letter = "r" if is_reduction else "C" if stored.op is Ops.LOAD else "E"',
        'letter = "r" if is_reduction else "C"',
    ),
    "F1.1": Mutant(
        "products of integers are floats",
        "tilegrad/tensor/products/linear.py",
        "        return (left * right)._sum_of_products(-1, is_wide)\n",
        "        return (left * right)._sum_of_products(-1, is_wide).float()\n",
    ),
    "F1.2": Mutant(
        "the result of a fold is stored in each turn of its loop",
        "tilegrad/lower/accumulators.py",
        "    return accumulator.after(assigned.end(*loops))\n",
        "    return accumulator.after(assigned)\n",
    ),
    "F1.3": Mutant(
        "DEBUG=3 does not print the tree of a kernel",
        "tilegrad/engine/program/stages.py",
        "        print(ast)\n",
        "",
    ),
    "F1.4": Mutant(
        "DEBUG=5 does not print the instructions",
        "tilegrad/engine/build/pipeline.py",
        "        print(listing(program))\n",
        "        pass\n",
    ),
    "F1.5": Mutant(
        "inputs come before outputs",
        "tilegrad/render/clike.py",
        "key=lambda node: int(node.arg)",
        "key=lambda node: -int(node.arg)",
    ),
    "F2.1": STORED_BEFORE,
    "F2.2": Mutant(
        "the plain plan fuses what the other does",
        "tilegrad/schedule/fuse.py",
        "        if plain and name not in _PLAIN:\n",
        "        if False:\n",
    ),
    "F2.3": Mutant(
        "a reduced value is not stored where it is expanded",
        "tilegrad/schedule/reduced_values.py",
        "            if between & _EXPANDED:\n                chosen[node] = Reason.EXPANDED\n"
        "            elif",
        "            if",
    ),
    "F2.4": STORED_BEFORE,
    "F2.5": Mutant(
        "a border is what the work inside makes of nothing",
        "tilegrad/schedule/kernel_graphs.py",
        "        return _or_zero(inside, (yield source, _under(tuple(moved), both), both))\n",
        "        return (yield source, _under(tuple(moved), both), both)\n",
    ),
    "F2.6": Mutant(
        "a part of a buffer is copied as if it were the whole",
        "tilegrad/schedule/fuse.py",
        "                source = below_reshapes(source)\n",
        "                source = base_of(source)\n",
    ),
    "F2.7": Mutant(
        "a product of equal values is another product",
        "tilegrad/ir/uop.py",
        "            key = (op.serial, dtype, src, arg, arg.__class__)\n"
        "        found = _table.get(key)\n",
        "            key = (op.serial, dtype, src, arg, arg.__class__)\n"
        "            if op is Ops.MUL and dtype.is_float:\n"
        "                key = (*key, object())\n"
        "        found = _table.get(key)\n",
    ),
    "F2.8": Mutant(
        "all memory is taken before the first step",
        "tilegrad/engine/run/run.py",
        "        for step in plan.steps if is_writing else ():\n",
        "        for step in plan.steps:\n",
    ),
    "F2.9": Mutant(
        "a transfer between two of a kind is called a copy",
        "tilegrad/engine/run/run.py",
        'kind="xfer" if moved else "copy"',
        'kind="copy"',
    ),
    "F2.10": Mutant(
        "operands on two devices are let through",
        "tilegrad/schedule/schedule.py",
        "if len(set(found)) > 1 and node.op is not Ops.SINK:",
        "if not found and node.op is not Ops.SINK and node.src:",
    ),
    "F2.11": Mutant(
        "no kernel has several outputs",
        "tilegrad/schedule/schedule.py",
        "        order = join_items(order, targets, lambda number: made.buffers[number].nbytes)\n",
        "        pass\n",
    ),
    "F3.1": Mutant(
        "parameters stand anywhere in a program",
        "tilegrad/lower/linearize.py",
        "Ops.DEFINE_GLOBAL: -50",
        "Ops.DEFINE_GLOBAL: 0",
    ),
    "F3.2": Mutant(
        "a sum of equal floats is another sum",
        "tilegrad/ir/uop.py",
        "            key = (op.serial, dtype, src, arg, arg.__class__)\n"
        "        found = _table.get(key)\n",
        "            key = (op.serial, dtype, src, arg, arg.__class__)\n"
        "            if op is Ops.ADD and dtype.is_float:\n"
        "                key = (*key, object())\n"
        "        found = _table.get(key)\n",
    ),
    "F3.3": Mutant(
        "a product starts at 0",
        "tilegrad/ir/op.py",
        'evaluate=multiply, symbol="*", commutes=True, identity=lambda d: 1)',
        'evaluate=multiply, symbol="*", commutes=True, identity=lambda d: 0)',
    ),
    "F3.4": Mutant(
        "what a loop does not change is loaded in it",
        "tilegrad/lower/linearize.py",
        "    parent = _parents(innermost, depth_of)\n",
        "    for node in nodes:\n"
        "        for source in node.src:\n"
        "            if source.op is Ops.LOAD and node.op.is_alu and home[source] is None:\n"
        "                home[source] = home[node]\n"
        "    parent = _parents(innermost, depth_of)\n",
    ),
    "F3.5": Mutant(
        "an instruction that nobody uses stays in a program",
        "tilegrad/lower/linearize.py",
        "        self.program: list[UOp] = []\n",
        "        self.program: list[UOp] = [UOp.const(dtypes.int32, 77)]\n",
    ),
    "F3.6": Mutant(
        "arithmetic on indices counts as work",
        "tilegrad/engine/program/estimate.py",
        "        elif node.op.is_alu and node.dtype.scalar is not dtypes.index:\n",
        "        elif node.op.is_alu:\n",
    ),
    "F4.1": Mutant(
        "a kernel without parameters has no positions",
        "tilegrad/render/clike.py",
        'return ", ".join([*texts, *self.dialect.launch_parameters]) or self.dialect.no_parameters',
        'return ", ".join([*texts, *self.dialect.launch_parameters] if texts else [])',
    ),
    "F4.2": Mutant(
        "constants get names",
        "tilegrad/render/clike.py",
        "            if op is not Ops.CONST and not (",
        "            if not (",
    ),
    "F4.3": Mutant(
        "graphs are not simplified",
        "tilegrad/ir/rules/__init__.py",
        '    return graph_rewrite(node, SIMPLIFY, name="simplify")\n',
        "    return node\n",
    ),
    "F4.4": Mutant(
        "the table of CUDA has the barrier of a warp",
        "tilegrad/render/cuda.py",
        'barrier="__syncthreads();"',
        'barrier="__syncwarp();"',
    ),
    "F4.5": Mutant(
        "HIP takes positions as CUDA does",
        "tilegrad/render/hip.py",
        'ids={"gidx": "__ockl_get_group_id({number})", "lidx": "__ockl_get_local_id({number})"}',
        'ids={"gidx": "blockIdx.{axis}", "lidx": "threadIdx.{axis}"}',
    ),
    "F4.6": Mutant(
        "Metal takes integers by value",
        "tilegrad/render/metal.py",
        'scalar="constant {type}& {name}"',
        'scalar="{type} {name}"',
    ),
    "F4.7": Mutant(
        "wrapped memory is a copy",
        "tilegrad/device/host.py",
        "    def wrap(self, memory: memoryview) -> Any:\n        return memory\n",
        "    def wrap(self, memory: memoryview) -> Any:\n"
        "        return memoryview(bytearray(memory))\n",
    ),
    "F4.8": Mutant(
        "what is on disk is never found",
        "tilegrad/base/cache.py",
        "        return None\n    return payload\n",
        "        return None\n    return None\n",
    ),
}
