"""Mutants of sections M8, M9, M11, R3 to R5, R7, R9 and R10: kernels, shapes and texts."""

from __future__ import annotations

from tests.marks.mutants.basics import STORED_BEFORE
from tests.marks.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CLIKE = "tilegrad/render/clike.py"
_RULES = "tilegrad/render/text_rules.py"
_CUDA = "tilegrad/render/cuda.py"
_PTX = "tilegrad/render/ptx.py"
_LOGIC = "tilegrad/render/ptx_logic.py"
_OPTS = "tilegrad/optimize/opts/opts.py"
_NAME = "tilegrad/optimize/analysis/name.py"
_GROUP = "tilegrad/optimize/opts/group.py"
_UNITS = "tilegrad/matrix_units.py"
_UOP = "tilegrad/ir/uop.py"

_NO_CLOSED_FORM = Mutant(
    "no reduction has a closed form",
    "tilegrad/schedule/collapse.py",
    'return graph_rewrite(ast, _RULES, name="schedule.collapse")',
    "return ast",
)
_NO_CONTIGUOUS = Mutant(
    "contiguous() asks for nothing",
    "tilegrad/schedule/items.py",
    "    Ops.CONTIGUOUS: Reason.CONTIGUOUS,\n",
    "",
)

MUTANTS: dict[str, Mutant] = {
    "M8.1": Mutant(
        "a constant index gets a name",
        _CLIKE,
        "            if op is not Ops.CONST and not (",
        "            if not (",
    ),
    "M8.2": Mutant(
        "CUDA takes lanes for blocks",
        _CUDA,
        '"lidx": "threadIdx.{axis}"',
        '"lidx": "blockIdx.{axis}"',
    ),
    "M8.3": Mutant(
        "the output of a cast keeps the type of what was cast",
        _RULES,
        '    return f"({ctx.type(u.dtype)})({text})"\n\n\ndef whole_number',
        '    return f"({ctx.type(source)})({text})"\n\n\ndef whole_number',
    ),
    "M8.4": Mutant(
        "a bitcast converts the value",
        _RULES,
        '    return f"*(({ctx.type(u.dtype)}*)&{ctx.variable(u.src[0])})"\n',
        '    return f"({ctx.type(u.dtype)})({ctx.variable(u.src[0])})"\n',
    ),
    "M8.5": Mutant(
        "negative constants have no parentheses",
        _RULES,
        '        return f"({text})" if text.startswith("-") else text\n',
        "        return text\n",
    ),
    "M8.6": Mutant(
        "a value that is used twice is written twice",
        "tilegrad/render/inline.py",
        "node.op in _MOVABLE and uses == 1",
        "node.op in _MOVABLE",
    ),
    "M8.7": Mutant(
        "each sum of a chain keeps its parentheses",
        _RULES,
        "_CHAINS = frozenset({Ops.ADD, Ops.MUL, Ops.XOR})",
        "_CHAINS = frozenset({Ops.MUL, Ops.XOR})",
    ),
    "M8.8": Mutant(
        "a gate of a load is not asked",
        _RULES,
        '    return f"({ctx.text(gate)}?{text}:{ctx.text(alternative)})"\n',
        "    return text\n",
    ),
    "M8.9": Mutant(
        "the number of sources of a node is not checked",
        "tilegrad/ir/spec.py",
        "        if arity is not None and len(node.src) != arity:\n",
        "        if arity is not None and len(node.src) < 0:\n",
    ),
    "M9.1": Mutant(
        "products of halves are made in float in kernels without Opts too",
        "tilegrad/lower/lower.py",
        "lambda dtype: has_opts or dtype is not dtypes.float16",
        "lambda dtype: True",
    ),
    "M9.2": Mutant(
        "TC=2 uses the unit, as TC=1 does",
        "tilegrad/optimize/opts/matrix.py",
        "        if mode == 1:\n            value = _pick",
        "        if mode:\n            value = _pick",
    ),
    "M9.3": Mutant(
        "each operand of a matrix unit serves one product",
        "tilegrad/optimize/generators/heuristic_units.py",
        "amount := next((n for n in (4, 3, 2) if loop.extent.arg % n == 0), 0)",
        "amount := 0",
    ),
    "M9.4": Mutant(
        "the inline instruction takes its second operand by rows",
        _CUDA,
        'f"m{unit.m}n{unit.n}k{unit.k}.row.col.',
        'f"m{unit.m}n{unit.n}k{unit.k}.row.row.',
    ),
    "M9.5": Mutant(
        "a lane of PTX's unit holds its two rows in the other order",
        _UNITS,
        "        b.append(tuple((2 * t + pair + step, g) for step, pair in steps))\n"
        "        c.append(tuple((g + row, 2 * t + pair) for row in (0, 8) for pair in (0, 1)))\n",
        "        b.append(tuple((2 * t + pair + step, g) for step, pair in steps))\n"
        "        c.append(tuple((g + row, 2 * t + pair) for row in (8, 0) for pair in (0, 1)))\n",
    ),
    "M9.6": Mutant(
        "half stands above every kernel of CUDA",
        _CUDA,
        "    prelude=(\n",
        '    prelude=(\n        "#include <cuda_fp16.h>",\n',
    ),
    "M9.7": Mutant(
        "elementwise kernels move single elements",
        "tilegrad/optimize/generators/heuristic_simt.py",
        "        if best is not None:\n            self.move(OptOps.UPCAST, best[1], best[2])\n",
        "",
    ),
    "M9.8": Mutant(
        "Metal's quads lie in the other half of the rows",
        _UNITS,
        "        row, column = (quad & 4) + lane // 2 % 4, 2 * (quad & 2) + 2 * (lane % 2)\n",
        "        row, column = (quad & 4) + lane // 2 % 4, (quad & 2) + 2 * (lane % 2)\n",
    ),
    "M9.9": Mutant(
        "the lanes of a matrix unit stand behind the reduction",
        "tilegrad/optimize/opts/opt.py",
        "    Axis.THREAD, Axis.GLOBAL, Axis.LOOP, Axis.LOCAL, Axis.GROUP, Axis.REDUCE, "
        "Axis.UPCAST,\n",
        "    Axis.THREAD, Axis.GLOBAL, Axis.LOOP, Axis.REDUCE, Axis.LOCAL, Axis.GROUP, "
        "Axis.UPCAST,\n",
    ),
    "M11.1": Mutant(
        "kernels that copy are called elementwise",
        "tilegrad/schedule/finish.py",
        '"C" if stored.op is Ops.LOAD else "E"',
        '"E"',
    ),
    "M11.2": Mutant(
        "lanes that share a fold have the colour of others",
        _NAME,
        "    Axis.GROUP: _GREEN,\n",
        "    Axis.GROUP: _CYAN,\n",
    ),
    "M11.3": Mutant(
        "short folds are not written out",
        "tilegrad/optimize/generators/heuristic_simt.py",
        "            self.unroll()\n",
        "            pass\n",
    ),
    "M11.4": Mutant(
        "no register tile has two axes",
        "tilegrad/optimize/generators/heuristic_simt.py",
        "                self.tile(reductions[0])\n",
        "                pass\n",
    ),
    "M11.5": Mutant(
        "a bound that always holds is asked all the same",
        "tilegrad/ir/rules/folding.py",
        "    if low != high or any(loop",
        "    if low != high or node.op is Ops.CMPLT or any(loop",
    ),
    "M11.6": Mutant(
        "kernels of one name are not numbered",
        "tilegrad/engine/build/pipeline.py",
        'return f"n{number}" if number else ""',
        'return ""',
    ),
    "R3.1": Mutant(
        "windows of a convolution begin one element late",
        "tilegrad/tensor/views/patches.py",
        "        columns = rows._slice(last + 1, 0, positions * s)"
        ".reshape(*lead, k, positions, s)\n",
        "        columns = rows._slice(last + 1, d, positions * s + d)"
        ".reshape(*lead, k, positions, s)\n",
    ),
    "R3.2": Mutant(
        "windows do not mind their dilation",
        "tilegrad/tensor/views/patches.py",
        "first, kernel[number], stride[number], dilation[number])",
        "first, kernel[number], stride[number], 1)",
    ),
    "R3.3": STORED_BEFORE,
    "R3.4": _NO_CLOSED_FORM,
    "R3.5": _NO_CLOSED_FORM,
    "R3.6": _NO_CLOSED_FORM,
    "R3.7": Mutant(
        "picking rows reads the whole table",
        "tilegrad/engine/program/estimate.py",
        "            if isinstance(touched, int) and 0 < size < touched:\n",
        "            if size > 0:\n",
    ),
    "R4.1": Mutant(
        "a refused Opt leaves a kernel without Opts",
        "tilegrad/engine/build/kernel.py",
        "        self.ast = apply_opt(self.ast, opt, self.target)\n        return self\n",
        "        before, self.ast = self.ast, self.ast.replace(arg=None)\n"
        "        self.ast = apply_opt(before, opt, self.target)\n        return self\n",
    ),
    "R4.2": Mutant(
        "UNROLL takes amounts that do not divide",
        _OPTS,
        "    if extent.arg % amount:\n        raise OptError(\n"
        '            f"{opt.op.value}: {amount} does not divide axis',
        "    if extent.arg < 0:\n        raise OptError(\n"
        '            f"{opt.op.value}: {amount} does not divide axis',
    ),
    "R4.3": Mutant(
        "what UPCAST writes out is the outer part of an axis",
        _OPTS,
        "    return split(ast, loop, _amount(loop, opt), Axis.UPCAST, last=True)\n",
        "    return split(ast, loop, _amount(loop, opt) // 2, Axis.UPCAST, last=True)\n",
    ),
    "R4.4": Mutant(
        "a reduce axis may be upcast",
        _OPTS,
        "    loop = _axis(ast, opt, (Axis.LOOP, Axis.GLOBAL, Axis.LOCAL))\n",
        "    loop = _axis(ast, opt, (Axis.LOOP, Axis.GLOBAL, Axis.LOCAL, Axis.REDUCE))\n",
    ),
    "R4.5": Mutant(
        "LOCAL gives lanes the outer part of an axis",
        _OPTS,
        "    return split(ast, loop, _amount(loop, opt), Axis.LOCAL)\n",
        "    return split(ast, loop, _amount(loop, opt), Axis.LOCAL, top=True)\n",
    ),
    "R4.6": Mutant(
        "every lane that shares a fold stores the result",
        _GROUP,
        "        stores = tuple(_only_first(node, lane) for node in ast.src)\n",
        "        stores = ast.src\n",
    ),
    "R4.7": Mutant(
        "GROUP gives each lane a run of its own, as GROUPTOP does",
        _OPTS,
        "ast, opt, _axis(ast, opt, (Axis.REDUCE,), from_reduce=True), target, top=False\n",
        "ast, opt, _axis(ast, opt, (Axis.REDUCE,), from_reduce=True), target, top=True\n",
    ),
    "R4.8": Mutant(
        "GROUP of 0 takes half of the axis",
        _GROUP,
        "    amount = extent.vmax if opt.arg == 0 else opt.arg\n",
        "    amount = extent.vmax // 2 if opt.arg == 0 else opt.arg\n",
    ),
    "R4.9": Mutant(
        "what PADTO adds to an output is stored too",
        "tilegrad/ir/ranges.py",
        "            return made.over((*made.src[:3], gate))\n",
        "            return made.over(made.src[:3])\n",
    ),
    "R4.10": Mutant(
        "moves that are not legal are listed",
        "tilegrad/optimize/search/actions.py",
        "        if _after(ast, [opt], target) is not None\n",
        "        if opt is not None\n",
    ),
    "R4.11": Mutant(
        "candidates that compute other values are not left out",
        "tilegrad/engine/search/kernel_search.py",
        '        if "wrong" in answer:\n            _refused(built.opts, answer["wrong"])\n'
        '            return None\n        taken, other = answer["taken"]\n',
        '        taken, other = answer.get("taken", (1e-9, 1.0))\n',
    ),
    "R4.12": Mutant(
        "an Opt prints without its amount",
        "tilegrad/optimize/opts/opt.py",
        'axis={self.axis!r}, arg={self.arg!r})"',
        'axis={self.axis!r})"',
    ),
    "R5.1": STORED_BEFORE,
    "R5.2": Mutant(
        "there is an op for products of matrices",
        "tilegrad/ir/op.py",
        '    CMPLT = op(2, "x < y."',
        '    MATMUL = op(2, "x @ y.", evaluate=operator.lt, symbol="@", boolean=True)\n'
        '    CMPLT = op(2, "x < y."',
    ),
    "R5.3": Mutant(
        "a reduction takes each value twice",
        "tilegrad/lower/accumulators.py",
        "    return total.alu(reduce.arg, value)\n",
        "    return total.alu(reduce.arg, value).alu(reduce.arg, value)\n",
    ),
    "R6.1": Mutant(
        "nothing is served at a program's end",
        "tilegrad/base/trace.py",
        "    atexit.register(show)\n",
        "",
    ),
    "R6.2": Mutant(
        "a kernel has none of its passes",
        "tilegrad/viz/sections.py",
        "        self.open.append((end, section))\n",
        "",
    ),
    "R6.3": Mutant(
        "constants are nodes of the picture",
        "tilegrad/viz/pass_states.py",
        "if node.op is not Ops.CONST or node is nodes[-1]]",
        "if node.op is not None]",
    ),
    "R6.4": Mutant(
        "of a rewrite no difference is shown",
        "tilegrad/viz/pass_states.py",
        '    return ["..." if line.startswith("@@") else line for line in lines]\n',
        "    return []\n",
    ),
    "R6.5": Mutant(
        "the left arrow goes on",
        "tilegrad/viz/page/page.js",
        "  ArrowLeft: () => turn(-1),\n",
        "  ArrowLeft: () => turn(1),\n",
    ),
    "R6.6": Mutant(
        "four loads beside each other stay four",
        "tilegrad/lower/lower.py",
        '    ListedPass("lower.join_accesses", join_accesses, ',
        '    ListedPass("lower.join_accesses", lambda ast, target: ast, ',
    ),
    "R6.7": Mutant(
        "only NOOPT=1 has Opts",
        "tilegrad/engine/program/stages.py",
        "if opts is None and not config.NOOPT:\n",
        "if opts is None and config.NOOPT:\n",
    ),
    "R7.1": Mutant(
        "a name that stands twice in a pattern may be two nodes",
        "tilegrad/ir/matcher.py",
        '                tests.append(f"{node} is {self.bound[pattern.name]}")\n',
        "                pass\n",
    ),
    "R7.2": Mutant(
        "rewriting where no rule applies gives the node",
        "tilegrad/ir/matcher.py",
        "        return None if step is None else step(node, ctx)\n",
        "        return node if step is None else step(node, ctx) or node\n",
    ),
    "R7.3": Mutant(
        "a sum that is used once gets a name",
        "tilegrad/render/inline.py",
        "node.op in _MOVABLE and uses == 1",
        "node.op in _MOVABLE and uses == 1 and node.op is not Ops.ADD",
    ),
    "R7.4": Mutant(
        "Metal builds vectors as CUDA does",
        "tilegrad/render/metal.py",
        '    vector="{type}({lanes})",\n',
        '    vector="make_{type}({lanes})",\n',
    ),
    "R7.5": Mutant(
        "of two sets of rules the second is tried first",
        "tilegrad/ir/matcher.py",
        "[*self.rules, *other.rules]",
        "[*other.rules, *self.rules]",
    ),
    "R7.6": Mutant(
        "loads and stores of neighbours stay apart",
        "tilegrad/lower/lower.py",
        '"lower.join_accesses", join_accesses,',
        '"lower.join_accesses", lambda ast, target: ast,',
    ),
    "R7.7": Mutant(
        "writing out copies what does not depend on the axis",
        "tilegrad/lower/expand.py",
        "    return tuple(sorted(found, key=rank.__getitem__))\n",
        "    if node.op is Ops.LOAD:\n        found |= set(rank)\n"
        "    return tuple(sorted(found, key=rank.__getitem__))\n",
    ),
    "R9.1": Mutant(
        "whole constants that are added one after another stay apart",
        "tilegrad/ir/rules/folding.py",
        "    return left.src[0] + float(first + second)\n",
        "    return None\n",
    ),
    "R9.2": _NO_CONTIGUOUS,
    "R9.3": _NO_CONTIGUOUS,
    "R9.4": Mutant(
        "the edge of an assigned value has no reason of its own",
        "tilegrad/schedule/items.py",
        "    Ops.ASSIGN: Reason.ASSIGNED,\n",
        "    Ops.ASSIGN: Reason.SHARED,\n",
    ),
    "R10.1": Mutant(
        "nodes live for ever",
        _UOP,
        "        reference = weakref.ref(node, MethodType(_take_out, key))\n",
        "        _table[key, None] = lambda: node  # type: ignore[assignment]\n"
        "        reference = weakref.ref(node, MethodType(_take_out, key))\n",
    ),
    "R10.2": Mutant(
        "replace forgets the sources that it is given",
        _UOP,
        '"src": self.src, "arg": self.arg, **changes}\n',
        '"arg": self.arg, **changes, "src": self.src}\n',
    ),
    "M9.10": Mutant(
        "PTX calls lanes blocks and blocks lanes",
        _PTX,
        '{"gidx": "%ctaid", "lidx": "%tid"}',
        '{"gidx": "%tid", "lidx": "%ctaid"}',
    ),
    "R11.1": Mutant(
        "the bytes of the first two operands change places",
        _LOGIC,
        "_TABLE = (0xF0, 0xCC, 0xAA)",
        "_TABLE = (0xCC, 0xF0, 0xAA)",
    ),
    "R11.2": Mutant(
        "no two bitwise ops become one instruction",
        _LOGIC,
        "        if within:\n",
        "        if False:\n",
    ),
    "P.7": Mutant(
        "a packet does not wait for the one before it",
        "tilegrad/runtime/kfd.py",
        "_HEADER = 2 | 1 << 8 | 2 << 9 | 2 << 11",
        "_HEADER = 2 | 2 << 9 | 2 << 11",
    ),
    "P.9": Mutant(
        "blocks along y are written where those along x and z leave a gap",
        "tests/device/nv_commands.py",
        '"CTA_RASTER_HEIGHT": (431, 416)',
        '"CTA_RASTER_HEIGHT": (447, 432)',
    ),
    "P.8": Mutant(
        "Metal's mathematics may be fast instead of right",
        "tilegrad/device/metal.py",
        '"setFastMathEnabled:", ctypes.c_bool(False)',
        '"setFastMathEnabled:", ctypes.c_bool(True)',
    ),
    "P.6": Mutant(
        "a module of PTX does not say for which architecture it is",
        _PTX,
        '                f".target {code.target.isa}",\n',
        "",
    ),
}
